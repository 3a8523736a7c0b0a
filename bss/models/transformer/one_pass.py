"""What lies between the products of a block, in as few passes over memory as XLA makes on a GPU.

Norms, rotations and the GELU as in `layers`, up to the rounding of bfloat16, with gradients of
their own (derived here). A row's two sums are taken at once and held, one number a row; all else is
then element by element, and fuses with what is beside it, the gradients of scales with those of
activations. Nothing as wide as a row is written in float32. Squares are summed beside the mean, not
around it: what that loses in float32 is below what bfloat16 had lost before.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np


def waves(length: int, dim: int, theta: float) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of position · theta^(-2i/dim), float32 [1, length, 1, dim/2]."""
    angles = np.arange(length)[:, None] * theta ** (-np.arange(0, dim, 2) / dim)
    cos, sin = (f(angles)[None, :, None, :].astype(np.float32) for f in (np.cos, np.sin))
    return cos, sin


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def norm(kind: str, x, scale):
    """RMSNorm or LayerNorm over the last axis; same shape and dtype."""
    return _norm(kind, x, scale)[0]


def _norm(kind, x, scale):
    statistics = _statistics(kind, x)
    return (_normal(x, statistics) * _wide(scale, x)).astype(x.dtype), (x, scale, statistics)


def _norm_gradients(kind, kept, dy):
    return _through_norm(kind, kept, dy.astype(jnp.float32))


norm.defvjp(_norm, _norm_gradients)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def turned(kind: str, theta: float, factor: float, x_BxTxHxD, scale_D):
    """RoPE of the norm over each head, times a factor; same shape and dtype."""
    return _turned(kind, theta, factor, x_BxTxHxD, scale_D)[0]


def _turned(kind, theta, factor, x, scale):
    statistics = _statistics(kind, x)
    y = _turn(_normal(x, statistics) * _wide(factor * scale, x), theta)
    return y.astype(x.dtype), (x, scale, statistics)


def _turned_gradients(kind, theta, factor, kept, dy):
    return _through_norm(kind, kept, factor * _turn(dy.astype(jnp.float32), theta, -1))


turned.defvjp(_turned, _turned_gradients)


def _turn(x_BxTxHxD, theta, sign=1):
    """RoPE, or back; the halves meet in reverse order, as XLA makes an array of those it joins."""
    B, T, H, D = x_BxTxHxD.shape
    cos, sin = (wave[..., None, :] for wave in waves(T, D, theta))
    pairs = x_BxTxHxD.reshape(B, T, H, 2, -1)
    sin = sign * np.concatenate([-sin, sin], axis=-2)
    return (pairs * cos + jnp.flip(pairs, -2) * sin).reshape(B, T, H, D)


@jax.custom_vjp
def gelu(x):
    """The exact GELU; its gradient is made of what it was given alone."""
    return jax.nn.gelu(x, approximate=False)


def _gelu_gradient(x, dy):
    wide = x.astype(jnp.float32)
    below = 0.5 * (1 + jax.lax.erf(wide * np.float32(0.5**0.5)))
    density = jnp.exp(-0.5 * jnp.square(wide)) * np.float32((2 * np.pi) ** -0.5)
    return (((below + wide * density) * dy.astype(jnp.float32)).astype(x.dtype),)


gelu.defvjp(lambda x: (gelu(x), x), _gelu_gradient)


def _statistics(kind, x):
    """Of each row its mean, 0 where none is taken off, and the inverse of its deviation."""
    wide, size = x.astype(jnp.float32), x.shape[-1]
    total, squares = _row_sums(wide, jnp.square(wide))
    mean = total / size if kind == "layer" else jnp.zeros_like(total)
    variance = jnp.maximum(squares / size - jnp.square(mean), 0)
    return jax.lax.optimization_barrier((mean, jax.lax.rsqrt(variance + 1e-6)))


def _normal(x, statistics):
    mean, inverse = statistics
    return (x.astype(jnp.float32) - mean) * inverse


def _through_norm(kind, kept, dy):
    """Gradients by what was normalised and by the scale."""
    x, scale, statistics = kept
    normal, scaled, size = _normal(x, statistics), dy * _wide(scale, x), x.shape[-1]
    total, along = jax.lax.optimization_barrier(_row_sums(scaled, scaled * normal))
    mean = total / size if kind == "layer" else jnp.zeros_like(total)
    dx = (scaled - mean - normal * (along / size)) * statistics[1]
    return dx.astype(x.dtype), (dy * normal).sum(range(x.ndim - 1))


def _row_sums(one, other):
    """Of both the sum over the last axis, [..., 1], in one pass."""
    zeros = np.float32(0), np.float32(0)
    sums = jax.lax.reduce((one, other), zeros, _both, (one.ndim - 1,))
    return [x[..., None] for x in sums]


def _both(one, other):
    return one[0] + other[0], one[1] + other[1]


def _wide(scale, x):
    return jnp.expand_dims(scale, range(x.ndim - 1))
