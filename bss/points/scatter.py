"""Scatters that several measurements share, and errors of sums of effects (derived here)."""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from bss.points.contrasts import Measured, Scatter, agreeing

K = TypeVar("K", bound=Hashable)


def shared(residuals: Mapping[K, np.ndarray], lost: int = 1) -> dict[K, Scatter]:
    """The scatter of each group of residuals: pooled over those that agree, else its own.

    Groups leave the pool, the most extreme first, until Levene's test finds no difference. Those
    without a degree of freedom are left out.

    Args:
        residuals: [n] of each group, about what was fitted to it.
        lost: parameters that were fitted to each.

    Examples:
        >>> shared({"a": np.array([1.0, -1, 0]), "b": np.array([2.0, -2, 0])})["a"]
        Scatter(variance=2.5, freedom=4)
    """
    free = {key: rest for key, rest in residuals.items() if len(rest) > lost}
    own = {
        key: Scatter(float(rest @ rest) / (len(rest) - lost), len(rest) - lost)
        for key, rest in free.items()
    }
    pool = agreeing(free)
    freedom = sum(own[key].freedom for key in pool)
    squares = sum(own[key].variance * own[key].freedom for key in pool)
    return {key: Scatter(squares / freedom, freedom) if key in pool else own[key] for key in own}


def summed(parts: Sequence[Scatter], *, one_pool: bool = False) -> Scatter:
    """The squared standard error of a sum of effects.

    Args:
        parts: squared standard errors of the effects, one at least.
        one_pool: they come from one pooled scatter, so that its freedom is theirs together; else
            they are independent, and freedom is Satterthwaite's.
    """
    total = sum(part.variance for part in parts)
    least = min(part.freedom for part in parts)
    squares = sum(part.variance**2 / part.freedom for part in parts)
    return Scatter(total, least if one_pool or not squares else total**2 / squares)


def scaled(error: Scatter | None, factor: float) -> Scatter | None:
    """The squared standard error of an effect whose variance is a multiple of another's."""
    return error and Scatter(error.variance * factor, error.freedom)


def apart(effect: Measured, other: Measured) -> Measured:
    """One effect less another, with errors where both have them; pooled errors share a pool."""
    own = pooled = None
    if effect.own and other.own:
        own = summed([effect.own, other.own])
    if effect.pooled and other.pooled:
        pooled = summed([effect.pooled, other.pooled], one_pool=True)
    n = min(effect.n, other.n)
    return Measured(effect.estimate - other.estimate, n, own, pooled)
