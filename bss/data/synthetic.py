"""A synthetic language: endless text made on the device, whose best possible loss is known.

For accelerators, which read 30 MB of text in a minute. The law is log-bilinear (derived here), with
three Zipfian scales, so that a model's loss above the truth falls as a power law of the tokens:

- tokens: the logit of token v starts at -zipf·ln(v + 1); rare tokens are learned late;
- modes: a prefix moves the logits by h·W_v, with h of `rank` dimensions whose standard deviations
  fall as j^-mode_decay; weak modes are learned late;
- ranges: h sums leaky averages of the prefix, m ← m - m / 2^k + U_k[x], each over about 2^k
  tokens, with a share 2^(-range_decay·k) of h's variance; far ranges are learned late.

The logits have `rank` dimensions and h is a weighted sum over the prefix, both within reach of a
transformer wider than `rank`: its loss can approach L_0, the mean conditional entropy of the
targets 1…T given their prefix. Token 0 of a sequence has no prefix and follows the first line.

The law is integer arithmetic: sequence i is the same to the bit in every batch and on every
device, and its probabilities are ratios of integers that `truth` reads off.

Positions are below 2^64. Training counts from 0; held-out data lies from 2^63 on: validation at
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
    """Return the upper 32 of the 64 bits of a product of uint32, which JAX has no wider type for."""
    a_high, a_low, b_high, b_low = a >> 16, a & 0xFFFF, b >> 16, b & 0xFFFF
    first = a_high * b_low + ((a_low * b_low) >> 16)
    second = a_low * b_high + (first & 0xFFFF)
    return a_high * b_high + (first >> 16) + (second >> 16)


@functools.partial(jax.jit, static_argnames="seq_len")
def generate(tables: Tables, high_n, low_n, seq_len: int) -> jax.Array:
    """Return the sequences at positions 2^32·high + low; jitted, and callable inside other
    programs.

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
    """What the predictor that knows the law says of each target given its prefix.

    On held-out sequences, minus the mean log-probability is the loss of a perfect model on that
    very set, which is what a model's loss there is to be compared with; it differs from L_0 by the
    sampling of the set.

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
    """Return the sequences at [position, position + count): int32 (count, seq_len + 1) on the
    device.

    Raises:
        InputError: positions outside 0 to 2^64.
    """
    if position < 0 or count < 1 or position + count > _POSITIONS:
        raise InputError(
            f"position={position}, count={count}: expected at least one sequence, within 0 to 2^64"
        )
    return at(language, np.uint64(position) + np.arange(count, dtype=np.uint64))


def at(language: SyntheticLanguage, places_n: np.ndarray) -> jax.Array:
    """Return the sequences at positions, uint64 (n,), that need not be neighbours; as `sequences`."""
    high_n, low_n = (places_n >> np.uint64(32)).astype(np.uint32), places_n.astype(np.uint32)
    return generate(tables(language), high_n, low_n, language.seq_len)


def held_out(
    language: SyntheticLanguage, split: str, tokens: int, rows: Sequence[int] | None = None
) -> np.ndarray:
    """Fixed sequences of "validation" or "test", the same for every run on this language.

    Returns:
        int32 (tokens // seq_len, seq_len + 1), or those of them that are numbered in `rows`.

    Raises:
        InputError: an unknown split, or less than one sequence.
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
    """L_0: the mean conditional entropy of targets 1…T given their prefix, in nats per token.

    A Monte Carlo mean over prefixes of the exact entropy after each; the error is that of
    independent sequences: 0.0008 nats by default for the default law at V = 256, T = 128 (25 s on
    one CPU core). Their number, 1 or more, is rounded up to whole blocks of 1024; they are of
    a range of positions that is neither trained nor evaluated on.
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
