"""A synthetic language: unlimited text made on the device, with a known minimum loss.

It is for accelerators, which read 30 MB of text in a minute. The language is log-bilinear (derived
here) and has three Zipfian scales. So a model's excess loss falls as a power law of the tokens:

- tokens: the logit of token v starts at -zipf·ln(v + 1). Rare tokens are learned late.
- modes: a prefix moves the logits by h·W_v. The standard deviations of the `rank` dimensions of h
  fall as j^-mode_decay. Weak modes are learned late.
- ranges: h sums leaky averages of the prefix, m ← m - m / 2^k + U_k[x], over about 2^k tokens.
  Each has a share 2^(-range_decay·k) of h's variance. Long ranges are learned late.

A transformer wider than `rank` can represent these logits. So its loss can approach L_0, the mean
conditional entropy of the targets 1…T given their prefix. Token 0 of a sequence has no prefix and
follows the first item.

All computation is integer arithmetic. Sequence i is bit-identical in every batch and on every
device, and `truth` returns exact ratios of integers.

Positions are below 2^64. Training counts from 0. Held-out data starts at 2^63: validation at
2^63, test at 3·2^62, the sequences that measure L_0 at 7·2^61.
"""

import functools
import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bss.data.log_bilinear import (
    SyntheticLanguage,
    Tables,
    blank,
    check_integer,
    levels,
    remember,
    tables,
)
from bss.errors import InputError

HELD_OUT = MappingProxyType({"validation": 1 << 63, "test": 3 << 62})
_ENTROPY = 7 << 61
_POSITIONS = 1 << 64
_ENTROPY_BLOCK = 1024


def multiply_high(a, b):
    """Return the upper 32 bits of the 64-bit product of two uint32, a type that JAX lacks."""
    a_high, a_low, b_high, b_low = a >> 16, a & 0xFFFF, b >> 16, b & 0xFFFF
    first = a_high * b_low + ((a_low * b_low) >> 16)
    second = a_low * b_high + (first & 0xFFFF)
    return a_high * b_high + (first >> 16) + (second >> 16)


@functools.partial(jax.jit, static_argnames="seq_len")
def generate(tables: Tables, high_n, low_n, seq_len: int) -> jax.Array:
    """Return the sequences at positions 2^32·high + low; it can be called inside jit.

    Each draws 32 random bits per token, from the key folded with high, then low; both are uint32.

    Returns:
        int32 (n, seq_len + 1); inputs are [:, :-1], targets [:, 1:].
    """

    def bits(high, low):
        key = jax.random.fold_in(jax.random.fold_in(tables.key, high), low)
        return jax.random.bits(key, (seq_len + 1,))

    def step(memory_nxRxD, bits_n):
        weights_nxV = tables.weights[levels(tables, memory_nxRxD)]
        reached_nxV = jnp.cumsum(weights_nxV, axis=1)
        drawn_n = multiply_high(bits_n, reached_nxV[:, -1])
        token_n = jnp.sum(reached_nxV <= drawn_n[:, None], axis=1, dtype=jnp.int32)
        return remember(tables, memory_nxRxD, token_n), token_n

    bits_nxT1 = jax.vmap(bits)(high_n, low_n)
    _, tokens_T1xn = jax.lax.scan(step, blank(tables, len(high_n)), bits_nxT1.T)
    return tokens_T1xn.T


@jax.jit
def truth(tables: Tables, sequences_nxT1) -> tuple[jax.Array, jax.Array]:
    """Return the true log-probabilities of the targets and the conditional entropies.

    On a held-out set, minus the mean log-probability is the loss of a perfect model on this set.
    Compare a model's loss with it; it differs from L_0 by the sampling of the set.

    Returns:
        float32 (n, T) log-probabilities of the targets, and (n, T) conditional entropies, in nats.
    """
    weights = tables.weights.astype(jnp.float32)
    logs = jnp.log(weights)

    def step(memory_nxRxD, pair):
        token_n, target_n = pair
        memory_nxRxD = remember(tables, memory_nxRxD, token_n)
        levels_nxV = levels(tables, memory_nxRxD)
        weights_nxV, logs_nxV = weights[levels_nxV], logs[levels_nxV]
        total_n = weights_nxV.sum(1)
        entropy_n = jnp.log(total_n) - (weights_nxV * logs_nxV).sum(1) / total_n
        target_log_n = jnp.take_along_axis(logs_nxV, target_n[:, None], axis=1)[:, 0]
        return memory_nxRxD, (target_log_n - jnp.log(total_n), entropy_n)

    pairs = (sequences_nxT1[:, :-1].T, sequences_nxT1[:, 1:].T)
    _, (log_TxN, entropy_TxN) = jax.lax.scan(step, blank(tables, len(sequences_nxT1)), pairs)
    return log_TxN.T, entropy_TxN.T


def sequences(language: SyntheticLanguage, position: int, count: int) -> jax.Array:
    """Return the sequences at [position, position + count), int32 (count, seq_len + 1).

    Raises:
        InputError: If positions lie outside 0 to 2^64.
    """
    if position < 0 or count < 1 or position + count > _POSITIONS:
        raise InputError(
            f"position={position}, count={count}: expected at least one sequence, within 0 to 2^64"
        )
    return at(language, np.uint64(position) + np.arange(count, dtype=np.uint64))


def at(language: SyntheticLanguage, places_n: np.ndarray) -> jax.Array:
    """Return the sequences at positions, uint64 (n,), in any order; see `sequences`."""
    high_n, low_n = (places_n >> np.uint64(32)).astype(np.uint32), places_n.astype(np.uint32)
    return generate(tables(language), high_n, low_n, language.seq_len)


def held_out(
    language: SyntheticLanguage, split: str, tokens: int, rows: Sequence[int] | None = None
) -> np.ndarray:
    """Return fixed sequences of "validation" or "test", the same for every run on this language.

    Returns:
        int32 (tokens // seq_len, seq_len + 1), or only the ones that are numbered in `rows`.

    Raises:
        InputError: If the split is unknown, or fewer than one sequence is requested.
    """
    if split not in HELD_OUT:
        raise InputError(f"split={split!r}: expected one of {', '.join(HELD_OUT)}")
    if tokens < language.seq_len:
        raise InputError(
            f"evaluation.tokens: {tokens} are less than one sequence; "
            f"expected {language.seq_len} or more"
        )
    numbers = np.arange(tokens // language.seq_len) if rows is None else np.asarray(rows)
    return np.asarray(at(language, np.uint64(HELD_OUT[split]) + numbers.astype(np.uint64)))


class Entropy(NamedTuple):
    """L_0 and the standard error of its Monte Carlo mean, in nats."""

    nats: float
    standard_error: float


def entropy(language: SyntheticLanguage, *, sequences: int = 65_536) -> Entropy:
    """Return L_0, the mean conditional entropy of targets 1…T given their prefix, in nats per
    token.

    It is a Monte Carlo mean over prefixes of the exact entropy after each. The standard error is
    0.0008 nats by default for the default language at V = 256, T = 128 (25 s on one CPU core). The
    number of sequences, 1 or more, is rounded up to whole blocks of 1024. Their range of positions
    is neither trained nor evaluated on.
    """
    check_integer("sequences", sequences, 1)
    law = tables(language)
    means = []
    for start in range(0, sequences, _ENTROPY_BLOCK):
        places_n = np.uint64(_ENTROPY + start) + np.arange(_ENTROPY_BLOCK, dtype=np.uint64)
        _, entropy_nxT = truth(law, at(language, places_n))
        means.append(np.asarray(entropy_nxT, np.float64).mean(1))
    means = np.concatenate(means)
    return Entropy(float(means.mean()), float(means.std(ddof=1) / math.sqrt(len(means))))
