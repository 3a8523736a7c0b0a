"""Scatters that several measurements share, and errors of sums of effects (derived here)."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.stats import levene

AGREE = 0.05  # scatters agree where Levene's p is at least this

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Scatter:
    """A variance with its degrees of freedom: of one run over seeds, or of an estimate."""

    variance: float
    freedom: float


def agreeing(groups: Mapping[K, np.ndarray]) -> list[K]:
    """Those whose scatters agree, by Levene's test; the most extreme leave first."""
    logs = {key: math.log(np.var(some)) for key, some in groups.items() if np.ptp(some) > 0}
    while len(logs) > 2 and levene(*(groups[k] for k in logs), center="mean")[1] < AGREE:
        middle = float(np.median(list(logs.values())))
        del logs[max(logs, key=lambda key: abs(logs[key] - middle))]
    return list(logs)


def shared(
    residuals: Mapping[K, np.ndarray], lost: int = 1, *, together: int = 0
) -> dict[K, Scatter]:
    """The scatter of each group of residuals: pooled over those that agree, else its own.

    Groups leave the pool, the most extreme first, until Levene's test finds no difference. Those
    without a degree of freedom are left out.

    Args:
        residuals: [n] of each group, about what was fitted to it.
        lost: parameters that were fitted to each.
        together: freedom that several in a pool lose once, by what was taken out of all.

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
    freedom = sum(own[key].freedom for key in pool) - together * (len(pool) > 1)
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
