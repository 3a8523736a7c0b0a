"""The parts of a block: matrices, norms, the dense MLP, rotations.

A kernel with `fused=True` (see `attention.Kernel`) selects norms, rotations and a GELU that XLA
compiles for GPUs to few passes over memory, with custom gradients (derived here). The two sums of a
row are taken in one pass; everything else is elementwise and fuses with its neighbours. Nothing as
wide as a row is written in float32. Squares are summed around zero, not around the mean. The error
of this in float32 is below the rounding of bfloat16.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from bss.models.losses import matmul
from bss.models.transformer import TransformerConfig

Statistics = tuple[jax.Array, jax.Array]
"""The mean of each row (0 for RMSNorm) and the inverse standard deviation."""
Kept = tuple[jax.Array, jax.Array, Statistics]
"""What a norm keeps for its gradient: input, scale, statistics."""


class Linear(nnx.Module):
    """A matrix, applied in the activations' dtype."""

    def __init__(self, fan_in: int, fan_out: int, std: float, rngs: nnx.Rngs) -> None:
        self.kernel = nnx.Param(std * jax.random.normal(rngs.params(), (fan_in, fan_out)))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map the last axis from fan_in to fan_out."""
        return matmul(x, self.kernel[...])


class Norm(nnx.Module):
    """RMSNorm or LayerNorm over the last axis in float32, with a scale and no bias."""

    def __init__(self, kind: str, size: int) -> None:
        self.kind = kind
        self.scale = nnx.Param(jnp.ones(size))

    def __call__(self, x: jax.Array, fused: bool = False) -> jax.Array:
        """Return an array of the same shape and dtype; `fused` as in `attention.Kernel`."""
        if fused:
            return fused_norm(self.kind, x, self.scale[...])
        wide = x.astype(jnp.float32)
        if self.kind == "layer":
            wide = wide - wide.mean(-1, keepdims=True)
        inverse = jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-6)
        scale = jnp.expand_dims(self.scale[...], range(x.ndim - 1))
        return (wide * inverse * scale).astype(x.dtype)


class MLP(nnx.Module):
    """Two matrices around a nonlinearity, or SwiGLU's three."""

    def __init__(self, config: TransformerConfig, rngs: nnx.Rngs) -> None:
        self.activation = config.activation
        width = config.d_model
        hidden = config.d_ff
        self.up = Linear(width, hidden, width**-0.5, rngs)
        if config.activation == "swiglu":
            self.gate = Linear(width, hidden, width**-0.5, rngs)
        self.down = Linear(hidden, width, (2 * config.num_layers * hidden) ** -0.5, rngs)

    def __call__(self, x: jax.Array, fused: bool = False) -> tuple[jax.Array, None]:
        """Return the MLP's addition to the residual stream, and None: no load-balance loss.

        `fused` as in `attention.Kernel`.
        """
        hidden = self.up(x)
        gate = self.gate(x) if self.activation == "swiglu" else None
        return self.down(nonlinear(self.activation, hidden, gate, fused)), None


def nonlinear(activation: str, hidden: jax.Array, gate: Any, fused: bool) -> jax.Array:
    """Return the input of an MLP's last matrix; `gate` is SwiGLU's, else None."""
    if activation == "swiglu":
        return jax.nn.silu(gate) * hidden
    if activation == "gelu":
        return fused_gelu(hidden) if fused else jax.nn.gelu(hidden, approximate=False)
    return jnp.square(jax.nn.relu(hidden))


def rope(x_BxTxHxD: jax.Array, theta: float) -> jax.Array:
    """Rotate each pair (i, i + D/2) of a head by position · theta^(-2i/D) (2104.09864, eq. 34)."""
    _, T, _, D = x_BxTxHxD.shape
    cos, sin = rope_waves(T, D, theta)
    low, high = jnp.split(x_BxTxHxD.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
    return rotated.astype(x_BxTxHxD.dtype)


def rope_waves(length: int, dim: int, theta: float) -> tuple[np.ndarray, np.ndarray]:
    """Return cosine and sine of position · theta^(-2i/dim), float32 [1, length, 1, dim/2]."""
    angles = np.arange(length)[:, None] * theta ** (-np.arange(0, dim, 2) / dim)
    angles = angles[None, :, None, :]
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fused_norm(kind: str, x: jax.Array, scale: jax.Array) -> jax.Array:
    """Return the RMSNorm or LayerNorm over the last axis; same shape and dtype."""
    return _norm(kind, x, scale)[0]


def _norm(kind: str, x: jax.Array, scale: jax.Array) -> tuple[jax.Array, Kept]:
    statistics = _statistics(kind, x)
    return (_normal(x, statistics) * _wide(scale, x)).astype(x.dtype), (x, scale, statistics)


def _norm_gradients(kind: str, kept: Kept, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _through_norm(kind, kept, dy.astype(jnp.float32))


fused_norm.defvjp(_norm, _norm_gradients)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def fused_norm_rope(
    kind: str, theta: float, factor: float, x_BxTxHxD: jax.Array, scale_D: jax.Array
) -> jax.Array:
    """Return RoPE of the norm over each head, times a factor; same shape and dtype."""
    return _turned(kind, theta, factor, x_BxTxHxD, scale_D)[0]


def _turned(
    kind: str, theta: float, factor: float, x: jax.Array, scale: jax.Array
) -> tuple[jax.Array, Kept]:
    statistics = _statistics(kind, x)
    y = _turn(_normal(x, statistics) * _wide(factor * scale, x), theta)
    return y.astype(x.dtype), (x, scale, statistics)


def _turned_gradients(
    kind: str, theta: float, factor: float, kept: Kept, dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return _through_norm(kind, kept, factor * _turn(dy.astype(jnp.float32), theta, -1))


fused_norm_rope.defvjp(_turned, _turned_gradients)


def _turn(x_BxTxHxD: jax.Array, theta: float, sign: int = 1) -> jax.Array:
    """Apply RoPE or its inverse. A concatenation of halves would be a copy in XLA; `flip` fuses."""
    B, T, H, D = x_BxTxHxD.shape
    cos, sin = rope_waves(T, D, theta)
    pairs = x_BxTxHxD.reshape(B, T, H, 2, -1)
    sin_pairs = sign * np.stack([-sin, sin], axis=-2)
    turned = pairs * cos[..., None, :] + jnp.flip(pairs, -2) * sin_pairs
    return turned.reshape(B, T, H, D)


@jax.custom_vjp
def fused_gelu(x: jax.Array) -> jax.Array:
    """Return the exact GELU; its gradient is computed from its input alone."""
    return jax.nn.gelu(x, approximate=False)


def _gelu_gradient(x: jax.Array, dy: jax.Array) -> tuple[jax.Array]:
    wide = x.astype(jnp.float32)
    below = 0.5 * (1 + jax.lax.erf(wide * np.float32(0.5**0.5)))
    density = jnp.exp(-0.5 * jnp.square(wide)) * np.float32((2 * np.pi) ** -0.5)
    return (((below + wide * density) * dy.astype(jnp.float32)).astype(x.dtype),)


fused_gelu.defvjp(lambda x: (fused_gelu(x), x), _gelu_gradient)


def _statistics(kind: str, x: jax.Array) -> Statistics:
    """Return the mean of each row (0 for RMSNorm) and the inverse standard deviation."""
    wide = x.astype(jnp.float32)
    size = x.shape[-1]
    total, squares = _row_sums(wide, jnp.square(wide))
    mean = total / size if kind == "layer" else jnp.zeros_like(total)
    variance = jnp.maximum(squares / size - jnp.square(mean), 0)
    return jax.lax.optimization_barrier((mean, jax.lax.rsqrt(variance + 1e-6)))


def _normal(x: jax.Array, statistics: Statistics) -> jax.Array:
    mean, inverse = statistics
    return (x.astype(jnp.float32) - mean) * inverse


def _through_norm(kind: str, kept: Kept, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the gradients with respect to the input and the scale."""
    x, scale, statistics = kept
    normal = _normal(x, statistics)
    scaled = dy * _wide(scale, x)
    size = x.shape[-1]
    total, along = jax.lax.optimization_barrier(_row_sums(scaled, scaled * normal))
    mean = total / size if kind == "layer" else jnp.zeros_like(total)
    dx = (scaled - mean - normal * (along / size)) * statistics[1]
    return dx.astype(x.dtype), (dy * normal).sum(range(x.ndim - 1))


def _row_sums(one: jax.Array, other: jax.Array) -> list[jax.Array]:
    """Return the sums of both arrays over the last axis, [..., 1], in one pass."""
    zeros = np.float32(0), np.float32(0)
    sums = jax.lax.reduce((one, other), zeros, _both, (one.ndim - 1,))
    return [x[..., None] for x in sums]


def _both(one: Sequence[jax.Array], other: Sequence[jax.Array]) -> tuple[jax.Array, jax.Array]:
    return one[0] + other[0], one[1] + other[1]


def _wide(scale: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.expand_dims(scale, range(x.ndim - 1))
