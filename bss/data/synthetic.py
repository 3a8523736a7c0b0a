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
device, and the probability of a token is an exact ratio of integers.

Positions are below 2^64. Training counts from 0. Held-out data starts at 2^63: validation at
2^63, test at 3·2^62. Sequences from 7·2^61 on are neither trained nor evaluated on, so they can
measure L_0; tests/data/perfect.py does so.
"""

import functools
from collections.abc import Sequence
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np

from bss.data.log_bilinear import SyntheticLanguage, Tables, blank, levels, remember, tables
from bss.errors import InputError

HELD_OUT = MappingProxyType({"validation": 1 << 63, "test": 3 << 62})
_POSITIONS = 1 << 64


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
