"""The synthetic language (`bss.data.synthetic`) as tables of integers on the device."""

import functools
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bss.errors import InputError

# Fractional bits of the fixed-point numbers; a logit has the bits of h and W together.
_MEMORY_BITS, _H_BITS, W_BITS = 16, 8, 4
_LOGIT_BITS = _H_BITS + W_BITS
# With these, |h·W| < 2^24: float32 holds every partial sum exactly, in any order of summation.
_H_LIMIT, _W_LIMIT, _RANK_LIMIT = 2047, 63, 128
# A token's weight is looked up by the distance of its logit from the largest, in 1/256 nats.
_LEVEL_BITS, _LEVELS = 8, 4096


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

    def __post_init__(self):
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
    key = np.random.SeedSequence((language.seed, 1)).generate_state(2)
    with jax.ensure_compile_time_eval():
        return Tables(
            jax.random.wrap_key_data(jnp.asarray(key), impl="threefry2x32"),
            jnp.asarray(np.rint(np.log(prior_V) * 2**_LOGIT_BITS), jnp.int32),
            jnp.asarray(np.rint(steer_RxVxD * 2**_MEMORY_BITS), jnp.int32),
            jnp.asarray(np.clip(read_DxV, -_W_LIMIT, _W_LIMIT), jnp.float32),
            jnp.asarray(language.memories, jnp.int32),
            jnp.asarray(np.maximum(np.rint(weights), 1), jnp.uint32),
        )


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


def remember(tables: Tables, memory_nxRxD, token_n):
    """Return the memories after one more token."""
    faded_nxRxD = memory_nxRxD >> tables.memories_R[None, :, None]
    return memory_nxRxD - faded_nxRxD + tables.steer_RxVxD[:, token_n].swapaxes(0, 1)


def levels(tables: Tables, memory_nxRxD):
    """Return the distance of each next token below the most likely: int32 (n, V) weight indices."""
    h_nxD = jnp.clip(memory_nxRxD.sum(1) >> (_MEMORY_BITS - _H_BITS), -_H_LIMIT, _H_LIMIT)
    moved_nxV = jnp.matmul(h_nxD.astype(jnp.float32), tables.read_DxV, precision="highest")
    logits_nxV = tables.bias_V[None] + moved_nxV.astype(jnp.int32)
    below_nxV = (logits_nxV.max(1, keepdims=True) - logits_nxV) >> (_LOGIT_BITS - _LEVEL_BITS)
    return jnp.minimum(below_nxV, _LEVELS - 1)
