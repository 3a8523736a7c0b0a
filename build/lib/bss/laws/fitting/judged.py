"""Exponents of power laws as effects that two tests judge: errors by the scatter about the line.

The errors that the values came with are no part of it: a misfit that every curve has is in them,
and moves the level, not the exponent (derived here).
"""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from bss.laws.fitting.power import PowerLaw, fit_power, unidentified
from bss.points.contrasts import Measured
from bss.points.scatter import Scatter, scaled, summed


def exponent(
    law: PowerLaw, pooled: Scatter | None = None, weights: Sequence[float] = (1.0,)
) -> Measured:
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
    return Measured(value, law.points, own, scaled(pooled, leverage))


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
    found = []
    for left_out in names if len(names) > 2 else ():
        kept = np.array([group != left_out for group in groups])
        rest = {name: np.asarray(values, float)[kept] for name, values in x.items()}
        if unidentified(rest):
            return None
        law = fit_power(np.asarray(y, float)[kept], rest)
        found.append(exponent(law, weights=weights).estimate)
    if not found:
        return None
    count = len(found)
    return Scatter((count - 1) * float(np.var(found)), count - 1)


def by_values(
    law: PowerLaw,
    x: Mapping[str, ArrayLike],
    errors: Sequence[Scatter],
    weights: Sequence[float] = (1.0,),
) -> Scatter:
    """The squared standard error of that sum by the errors that the values came with.

    Args:
        law: as fitted.
        x: [n] positive values of each of its variables.
        errors: [n] of log y, independent.
        weights: of the exponents, in the order of the variables.
    """
    logs = [np.log(np.asarray(x[name], float) / law.unit) for name in law.variables]
    design = np.stack([np.ones_like(logs[0]), *logs], axis=1)
    shares = np.array([0.0, *weights]) @ law.inverse @ design.T
    parts = zip(errors, shares, strict=True)
    return summed([Scatter(error.variance * share**2, error.freedom) for error, share in parts])


def residuals(law: PowerLaw, x: Mapping[str, ArrayLike], y: ArrayLike) -> np.ndarray:
    """log y less the law's, [n].

    Args:
        law: as fitted.
        x: [n] positive values of each of its variables.
        y: [n] positive values.
    """
    logs = [np.log(np.asarray(x[name], float) / law.unit) for name in law.variables]
    slopes = [p.value for p in law.exponents]
    return (
        np.log(np.asarray(y, float)) - np.log(law.coefficient.value or 1) - slopes @ np.array(logs)
    )
