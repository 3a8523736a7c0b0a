"""A mixture of experts instead of an MLP: no token is dropped, whatever the load.

The router's softmax over all experts is cut to the top k and normalised again (as in Qwen3,
2505.09388). Tokens are sorted by expert and padded to blocks of one expert each. So the products
need no custom kernel (dropless, as Gale et al., 2211.15841); `jax.lax.ragged_dot` of jax 0.10.2
multiplies every row by every expert. The load-balance loss follows Switch Transformers (Fedus et
al., 2101.03961, eqs. 4 to 6), computed per sequence (DeepSeek-V3, 2412.19437, eqs. 17 to 20). A sum
over sequences does not depend on how a batch is split into micro-batches and devices.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from bss.models.losses import matmul
from bss.models.parts import Linear, nonlinear
from bss.models.transformer import MixtureConfig, block_shape


class Blocks(NamedTuple):
    """The assignment of rows to blocks of one expert each: the expert's number, and both orders.

    Unused places in blocks take row N, which does not exist.
    """

    expert_n: jax.Array
    there_P: jax.Array
    back_N: jax.Array

    @classmethod
    def of(cls, chosen_N: jax.Array, experts: int) -> "Blocks":
        """Return the blocks of rows, given the number of each row's expert."""
        N = len(chosen_N)
        n, size = block_shape(N, experts)
        rows_E = jnp.bincount(chosen_N, length=experts)
        blocks_E = -(-rows_E // size)
        end_E = jnp.cumsum(blocks_E)
        expert_n = jnp.searchsorted(end_E[:-1], jnp.arange(n), "right", method="compare_all")
        order_N = jnp.argsort(chosen_N, stable=True)
        # From a place in the sorted order to a place in blocks.
        shift_E = size * (end_E - blocks_E) - (jnp.cumsum(rows_E) - rows_E)
        places_N = jnp.arange(N) + shift_E[chosen_N[order_N]]
        there_P = jnp.full(n * size, N).at[places_N].set(order_N, unique_indices=True)
        back_N = jnp.zeros(N, int).at[order_N].set(places_N, unique_indices=True)
        return cls(expert_n, there_P, back_N)

    def rows(self, rows_NxF: jax.Array) -> jax.Array:
        """Return rows as blocks, [n, P/n, F], with zeros in unused places."""
        return _moved(rows_NxF, self.there_P, self.back_N).reshape(
            len(self.expert_n), -1, rows_NxF.shape[-1]
        )

    def undo(self, blocks_nxbxF: jax.Array) -> jax.Array:
        """Return blocks as rows, [N, F]."""
        flat_PxF = blocks_nxbxF.reshape(-1, blocks_nxbxF.shape[-1])
        return _moved(flat_PxF, self.back_N, self.there_P)


@jax.custom_vjp
def _moved(rows_NxF: jax.Array, there_P: jax.Array, back_N: jax.Array) -> jax.Array:
    return rows_NxF.at[there_P].get(mode="fill", fill_value=0)


# The inverse order is the gradient, so that nothing is summed by place.
_moved.defvjp(
    lambda rows_NxF, there_P, back_N: (_moved(rows_NxF, there_P, back_N), (back_N, there_P)),
    lambda back, dy_PxF: (_moved(dy_PxF, *back), None, None),
)


@jax.checkpoint
def grouped(blocks_nxbxF: jax.Array, matrices_ExFxO: jax.Array, expert_n: jax.Array) -> jax.Array:
    """Multiply each block by its expert's matrix, [n, b, O]; matrices are not copied for the
    gradient.

    The gradient of a matrix is summed over blocks in float32.
    """
    each_nxFxO = matrices_ExFxO.astype(jnp.float32)[expert_n].astype(blocks_nxbxF.dtype)
    return jnp.einsum("nbf,nfo->nbo", blocks_nxbxF, each_nxFxO)


class Stack(nnx.Module):
    """One matrix per expert, applied in the activations' dtype."""

    def __init__(self, experts: int, fan_in: int, fan_out: int, std: float, rngs: nnx.Rngs) -> None:
        shape = experts, fan_in, fan_out
        self.kernel = nnx.Param(std * jax.random.normal(rngs.params(), shape))

    def __call__(self, blocks_nxbxF: jax.Array, expert_n: jax.Array) -> jax.Array:
        """See `grouped`."""
        return grouped(blocks_nxbxF, self.kernel[...], expert_n)


class Experts(nnx.Module):
    """MLPs with a router; each token passes the top k of them."""

    def __init__(self, config: MixtureConfig, rngs: nnx.Rngs) -> None:
        self.config = config
        width = config.d_model
        hidden = config.d_ff
        experts = config.num_experts
        self.router = Linear(width, experts, width**-0.5, rngs)
        self.up = Stack(experts, width, hidden, width**-0.5, rngs)
        if config.activation == "swiglu":
            self.gate = Stack(experts, width, hidden, width**-0.5, rngs)
        out_std = (2 * config.num_layers * hidden) ** -0.5
        self.down = Stack(experts, hidden, width, out_std, rngs)

    def __call__(self, x_BxTxM: jax.Array, fused: bool = False) -> tuple[jax.Array, jax.Array]:
        """Return the addition to the residual stream, and the load-balance loss, a float32 scalar.

        The load-balance loss is summed over the B·T targets; it is 1 per target if all experts have
        the same load.
        """
        B, T, M = x_BxTxM.shape
        k = self.config.top_k
        E = self.config.num_experts
        scores_BxTxE = matmul(x_BxTxM.astype(jnp.float32), self.router.kernel[...])
        shares_BxTxE = jax.nn.softmax(scores_BxTxE, axis=-1)
        weights_BxTxk, chosen_BxTxk = jax.lax.top_k(shares_BxTxE, k)
        weights_BxTxk /= weights_BxTxk.sum(-1, keepdims=True)
        blocks = Blocks.of(chosen_BxTxk.reshape(-1), E)
        each_nxbxM = blocks.rows(jnp.repeat(x_BxTxM.reshape(-1, M), k, axis=0))
        experts = blocks.expert_n
        gate = self.gate(each_nxbxM, experts) if self.config.activation == "swiglu" else None
        hidden = nonlinear(self.config.activation, self.up(each_nxbxM, experts), gate, fused)
        back_NxM = blocks.undo(self.down(hidden, experts))
        mixed_BxTxM = jnp.einsum(
            "btkm,btk->btm", back_NxM.reshape(B, T, k, M).astype(jnp.float32), weights_BxTxk
        )
        load_BxE = jax.nn.one_hot(chosen_BxTxk, E).sum((1, 2)) / (k * T)
        balance = E * T * jnp.sum(load_BxE * shares_BxTxE.mean(1))
        return mixed_BxTxM.astype(x_BxTxM.dtype), balance
