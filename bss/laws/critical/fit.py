"""Critical batch sizes from steps to a target, and how they grow with model and data.

After Zhang et al. (arXiv 2410.21676): per model and target S = a + b/B, from it the largest batch
within an overhead of linear scaling, and a power law of that in N or D. Added here: intervals,
bounds where the batches do not bracket the bend, the same without a law, and the exponent over
definitions, because it depends on them.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from bss.errors import InputError, check
from bss.laws.critical import shape
from bss.laws.critical.curves import LEAST_BATCHES, StepsCurve, steps_curves
from bss.laws.critical.laws import Fitted, definitions, laws_of
from bss.laws.critical.left_out import held_out, left_out_of, outliers, without_each
from bss.laws.critical.values import CriticalBatch, CriticalFit
from bss.laws.fitting.constraints import FREE, Constraints
from bss.laws.fitting.estimate import Estimate, Options, interval

REACH = 2.0
DOUBTED = 0.99  # level of the exponent's interval from which the form is doubted
DEFAULTS = Options(resamples=2000)


def fit_critical(
    points: pd.DataFrame,
    *,
    overhead: float = 0.2,
    reference: float = 256,
    unit: str = "sequences",
    constraints: Constraints | str = FREE,
    hold_out: Sequence[str] = (),
    options: Options | None = None,
) -> CriticalFit:
    """Fit critical batch sizes per (model, target), and their law over models and budgets.

    Args:
        points: as `bss.tables.read_points` gives it.
        overhead: r, the fraction of steps above linear scaling that is allowed.
        reference: B_ref, a batch in the regime of linear scaling, in `unit`.
        unit: of batches: "sequences", or "tokens" to compare context lengths.
        constraints: the exponent of the batch, held at 1 by default, as "alpha=1.2".
        hold_out: also left out in turn: batch, of the steps; cell, of the law of critical batches.
        options: how intervals are made.

    Raises:
        InputError: a setting out of range, or a table that `steps_curves` refuses.
    """
    options, allowed = options or DEFAULTS, shape.Allowance(overhead, reference)
    alpha = _alpha(constraints := Constraints.parse(constraints))
    check(0 < overhead < np.inf, "overhead", overhead, "a positive fraction, 0.2 for 20%")
    curves, warnings = steps_curves(points, unit)
    _check_reference(curves, reference)
    held, level = _fit(curves, alpha, options), options.level
    enough = all(len(curve.batch) > LEAST_BATCHES for curve in curves)
    free = _fit(curves, None, options) if enough else None
    fits = tuple(_critical_batch(i, held, allowed, level) for i in range(len(curves)))
    warnings += [text for fit in fits for text in _warnings(fit, allowed)]
    if free is not None:
        warnings += [text for i, fit in enumerate(fits) if (text := _other(i, fit, free, allowed))]
    values = [at.cbs.value for at in fits]
    laws, refused, notes = laws_of(curves, values, held.by_law(allowed)[1], level)
    law = next((laws[name] for name in ("joint", "params", "tokens") if name in laws), None)
    unseen = without_each(curves, alpha)
    told = held_out(curves, unseen, values, law, hold_out)
    bracketed = [value is not None for value in values]
    variables = () if law is None else law.variables
    rows = definitions(held, free, bracketed, allowed, variables, level)
    bent = sum(_bent(fit, allowed) for fit in fits)
    if law and 2 * bent > len(fits):
        notes.append(
            f"no law of the critical batch: {bent} of {len(fits)} curves refuse the reference "
            f"batch {reference:g}; choose a smaller one, or read that of b/a, which needs none"
        )
        law, laws, refused = None, {}, notes[-1]
    errors = [left_out_of(unseen, alpha)]
    errors += [left_out_of(without_each(curves, None), None)] if enough else []
    how = {"resamples": options.resamples, "level": level, "warnings": (*warnings, *notes)}
    how |= {"left_out": tuple(errors), "outliers": tuple(outliers(fits, unseen)), "held_out": told}
    fit = CriticalFit(overhead, reference, unit, fits, law, laws, refused, rows, **how)
    return replace(fit, constraints=constraints)


def _alpha(constraints: Constraints) -> float:
    """The exponent of the batch, which alone can be held."""
    constraints.check(("alpha",), "the law of steps, S = a + b/B^alpha,")
    low, high = constraints.ranges.get("alpha", (1.0, 1.0))
    least, most = shape.ALPHA_RANGE
    check(low == high, "alpha", f"{low:g}:{high:g}", "one value; it is fitted beside in any case")
    check(least <= low <= most, "alpha", low, f"an exponent from {least:g} to {most:g}")
    return low


def _check_reference(curves: Sequence[StepsCurve], reference: float) -> None:
    for curve in curves:
        low, high = curve.batch[0], curve.batch[-1]
        if not low <= reference <= high:
            raise InputError(
                f"reference batch: {reference:g} is outside the batches of {curve.name}, "
                f"{low:g} to {high:g}; choose one among them"
            )


def _fit(curves: Sequence[StepsCurve], alpha: float | None, options: Options) -> Fitted:
    shapes = shape.fit_shapes(curves, alpha)
    draws = shape.refit_shapes(
        curves, shapes, alpha, resamples=options.resamples, seed=options.seed
    )
    return Fitted(curves, shapes, *draws)


def _critical_batch(
    i: int, fitted: Fitted, allowed: shape.Allowance, level: float
) -> CriticalBatch:
    """That of curve i, for α held; the interval of κ is its profile's."""
    curve, shapes, refits = fitted.curves[i], fitted.shapes, fitted.refits
    kappa, alpha = float(shapes.kappa[i]), float(shapes.alpha[i])
    ends = shape.profile_interval(curve, level, alpha)
    value, least, most = (float(shape.critical_batch(x, alpha, allowed)) for x in (kappa, *ends))
    B_crit = _bracketed(kappa, *ends, level)
    cbs = _replaced(B_crit, Estimate(value, least, most, level))
    B_crit = _within_reach(B_crit, curve)
    if value > curve.batch[-1] or (B_crit.value is None and B_crit.low is None):
        cbs = _replaced(B_crit, cbs)
    S_min = interval(shapes.a[i], refits.a[i], level=level)
    E_min = interval(shapes.b[i], refits.b[i], level=level)
    if B_crit.value is None and B_crit.high is None:
        S_min = Estimate(None, None, float(curve.steps.min()), level, B_crit.note)
    if B_crit.value is None and B_crit.low is None:
        least = float((curve.batch * curve.steps).min())
        E_min = Estimate(None, None, least, level, B_crit.note)
    if alpha != 1:
        E_min = Estimate(None, level=level, note="of S = a + b/B alone")
    return CriticalBatch(
        curve=curve,
        S_min=S_min,
        E_min=E_min,
        alpha=Estimate(alpha, alpha, alpha, level, "held"),
        B_crit=B_crit,
        cbs=cbs,
        interpolated=_interpolated(i, fitted, allowed, level),
        noise=float(shapes.noise[i]),
        residuals=tuple((np.log(curve.steps) - shape.log_steps(shapes, i, curve.batch)).tolist()),
        status=B_crit.note or ("converged" if shapes.converged[i] else "not converged"),
    )


def _bracketed(value: float, low: float, high: float, level: float) -> Estimate:
    """The estimate, or the bound that is left where its interval is open on a side."""
    above, below = not np.isfinite(high), low <= 0
    if above and below:
        return Estimate(None, level=level, note="unidentified: the steps show no bend")
    if not above and not below:
        return Estimate(value, low, high, level)
    side, wanted = ("below", "larger") if above else ("above", "smaller")
    note = f"unidentified: all batches are {side} the bend; measure {wanted} ones"
    return Estimate(None, low if above else None, high if below else None, level, note)


def _within_reach(B_crit: Estimate, curve: StepsCurve) -> Estimate:
    """A bound in place of a bend more than a factor of 2 outside the batches measured."""
    if B_crit.value is None:
        return B_crit
    low, high = B_crit.low or 0.0, B_crit.high or np.inf
    low = 0.0 if B_crit.value < curve.batch[0] / REACH else low
    high = np.inf if B_crit.value > REACH * curve.batch[-1] else high
    return _bracketed(B_crit.value, low, high, B_crit.level)


def _replaced(bound: Estimate, estimate: Estimate) -> Estimate:
    """An estimate that follows from one which is not identified loses its value too."""
    if bound.value is not None:
        return estimate
    low = estimate.low if bound.low is not None else None
    high = estimate.high if bound.high is not None else None
    return Estimate(None, low, high, estimate.level, bound.note)


def _interpolated(i: int, fitted: Fitted, allowed: shape.Allowance, level: float) -> Estimate:
    """Without a law; its noise is that between seeds where there are any, else the residuals'."""
    curve, noise = fitted.curves[i], fitted.noise[i]
    if np.isfinite(curve.seed_noise):
        noise = noise / fitted.shapes.noise[i] * curve.seed_noise / np.sqrt(curve.seeds)
    logs = np.log(curve.steps)
    value = float(shape.interpolated_batch(curve.batch, logs, allowed))
    draws = shape.interpolated_batch(curve.batch, logs + noise, allowed)
    estimate = interval(value, draws, level=level)
    if np.isfinite(value):
        return estimate
    note = "unidentified: the largest batch keeps within the overhead"
    return Estimate(None, estimate.low or float(curve.batch[-1]), None, level, note)


def _warnings(fit: CriticalBatch, allowed: shape.Allowance) -> list[str]:
    texts, reference = [], allowed.reference
    name, B_crit, alpha = fit.curve.name, fit.B_crit.value, fit.alpha.value or 1.0
    if fit.status != "converged":
        texts.append(f"{name}: B_crit is {fit.status}")
    if B_crit is not None and _bent(fit, allowed):
        texts.append(
            f"{name}: the reference batch {reference:g} is itself "
            f"{(reference / B_crit) ** alpha:.0%} above "
            "linear scaling; choose a smaller one"
        )
    used = fit.curve.batch * fit.curve.steps
    at_reference = np.interp(np.log(reference), np.log(fit.curve.batch), used)
    if at_reference > (1 + allowed.overhead) * used.min() and not _bent(fit, allowed):
        texts.append(
            f"{name}: batch {fit.curve.batch[used.argmin()]:g} takes "
            f"{1 - used.min() / at_reference:.0%} fewer tokens than the reference "
            f"{reference:g}: scaling from it is not linear; choose that as the reference"
        )
    return texts


def _other(i: int, fit: CriticalBatch, free: Fitted, allowed: shape.Allowance) -> str:
    """What is said of a curve whose steps are no a + b/B^α of the α that is held."""
    found = interval(free.shapes.alpha[i], free.refits.alpha[i], level=DOUBTED)
    low, high, held = found.low or 0.0, found.high or np.inf, fit.alpha.value or 1.0
    if fit.cbs.value is None or low <= held <= high:
        return ""
    by_free = float(shape.critical_batch(free.shapes.kappa[i], free.shapes.alpha[i], allowed))
    own = fit.interpolated.value
    return (
        f"{fit.curve.name}: the exponent of the batch is {found.value:.2f} ({low:.2f} – {high:.2f} "
        f"at {DOUBTED:.0%}), not {held:g}: CBS is {by_free:.4g} with it"
        + (f", {own:.4g} without a law" if own else "")
        + f", and {fit.cbs.value:.4g} does not hold"
    )


def _bent(fit: CriticalBatch, allowed: shape.Allowance) -> bool:
    """Whether the reference batch is itself above linear scaling by more than is allowed."""
    B_crit, alpha = fit.B_crit.value, fit.alpha.value or 1.0
    return B_crit is not None and (allowed.reference / B_crit) ** alpha > allowed.overhead
