"""A bank of exponential weight averages, each corrected by the weight it has accumulated.

A half-life is a count of tokens, "50K", or a fraction of the tokens consumed, "4%", which keeps
the average's part of the run the same at every horizon. The update is xi <- xi + (1 - tau)(theta -
xi), as in Zhang et al. (arXiv 2410.21676), with 1 - tau = 1 - 2^(-batch tokens / half-life), so
that a half-life means the same at every batch; the correction is derived here.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bss.errors import InputError
from bss.units import parse_tokens

Params = dict[str, Any]


class Averages(NamedTuple):
    """Sums of the bank, every leaf [K, ...], and the weight accumulated in each, [K]."""

    sums: Params
    weights: jax.Array


def half_life(text: str, tokens: int) -> float:
    """A half-life in tokens: "50K", or "4%" of the `tokens` consumed so far; else refused.

    Examples:
        >>> half_life("50K", 1_000_000), half_life("4%", 1_000_000)
        (50000.0, 40000.0)
    """
    if not text.endswith("%"):
        count = parse_tokens(text, field="averages")
        if count > 0:
            return float(count)
    else:
        try:
            fraction = float(text[:-1]) / 100
        except ValueError:
            fraction = math.nan
        if 0 < fraction <= 1:
            return fraction * tokens
    raise InputError(f'averages: {text!r}: expected tokens, as "50K", or 0 < percent <= 100')


def shares(half_lives: tuple[str, ...], tokens: int, batch_tokens: int) -> np.ndarray:
    """1 - tau of each average in the step that ends at `tokens`: float32 [K]."""
    lives = np.array([half_life(text, tokens) for text in half_lives], np.float64)
    return -np.expm1(-math.log(2) * batch_tokens / lives).astype(np.float32)


def empty(params: Params, count: int) -> Averages:
    """A bank of `count` averages that have seen nothing."""
    sums = jax.tree.map(lambda p: jnp.zeros((count, *p.shape), p.dtype), params)
    return Averages(sums, jnp.zeros(count))


def update(averages: Averages, params: Params, shares_K: jax.Array) -> Averages:
    """Every average moved towards the parameters by its share."""

    def move(sum_KxP: jax.Array, p: jax.Array) -> jax.Array:
        share = shares_K.reshape(-1, *[1] * p.ndim)
        return sum_KxP + share * (p[None] - sum_KxP)

    sums = jax.tree.map(move, averages.sums, params)
    return Averages(sums, averages.weights + shares_K * (1 - averages.weights))


def pick(averages: Averages, index: jax.Array) -> Params:
    """One average's parameters, corrected; it must have seen a step."""
    return jax.tree.map(lambda s: s[index] / averages.weights[index], averages.sums)
