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
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bss.errors import InputError

Array = np.ndarray | jax.Array

# Fractional bits of the fixed-point numbers; a logit has the bits of h and W together.
_MEMORY_BITS = 16
_H_BITS = 8
W_BITS = 4
_LOGIT_BITS = _H_BITS + W_BITS
# With these, |h·W| < 2^24: float32 holds every partial sum exactly, in any order of summation.
_H_LIMIT = 2047
_W_LIMIT = 63
_RANK_LIMIT = 128
# A token's weight is looked up by the distance of its logit from the largest, in 1/256 nats.
_LEVEL_BITS = 8
_LEVELS = 4096


@dataclass(frozen=True)
class SyntheticLanguage:
    """A language and the length of its sequences.

    Attributes:
        vocab_size: V, 2 to 16384 tokens, the frequent ones first.
        seq_len: T, tokens predicted per sequence.
        seed: Seed of the language and of its sequences, an integer ≥ 0.
        memories: exponents k from 0 to 12, increasing; a range averages over about 2^k tokens, and
            k = 0 is the last token alone.
        rank: dimensions of h, 1 to 128; keep it below the width of the trained models.
        contrast: standard deviation of a token's logit over prefixes, in nats, in (0, 8].
        zipf: exponent of the tokens' frequencies, 0 to 3.
        mode_decay: exponent of the modes' standard deviations, 0 to 3.
        range_decay: exponent of the ranges' shares of the variance, 0 to 3.
        sequence_seed: any integer: other sequences of the same language, independent of those of
            None.

    Raises:
        InputError: If a value is out of range.
    """

    vocab_size: int
    seq_len: int
    seed: int = 0
    memories: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    rank: int = 32
    contrast: float = 2.0
    zipf: float = 1.0
    mode_decay: float = 0.5
    range_decay: float = 1.0
    sequence_seed: int | None = None

    def __post_init__(self) -> None:
        check_integer("vocab_size", self.vocab_size, 2, 1 << 14)
        check_integer("seq_len", self.seq_len, 1)
        check_integer("seed", self.seed, 0)
        check_integer("rank", self.rank, 1, _RANK_LIMIT)
        for k in self.memories:
            check_integer("memories", k, 0, 12)
        if not self.memories or any(a >= b for a, b in pairwise(self.memories)):
            raise InputError(
                f"memories={self.memories!r}: expected increasing exponents, such as (0, 2, 4)"
            )
        if not 0 < self.contrast <= 8:
            raise InputError(f"contrast={self.contrast!r}: expected nats above 0 and up to 8")
        for name in ("zipf", "mode_decay", "range_decay"):
            if not 0 <= getattr(self, name) <= 3:
                raise InputError(f"{name}={getattr(self, name)!r}: expected a number from 0 to 3")


NAME = "synthetic"
"""The corpus of this language, and the `content` of a data config with its default settings."""
SETTINGS = MappingProxyType(
    {"contrast": float, "zipf": float, "mode_decay": float, "range_decay": float, "rank": int}
)
"""What a corpus may set, e.g. "synthetic:mode_decay=0.2,rank=16"."""


def is_synthetic(corpus: str) -> bool:
    """Return whether a corpus is a synthetic language, with or without settings."""
    return corpus.partition(":")[0] == NAME


def language_of(corpus: str, vocab_size: int, seq_len: int) -> SyntheticLanguage:
    """Return the language of a corpus, e.g. "synthetic" or "synthetic:mode_decay=0.2".

    Raises:
        InputError: If a setting is unknown, written twice, or out of range.

    Examples:
        >>> language_of("synthetic:mode_decay=0.2,rank=16", 256, 64).mode_decay
        0.2
    """
    settings: dict[str, Any] = {}
    written = corpus.partition(":")[2]
    for pair in filter(None, written.split(",")):
        name, _, value = pair.partition("=")
        if name not in SETTINGS or name in settings:
            raise InputError(f"corpus {corpus!r}: {pair!r}; expected each of {[*SETTINGS]} once")
        try:
            settings[name] = SETTINGS[name](value)
        except ValueError:
            raise InputError(f"corpus {corpus!r}: {name} is {value!r}; write a number") from None
    return SyntheticLanguage(vocab_size, seq_len, **settings)


def check_integer(name: str, value: object, low: int, high: float = math.inf) -> None:
    """Raise InputError if a value is not an integer from low to high."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        bound = f" to {high}" if high < math.inf else ""
        raise InputError(f"{name}={value!r}: expected an integer from {low}{bound}")


class Tables(NamedTuple):
    """A language on the device: the integers that its functions read.

    Attributes:
        key: the random key of the sequences.
        bias_V: int32, logits without a prefix, in 2^-12 nats.
        steer_RxVxD: int32, U_k, the change of each memory by a token.
        read_DxV: float32 integers, W.
        memories_R: int32, the exponents k.
        weights: uint32 ≥ 1, the weight at each level below the largest logit; the sum over a
            vocabulary stays below 2^32.
    """

    key: jax.Array
    bias_V: jax.Array
    steer_RxVxD: jax.Array
    read_DxV: jax.Array
    memories_R: jax.Array
    weights: jax.Array


@functools.lru_cache(maxsize=8)
def tables(language: SyntheticLanguage) -> Tables:
    """Return the tables of a language, built in float64 on the host and kept on the device."""
    V = language.vocab_size
    draw = np.random.default_rng((language.seed, 0))
    prior_V = np.arange(1, V + 1) ** -float(language.zipf)
    prior_V /= prior_V.sum()
    steer_RxVxD = _standard(
        draw.standard_normal((len(language.memories), V, language.rank)), prior_V
    )
    steer_RxVxD *= _scales(language)[:, None, :]
    read_DxV = np.rint(draw.standard_normal((language.rank, V)) * 2**W_BITS)
    heaviest = 2 ** min(19, 31 - math.ceil(math.log2(V)))
    weights = heaviest * np.exp(-np.arange(_LEVELS) / 2**_LEVEL_BITS)
    key = _seed_sequences(language).generate_state(2)
    with jax.ensure_compile_time_eval():
        return Tables(
            jax.random.wrap_key_data(jnp.asarray(key), impl="threefry2x32"),
            jnp.asarray(np.rint(np.log(prior_V) * 2**_LOGIT_BITS), jnp.int32),
            jnp.asarray(np.rint(steer_RxVxD * 2**_MEMORY_BITS), jnp.int32),
            jnp.asarray(np.clip(read_DxV, -_W_LIMIT, _W_LIMIT), jnp.float32),
            jnp.asarray(language.memories, jnp.int32),
            jnp.asarray(np.maximum(np.rint(weights), 1), jnp.uint32),
        )


def _seed_sequences(language: SyntheticLanguage) -> np.random.SeedSequence:
    """Return the seed of a language's sequences."""
    if language.sequence_seed is None:
        return np.random.SeedSequence((language.seed, 1))
    sign = int(language.sequence_seed < 0)
    return np.random.SeedSequence((language.seed, 1), spawn_key=(sign, abs(language.sequence_seed)))


def _standard(steer_RxVxD: np.ndarray, prior_V: np.ndarray) -> np.ndarray:
    """Scale to mean 0 and variance 1 over tokens of the prior."""
    centred = steer_RxVxD - np.einsum("v,rvd->rd", prior_V, steer_RxVxD)[:, None, :]
    return centred / np.sqrt(np.einsum("v,rvd->rd", prior_V, centred**2))[:, None, :]


def _scales(language: SyntheticLanguage) -> np.ndarray:
    """Return the standard deviations of a token's change (R, D), so that h has SD `contrast`.

    A memory that keeps g = 1 - 2^-k of itself sums independent tokens to 1/(1 - g^2) times the
    variance of one.
    """
    k_R = np.asarray(language.memories, float)
    share_R = 2 ** (-language.range_decay * k_R)
    power_D = np.arange(1, language.rank + 1) ** (-2.0 * language.mode_decay)
    one_R = share_R / share_R.sum() * (1 - (1 - 2**-k_R) ** 2)
    return language.contrast * np.sqrt(np.outer(one_R, power_D / power_D.sum()))


def blank(tables: Tables, count: int) -> jax.Array:
    """Return the memories of `count` sequences without a prefix: int32 (n, R, D)."""
    R, _, D = tables.steer_RxVxD.shape
    return jnp.zeros((count, R, D), jnp.int32)


def remember(tables: Tables, memory_nxRxD: jax.Array, token_n: jax.Array) -> jax.Array:
    """Return the memories after one more token."""
    faded_nxRxD = memory_nxRxD >> tables.memories_R[None, :, None]
    return memory_nxRxD - faded_nxRxD + tables.steer_RxVxD[:, token_n].swapaxes(0, 1)


def levels(tables: Tables, memory_nxRxD: jax.Array) -> jax.Array:
    """Return the distance of each next token below the most likely: int32 (n, V) weight indices."""
    h_nxD = jnp.clip(memory_nxRxD.sum(1) >> (_MEMORY_BITS - _H_BITS), -_H_LIMIT, _H_LIMIT)
    moved_nxV = jnp.matmul(h_nxD.astype(jnp.float32), tables.read_DxV, precision="highest")
    logits_nxV = tables.bias_V[None] + moved_nxV.astype(jnp.int32)
    below_nxV = (logits_nxV.max(1, keepdims=True) - logits_nxV) >> (_LOGIT_BITS - _LEVEL_BITS)
    return jnp.minimum(below_nxV, _LEVELS - 1)


HELD_OUT = MappingProxyType({"validation": 1 << 63, "test": 3 << 62})
_POSITIONS = 1 << 64


def _halve(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the upper and the lower 16 bits of a uint32."""
    return x >> 16, x & 0xFFFF


def multiply_high(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the upper 32 bits of the 64-bit product of two uint32, a type that JAX lacks."""
    a_high, a_low = _halve(a)
    b_high, b_low = _halve(b)
    first = a_high * b_low + ((a_low * b_low) >> 16)
    second = a_low * b_high + (first & 0xFFFF)
    return a_high * b_high + (first >> 16) + (second >> 16)


@functools.partial(jax.jit, static_argnames="seq_len")
def generate(tables: Tables, high_n: Array, low_n: Array, seq_len: int) -> jax.Array:
    """Return the sequences at positions 2^32·high + low; it can be called inside jit.

    Each draws 32 random bits per token, from the key folded with high, then low; both are uint32.

    Returns:
        int32 (n, seq_len + 1); inputs are [:, :-1], targets [:, 1:].
    """

    def bits(high: Array, low: Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.fold_in(tables.key, high), low)
        return jax.random.bits(key, (seq_len + 1,))

    def step(memory_nxRxD: jax.Array, bits_n: jax.Array) -> tuple[jax.Array, jax.Array]:
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
    high_n = (places_n >> np.uint64(32)).astype(np.uint32)
    low_n = places_n.astype(np.uint32)
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
