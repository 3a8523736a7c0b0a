"""What critical batch sizes show, as effects that two tests judge (derived here).

Curves of one model and sequence length come from the same runs, so what is averaged over curves is
averaged over these cells first, and their errors go together. Exponents of power laws have errors
by the scatter about the line; those that the values came with are no part of it: a misfit that
every curve has is in them, and moves the level, not the exponent.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from bss.contests.contrasts import Effect
from bss.contests.scatter import Scatter, scaled, shared, summed
from bss.laws.critical.values import CriticalBatch, CriticalFit
from bss.laws.fitting.estimate import Estimate
from bss.laws.fitting.power import PowerFit, fit_power, unidentified

LAW_PARAMETERS = 2


class Line(NamedTuple):
    """A design's power law at equal weights, and what it was fitted to.

    Attributes:
        law: its exponents, scatter and design.
        x: [n] of each variable.
        y: [n] critical batches.
        models: [n], whose they are: points of one model come from the same runs.
    """

    law: PowerFit
    x: dict[str, list[float]]
    y: list[float]
    models: list[str]


def line_of(fit: CriticalFit, *, interpolated: bool) -> Line | None:
    """The law of a design at the fit's overhead and reference; None where it has none.

    Args:
        fit: of the design.
        interpolated: without a law of the steps; else by S = a + b/B.
    """
    name = f"{fit.overhead:.0%} over {fit.reference:g}" + ", interpolated" * interpolated
    row = next((row for row in fit.definitions if row.name == name), None)
    if row is None or row.law is None:
        return None
    pairs = zip(fit.fits, row.values, strict=True)
    used = [(at.curve, value) for at, value in pairs if value is not None]
    x = {key: [getattr(curve, key) for curve, _ in used] for key in row.law.variables}
    y = [value for _, value in used]
    models = [curve.model for curve, _ in used]
    return Line(fit_power(y, x, unit=row.law.unit, level=fit.level), x, y, models)


def line_scatters(lines: Mapping[str, Line]) -> dict[str, Scatter]:
    """The scatter about each line in one variable, pooled over those that agree."""
    alone = {name: line for name, line in lines.items() if len(line.law.variables) == 1}
    groups = {name: residuals(line.law, line.x, line.y) for name, line in alone.items()}
    return shared(groups, lost=LAW_PARAMETERS)


def hump(at: CriticalBatch) -> tuple[float, float, np.ndarray]:
    """How far log steps stand above S = a + b/B at the middle of the batches, over their ends.

    A parabola in log B, zero at the middle and -1 at both ends, is fitted to the residuals beside
    the law's two parameters.

    Returns:
        Its coefficient, that one's variance over the variance of a step count, and what is left of
        the residuals [n].
    """
    x = np.log(at.curve.batch)
    share = 1 / (1 + at.curve.batch / (at.B_crit.value or np.nan))  # of log S in log(b/a)
    law = np.stack([np.ones_like(x), share], axis=1)
    parabola = -(((2 * x - x[0] - x[-1]) / (x[-1] - x[0])) ** 2)
    rest = np.array(at.residuals)
    parabola, rest = (y - law @ np.linalg.lstsq(law, y, rcond=None)[0] for y in (parabola, rest))
    size = float(parabola @ parabola)
    value = float(parabola @ rest) / size
    return value, 1 / size, rest - value * parabola


def misfit(fits: Sequence[CriticalBatch]) -> Effect:
    """The mean hump: own scatter over cells, pooled that of what is left beside the parabola."""
    known = [at for at in fits if at.B_crit.value is not None and len(at.curve.batch) > 3]
    humps = [hump(at) for at in known]
    scatters = shared(dict(enumerate(rest for *_, rest in humps)), lost=LAW_PARAMETERS + 1)
    errors = [scaled(scatters[i], leverage) for i, (_, leverage, _) in enumerate(humps)]
    return over_cells(known, [value for value, *_ in humps], errors, one_pool=True)


def law_over_none(fits: Sequence[CriticalBatch]) -> Effect:
    """log of the critical batch by S = a + b/B over the one without a law.

    Own scatter over cells; pooled, the errors that both values came with.
    """
    known = [at for at in fits if at.interpolated.value and at.cbs.value]
    values = [np.log((at.cbs.value or 1) / (at.interpolated.value or 1)) for at in known]
    pairs = [[log_error(e, len(at.curve.batch)) for e in (at.cbs, at.interpolated)] for at in known]
    errors = [summed([p for p in pair if p]) if all(pair) else None for pair in pairs]
    return over_cells(known, values, errors)


def log_error(estimate: Estimate, batches: int) -> Scatter | None:
    """The squared standard error of a critical batch's logarithm, by its interval."""
    if not estimate.low or not estimate.high:
        return None
    freedom = batches - LAW_PARAMETERS
    reach = float(stdtrit(freedom, (1 + estimate.level) / 2))
    return Scatter((np.log(estimate.high / estimate.low) / (2 * reach)) ** 2, freedom)


def ratio(
    at: CriticalBatch,
    other: CriticalBatch,
    of: Callable[[CriticalBatch], Estimate],
    noise: Scatter | None = None,
) -> Effect | None:
    """log of a curve's critical batch over another's; None where one is missing.

    Args:
        at: the curve.
        other: the other.
        of: which critical batch.
        noise: of log steps about the law, pooled over curves that were measured alike.
    """
    ours, theirs = of(at).value, of(other).value
    if not ours or not theirs:
        return None
    errors = [(log_error(of(one), len(one.curve.batch)), one.noise) for one in (at, other)]
    known = [(error, own) for error, own in errors if error]
    value, n = float(np.log(ours / theirs)), len(at.curve.batch)
    if noise is None or len(known) < len(errors):
        return Effect(value, n)
    pooled = [Scatter(e.variance * noise.variance / own**2, noise.freedom) for e, own in known]
    return Effect(value, n, summed([e for e, _ in known]), summed(pooled, one_pool=True))


def over_cells(
    fits: Sequence[CriticalBatch],
    values: Sequence[float],
    errors: Sequence[Scatter | None],
    *,
    one_pool: bool = False,
) -> Effect:
    """The mean over cells of what was measured on each curve.

    Args:
        fits: the curves.
        values: of each.
        errors: squared standard errors of each; those of one cell are taken as fully dependent.
        one_pool: they come from one pooled scatter.
    """
    cells: dict[tuple, list[int]] = {}
    for i, at in enumerate(fits):
        cells.setdefault((at.curve.model, at.curve.seq_len), []).append(i)
    means = [float(np.mean([values[i] for i in members])) for members in cells.values()]
    count = len(means)
    estimate = float(np.mean(means)) if means else float("nan")
    if count < 2:
        return Effect(estimate, count)
    own = Scatter(float(np.var(means, ddof=1)) / count, count - 1)
    parts = []
    for members in cells.values():
        known = [error for error in (errors[i] for i in members) if error]
        if len(known) < len(members):
            return Effect(estimate, count)
        spread = float(np.mean([np.sqrt(error.variance) for error in known]))
        parts.append(Scatter((spread / count) ** 2, min(error.freedom for error in known)))
    return Effect(estimate, count, own, summed(parts, one_pool=one_pool))


def step_noise(fits: Sequence[CriticalBatch]) -> Scatter | None:
    """The scatter of log steps about S = a + b/B, of the most curves that agree in it."""
    groups = {i: np.array(at.residuals) for i, at in enumerate(fits) if at.S_min.value is not None}
    return largest(shared(groups, lost=LAW_PARAMETERS))


def largest(scatters: Mapping[Any, Scatter]) -> Scatter | None:
    """The scatter of the largest pool; None where there is none."""
    return max(scatters.values(), key=lambda scatter: scatter.freedom, default=None)


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
