"""The loss of the head, by chunks of tokens if the logits of all tokens need too much memory.

The gradient of a chunk is computed together with its loss, while its logits are in memory. So no
logits are kept for the backward pass, and none are computed twice. The derivative is softmax minus
one-hot. The vocabulary is padded with tokens of probability zero. Otherwise a GPU copies every
chunk to the width that its products need, which makes a step of 85M 1.05 times slower.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bss.models.base import DEFAULT_HEAD, LOGITS_AT_ONCE, Head

_MANY_ROWS = 256
_LANES = 128
"""Products are fast if the vocabulary is a multiple of this."""
_LEAST = np.float32(np.finfo(np.float32).min)
_ZEROS = np.float32(0), np.float32(0)
_BFLOAT16 = 8, 7
"""Bits of the exponent and of the mantissa."""


class _How(NamedTuple):
    """How the loss of the head is computed.

    Attributes:
        fused: read the logits of a chunk once for its loss, not once per sum; see
            `attention.Kernel`.
        settings: of the head.
    """

    fused: bool = False
    settings: Head = DEFAULT_HEAD

    def chunk(self, vocab: int) -> int:
        """Return the tokens of a chunk."""
        most = (self.settings.chunk_logits or LOGITS_AT_ONCE) // vocab
        return 1 << (max(most, 1).bit_length() - 1)

    def logits(self, x_NxM: jax.Array, head_MxV: jax.Array) -> jax.Array:
        """Return the logits as they are kept in memory."""
        dtype = jnp.dtype(self.settings.logits_dtype)
        return matmul(x_NxM, head_MxV, dtype).astype(dtype)


def _read(logits: jax.Array) -> jax.Array:
    """Return logits in float32.

    A compiler that computes them in float32 may drop the rounding to bfloat16, so it is repeated.
    """
    if logits.dtype == jnp.float32:
        return logits
    return jax.lax.reduce_precision(logits.astype(jnp.float32), *_BFLOAT16)


def matmul(x: jax.Array, matrix: jax.Array, dtype: Any = None) -> jax.Array:
    """Multiply the last axis of `x` by a matrix cast to its dtype; the result has dtype `dtype`."""
    # XLA's CPU backend is 1.2 times slower on a left side of three axes than on one of two.
    flat = x.reshape(-1, x.shape[-1])
    if x.dtype == matrix.dtype == jnp.float32:
        product = _product(flat, matrix)
    else:
        product = jnp.matmul(flat, matrix.astype(x.dtype), preferred_element_type=dtype)
    return product.reshape(*x.shape[:-1], -1)


@jax.custom_vjp
def _product(x_NxF: jax.Array, matrix_FxO: jax.Array) -> jax.Array:
    return x_NxF @ matrix_FxO


def _gradients(kept: tuple[jax.Array, jax.Array], y_NxO: jax.Array) -> tuple[jax.Array, jax.Array]:
    x_NxF, matrix_FxO = kept
    gradient_FxO = jax.lax.platform_dependent(x_NxF, y_NxO, cpu=_summed_on_cpu, default=_summed)
    return y_NxO @ matrix_FxO.T, gradient_FxO


_product.defvjp(lambda x_NxF, matrix_FxO: (x_NxF @ matrix_FxO, (x_NxF, matrix_FxO)), _gradients)


def _summed(x_NxF: jax.Array, y_NxO: jax.Array) -> jax.Array:
    return x_NxF.T @ y_NxO


def _summed_on_cpu(x_NxF: jax.Array, y_NxO: jax.Array) -> jax.Array:
    """Return the product: XLA on CPUs sums many rows twice as fast if the right side is wide."""
    if len(x_NxF) < _MANY_ROWS or x_NxF.shape[1] <= y_NxO.shape[1]:
        return _summed(x_NxF, y_NxO)
    # The barrier keeps the compiler from swapping the sides back.
    return jax.lax.optimization_barrier(y_NxO.T @ x_NxF).T


def cross_entropy(
    x_BxTxM: jax.Array,
    head_MxV: jax.Array,
    targets_BxT: jax.Array,
    fused: bool = False,
    settings: Head = DEFAULT_HEAD,
) -> jax.Array:
    """Return the cross-entropy of the targets in nats, summed, a float32 scalar.

    Args:
        x_BxTxM: activations.
        head_MxV: the float32 matrix from activations to logits.
        targets_BxT: integer tokens.
        fused: as in `_How`.
        settings: of the head.
    """
    how = _How(fused, settings)
    width, vocab = head_MxV.shape
    if targets_BxT.size * vocab <= LOGITS_AT_ONCE:
        logits_BxTxV = _read(how.logits(x_BxTxM, head_MxV))
        normaliser_BxT = jax.nn.logsumexp(logits_BxTxV, axis=-1)
        return jnp.sum(normaliser_BxT - _picked(logits_BxTxV, targets_BxT))
    return _in_chunks(how, x_BxTxM.reshape(-1, width), head_MxV, targets_BxT.reshape(-1))


def cross_entropies(
    x_BxTxM: jax.Array,
    head_MxV: jax.Array,
    targets_BxT: jax.Array,
    fused: bool = False,
    settings: Head = DEFAULT_HEAD,
) -> tuple[jax.Array, jax.Array]:
    """Return `cross_entropy`, bit by bit, and its terms [B, T]; without a gradient."""
    how = _How(fused, settings)
    width, vocab = head_MxV.shape
    if targets_BxT.size * vocab <= LOGITS_AT_ONCE:
        parts = _parts(_read(how.logits(x_BxTxM, head_MxV)), targets_BxT)
        # Computed separately, so that the sum is compiled as in `cross_entropy` and has its bits.
        return jnp.sum(_each(*parts)), _each(*jax.lax.optimization_barrier(parts))
    flat = x_BxTxM.reshape(-1, width), head_MxV, targets_BxT.reshape(-1)
    total, losses_Nx1 = _chunk_by_chunk(how, *flat)
    return total, losses_Nx1.reshape(targets_BxT.shape)


def _parts(
    logits_BxTxV: jax.Array, targets_BxT: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return for each target the largest logit, the sum of exponentials below it, and its own
    logit.
    """
    largest_BxT = jnp.max(logits_BxTxV, axis=-1)
    largest_BxT = jnp.where(jnp.isfinite(largest_BxT), largest_BxT, 0)
    sum_BxT = jnp.exp(logits_BxTxV - largest_BxT[..., None]).sum(-1)
    return largest_BxT, sum_BxT, _picked(logits_BxTxV, targets_BxT)


def _each(largest_BxT: jax.Array, sum_BxT: jax.Array, picked_BxT: jax.Array) -> jax.Array:
    return jnp.log(sum_BxT) + largest_BxT - picked_BxT


def _picked(logits_BxTxV: jax.Array, targets_BxT: jax.Array) -> jax.Array:
    return jnp.take_along_axis(logits_BxTxV, targets_BxT[..., None], axis=-1)[..., 0]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _in_chunks(how: _How, x_NxM: jax.Array, head_MxV: jax.Array, targets_N: jax.Array) -> jax.Array:
    return _chunk_by_chunk(how, x_NxM, head_MxV, targets_N)[0]


def _chunk_by_chunk(
    how: _How, x_NxM: jax.Array, head_MxV: jax.Array, targets_N: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the loss and the loss of each target, [N, 1]."""
    vocab = head_MxV.shape[1]
    head_MxW = _filled_up(head_MxV.astype(x_NxM.dtype))

    def add(
        total: jax.Array, x_nxM: jax.Array, targets_n: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        losses_n = _losses(how, x_nxM, head_MxW, vocab, targets_n)[0]
        return total + losses_n.sum(), losses_n[:, None]

    return _each_chunk(add, jnp.zeros(()), x_NxM, targets_N, how.chunk(vocab))


def _with_gradients(
    how: _How, x_NxM: jax.Array, head_MxV: jax.Array, targets_N: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Return the loss, and its gradients for the backward pass."""
    vocab = head_MxV.shape[1]
    head_MxW = _filled_up(head_MxV.astype(x_NxM.dtype))

    def add(
        sums: tuple[jax.Array, jax.Array], x_nxM: jax.Array, targets_n: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        total, head_gradient_MxW = sums
        losses_n, logits_nxW, normaliser_n = _losses(how, x_nxM, head_MxW, vocab, targets_n)
        one_hot_nxW = jax.nn.one_hot(targets_n, head_MxW.shape[1])
        gradient_nxW = jnp.exp(_read(logits_nxW) - normaliser_n[:, None]) - one_hot_nxW
        gradient_nxW = gradient_nxW.astype(x_nxM.dtype)
        head_gradient_MxW += jnp.matmul(x_nxM.T, gradient_nxW, preferred_element_type=jnp.float32)
        return (total + losses_n.sum(), head_gradient_MxW), gradient_nxW @ head_MxW.T

    zero = jnp.zeros(()), jnp.zeros(head_MxW.shape)
    (total, head_gradient_MxW), x_gradient_NxM = _each_chunk(
        add, zero, x_NxM, targets_N, how.chunk(vocab)
    )
    return total, (x_gradient_NxM, head_gradient_MxW[:, :vocab])


def _scaled(
    how: _How, gradients: tuple[jax.Array, ...], scale: jax.Array
) -> tuple[jax.Array | None, ...]:
    return *(gradient * scale.astype(gradient.dtype) for gradient in gradients), None


_in_chunks.defvjp(_with_gradients, _scaled)


def _filled_up(head_MxV: jax.Array) -> jax.Array:
    return jnp.pad(head_MxV, ((0, 0), (0, -head_MxV.shape[1] % _LANES)))


def _losses(
    how: _How, x_nxM: jax.Array, head_MxW: jax.Array, vocab: int, targets_n: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return for each target its loss, its logits and the logarithm of its normaliser."""
    logits_nxW = how.logits(x_nxM, head_MxW)
    if (filled_up := head_MxW.shape[1]) > vocab:
        logits_nxW = jnp.where((jnp.arange(filled_up) < vocab)[None], logits_nxW, -jnp.inf)
    read_nxW = _read(logits_nxW)
    if how.fused:
        normaliser_n, picked_n = _in_one_pass(read_nxW, targets_n)
    else:
        normaliser_n = jax.nn.logsumexp(read_nxW, axis=-1)
        picked_n = _picked(read_nxW, targets_n)
    return normaliser_n - picked_n, logits_nxW, normaliser_n


def _in_one_pass(logits_nxW: jax.Array, targets_n: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the normaliser and the target's logit, by sums relative to a running maximum."""

    def joined(
        one: Sequence[jax.Array], other: Sequence[jax.Array]
    ) -> tuple[jax.Array, Any, jax.Array]:
        largest = jnp.maximum(one[0], other[0])
        sums = (sum_ * jnp.exp(top - largest) for top, sum_, _ in (one, other))
        return largest, sum(sums), one[2] + other[2]

    is_target_nxW = jnp.arange(logits_nxW.shape[1])[None] == targets_n[:, None]
    picked_nxW = jnp.where(is_target_nxW, logits_nxW, 0)
    # The difference of two minus infinities is undefined.
    terms = jnp.maximum(logits_nxW, _LEAST), jnp.ones_like(logits_nxW), picked_nxW
    none = _LEAST, *_ZEROS
    largest_n, sum_n, picked_n = jax.lax.reduce(terms, none, joined, (1,))
    return jnp.log(sum_n) + largest_n, picked_n


def _each_chunk(
    add: Callable[..., Any], sums: Any, x_NxM: jax.Array, targets_N: jax.Array, size: int
) -> Any:
    """Return the sums over chunks of `size` tokens, and the joined results of `add`.

    The tokens after the last complete chunk form a smaller chunk.
    """
    whole = len(targets_N) // size * size
    chunks = x_NxM[:whole].reshape(-1, size, x_NxM.shape[1]), targets_N[:whole].reshape(-1, size)
    sums, outputs = jax.lax.scan(lambda sums, chunk: add(sums, *chunk), sums, chunks)
    outputs = jax.tree.map(lambda parts: parts.reshape(whole, -1), outputs)
    if whole < len(targets_N):
        sums, last = add(sums, x_NxM[whole:], targets_N[whole:])
        outputs = jax.tree.map(lambda *parts: jnp.concatenate(parts), outputs, last)
    return sums, outputs
