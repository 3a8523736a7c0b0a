"""The parts of a block that know no position: matrices, norms and the MLP."""

import jax
import jax.numpy as jnp
from flax import nnx

from bss.models.transformer import one_pass
from bss.models.transformer.shape import Shape

_MANY_ROWS = 256


def matmul(x, matrix, dtype=None):
    """Multiply the last axis of `x` by a matrix cast to its dtype; a result of `dtype`."""
    # XLA's CPU backend is 1.2 times slower on a left side of three axes than on one of two.
    flat = x.reshape(-1, x.shape[-1])
    if x.dtype == matrix.dtype == jnp.float32:
        product = _product(flat, matrix)
    else:
        product = jnp.matmul(flat, matrix.astype(x.dtype), preferred_element_type=dtype)
    return product.reshape(*x.shape[:-1], -1)


@jax.custom_vjp
def _product(x_NxF, matrix_FxO):
    return x_NxF @ matrix_FxO


def _gradients(kept, y_NxO):
    x_NxF, matrix_FxO = kept
    gradient_FxO = jax.lax.platform_dependent(x_NxF, y_NxO, cpu=_summed_on_cpu, default=_summed)
    return y_NxO @ matrix_FxO.T, gradient_FxO


_product.defvjp(lambda x_NxF, matrix_FxO: (x_NxF @ matrix_FxO, (x_NxF, matrix_FxO)), _gradients)


def _summed(x_NxF, y_NxO):
    return x_NxF.T @ y_NxO


def _summed_on_cpu(x_NxF, y_NxO):
    """The same: XLA's CPU backend sums many rows twice as fast where the right side is wide."""
    if len(x_NxF) < _MANY_ROWS or x_NxF.shape[1] <= y_NxO.shape[1]:
        return _summed(x_NxF, y_NxO)
    # The barrier keeps the compiler from swapping the sides back.
    return jax.lax.optimization_barrier(y_NxO.T @ x_NxF).T


class Linear(nnx.Module):
    """A matrix, applied in the activations' dtype."""

    def __init__(self, fan_in: int, fan_out: int, std: float, rngs: nnx.Rngs):
        self.kernel = nnx.Param(std * jax.random.normal(rngs.params(), (fan_in, fan_out)))

    def __call__(self, x):
        """Last axis fan_in to fan_out."""
        return matmul(x, self.kernel[...])


class Norm(nnx.Module):
    """RMSNorm or LayerNorm over the last axis in float32, with a scale and no bias."""

    def __init__(self, kind: str, size: int):
        self.kind = kind
        self.scale = nnx.Param(jnp.ones(size))

    def __call__(self, x, fused: bool = False):
        """Same shape and dtype; `fused` as in `attention.Kernel`."""
        if fused:
            return one_pass.norm(self.kind, x, self.scale[...])
        wide = x.astype(jnp.float32)
        if self.kind == "layer":
            wide = wide - wide.mean(-1, keepdims=True)
        inverse = jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-6)
        scale = jnp.expand_dims(self.scale[...], range(x.ndim - 1))
        return (wide * inverse * scale).astype(x.dtype)


class MLP(nnx.Module):
    """Two matrices around a nonlinearity, or SwiGLU's three."""

    def __init__(self, config: Shape, rngs: nnx.Rngs):
        self.activation = config.activation
        width, hidden = config.d_model, config.d_ff
        self.up = Linear(width, hidden, width**-0.5, rngs)
        if config.activation == "swiglu":
            self.gate = Linear(width, hidden, width**-0.5, rngs)
        self.down = Linear(hidden, width, (2 * config.num_layers * hidden) ** -0.5, rngs)

    def __call__(self, x, fused: bool = False):
        """What the MLP adds to the residual stream, and that nothing is minimised besides.

        `fused` as in `attention.Kernel`.
        """
        hidden = self.up(x)
        gate = self.gate(x) if self.activation == "swiglu" else None
        return self.down(nonlinear(self.activation, hidden, gate, fused)), None


def nonlinear(activation: str, hidden, gate, fused: bool):
    """What the last matrix of an MLP is given; `gate` is SwiGLU's."""
    if activation == "swiglu":
        return jax.nn.silu(gate) * hidden
    if activation == "gelu":
        return one_pass.gelu(hidden) if fused else jax.nn.gelu(hidden, approximate=False)
    return jnp.square(jax.nn.relu(hidden))
