"""A mixture of experts in place of an MLP: no token is dropped, whatever the load.

The router's softmax over all experts is cut to the top k and normalised again (as Qwen3 does,
2505.09388); tokens are sorted by expert and multiplied by `jax.lax.ragged_dot` (dropless, as Gale
et al., 2211.15841). The load-balance loss is that of Switch Transformers (Fedus et al.,
2101.03961, eqs. 4 to 6), taken over each sequence by itself (DeepSeek-V3, 2412.19437, eqs. 17 to
20): a sum over sequences does not depend on how a batch is cut into buckets and devices.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.custom_batching import sequential_vmap

from bss.models.transformer.layers import Linear, matmul, nonlinear


@jax.custom_vjp
def grouped(rows_NxF, matrices_ExFxO, sizes_E):
    """Each row by the matrix of its expert, [N, O]; the first `sizes_E[0]` rows are expert 0's."""
    return _grouped(rows_NxF, matrices_ExFxO, sizes_E)


# Of several runs side by side one after another: JAX has no ragged product of a stack.
@sequential_vmap
def _grouped(rows_NxF, matrices_ExFxO, sizes_E):
    return jax.lax.ragged_dot(rows_NxF, matrices_ExFxO, sizes_E)


@sequential_vmap
def _gradients(rows_NxF, matrices_ExFxO, sizes_E, dy_NxO):
    def product(rows_NxF, matrices_ExFxO):
        return jax.lax.ragged_dot(rows_NxF, matrices_ExFxO, sizes_E)

    return jax.vjp(product, rows_NxF, matrices_ExFxO)[1](dy_NxO)


grouped.defvjp(
    lambda *kept: (_grouped(*kept), kept), lambda kept, dy_NxO: (*_gradients(*kept, dy_NxO), None)
)


class Stack(nnx.Module):
    """A matrix of each expert, applied in the activations' dtype."""

    def __init__(self, experts: int, fan_in: int, fan_out: int, std: float, rngs: nnx.Rngs):
        shape = experts, fan_in, fan_out
        self.kernel = nnx.Param(std * jax.random.normal(rngs.params(), shape))

    def __call__(self, rows_NxF, sizes_E):
        """See `grouped`."""
        return grouped(rows_NxF, self.kernel[...].astype(rows_NxF.dtype), sizes_E)


class Experts(nnx.Module):
    """MLPs of which each token passes the top k, and their router."""

    def __init__(self, config: Any, rngs: nnx.Rngs):
        self.config = config
        width, hidden, experts = config.d_model, config.d_ff, config.num_experts
        self.router = Linear(width, experts, width**-0.5, rngs)
        self.up = Stack(experts, width, hidden, width**-0.5, rngs)
        if config.activation == "swiglu":
            self.gate = Stack(experts, width, hidden, width**-0.5, rngs)
        out_std = (2 * config.num_layers * hidden) ** -0.5
        self.down = Stack(experts, hidden, width, out_std, rngs)

    def __call__(self, x_BxTxM, fused: bool = False):
        """What the experts add to the residual stream, and the load-balance loss, a float32 scalar.

        That is summed over the B·T targets; 1 for each where all experts have the same load.
        """
        B, T, M = x_BxTxM.shape
        k, E = self.config.top_k, self.config.num_experts
        scores_BxTxE = matmul(x_BxTxM.astype(jnp.float32), self.router.kernel[...])
        shares_BxTxE = jax.nn.softmax(scores_BxTxE, axis=-1)
        weights_BxTxk, chosen_BxTxk = jax.lax.top_k(shares_BxTxE, k)
        weights_BxTxk /= weights_BxTxk.sum(-1, keepdims=True)
        order_N = jnp.argsort(chosen_BxTxk.reshape(-1), stable=True)
        sizes_E = jnp.bincount(chosen_BxTxk.reshape(-1), length=E)
        rows_NxM = jnp.repeat(x_BxTxM.reshape(-1, M), k, axis=0)[order_N]
        gate = self.gate(rows_NxM, sizes_E) if self.config.activation == "swiglu" else None
        hidden = nonlinear(self.config.activation, self.up(rows_NxM, sizes_E), gate, fused)
        back_NxM = self.down(hidden, sizes_E)[jnp.argsort(order_N)]
        mixed_BxTxM = jnp.einsum(
            "btkm,btk->btm", back_NxM.reshape(B, T, k, M).astype(jnp.float32), weights_BxTxk
        )
        load_BxE = jax.nn.one_hot(chosen_BxTxk, E).sum((1, 2)) / (k * T)
        balance = E * T * jnp.sum(load_BxE * shares_BxTxE.mean(1))
        return mixed_BxTxM.astype(x_BxTxM.dtype), balance
