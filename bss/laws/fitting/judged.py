"""Exponents of power laws as effects that two tests judge: errors by the scatter about the line.

The errors that the values came with are no part of it: a misfit that every curve has is in them,
and moves the level, not the exponent (derived here).
"""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from bss.laws.fitting.power import PowerFit, fit_power, unidentified
from bss.points.contrasts import Effect
from bss.points.scatter import Scatter, scaled, summed


def exponent(
    law: PowerFit, pooled: Scatter | None = None, weights: Sequence[float] = (1.0,)
) -> Effect:
    """A weighted sum of a law's exponents.

    Args:
        law: without a scatter the effect has no own error.
        pooled: the scatter about the lines of everything that was measured alike.
        weights: of its exponents, in the order of its variables.
    """
    row = np.array([0.0, *weights])
    leverage = float(row @ law.inverse @ row)
    own = None
    if law.scatter is not None:
        own = Scatter(law.scatter**2 * leverage, law.points - len(row))
    value = sum(w * (p.value or 0.0) for w, p in zip(weights, law.exponents, strict=True))
    return Effect(value, law.points, own, scaled(pooled, leverage))


def over_groups(
    x: Mapping[str, ArrayLike], y: ArrayLike, groups: Sequence[Hashable], weights: Sequence[float]
) -> Scatter | None:
    """The jackknife's squared standard error of that sum, leaving out each group of points.

    For points that share noise, which the scatter about the law takes as independent. None where
    fewer than three groups, or what one of them leaves, do not identify the law.

    Args:
        x: [n] positive values of each variable.
        y: [n] positive values.
        groups: [n], to which each point belongs.
        weights: of the exponents, in the order of the variables.
    """
    names = list(dict.fromkeys(groups))
    sums, count = [], len(names)
    if count < 3:
        return None
    for left_out in names:
        rows = np.array([group != left_out for group in groups])
        rest = {name: np.asarray(values, float)[rows] for name, values in x.items()}
        if unidentified(rest):
            return None
        law = fit_power(np.asarray(y, float)[rows], rest)
        sums.append(exponent(law, weights=weights).estimate)
    return Scatter((count - 1) * float(np.var(sums)), count - 1)


def by_values(law: PowerFit, x: Mapping[str, ArrayLike], errors: Sequence[Scatter]) -> Scatter:
    """The squared standard error of the exponent by the errors that the values came with.

    Args:
        law: as fitted, in one variable.
        x: [n] positive values of it.
        errors: [n] of log y, independent.
    """
    shares = np.array([0.0, 1.0]) @ law.inverse @ law.design(x).T
    parts = zip(errors, shares, strict=True)
    return summed([Scatter(error.variance * share**2, error.freedom) for error, share in parts])


def residuals(law: PowerFit, x: Mapping[str, ArrayLike], y: ArrayLike) -> np.ndarray:
    """log y less the law's, [n].

    Args:
        law: as fitted.
        x: [n] positive values of each of its variables.
        y: [n] positive values.
    """
    line = law.design(x)[:, 1:] @ [p.value for p in law.exponents]
    return np.log(np.asarray(y, float)) - np.log(law.coefficient.value or 1) - line
