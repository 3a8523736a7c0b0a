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

from bss.errors import check
from bss.laws.base import Estimate, Options, interval
from bss.laws.constraints import FREE, Constraints
from bss.laws.critical import shape
from bss.laws.critical.curves import LEAST_BATCHES, StepsCurve, steps_curves
from bss.laws.critical.laws import Fitted, definitions, laws_of
from bss.laws.critical.left_out import held_out, left_out_of, outliers, without_each
from bss.laws.critical.shape import CbsDefinition
from bss.laws.critical.values import CriticalBatch, CriticalFit, Quantity

REACH = 2.0
LINEAR = 0.05  # share of tokens above the smallest batch's, up to which scaling is called linear
DOUBTED = 1.9  # times the width of a measured interval, outside of which a law does not fit
SURE = 2.0  # standard errors by which a batch must take fewer tokens than the reference
DEFAULTS = Options(resamples=2000)


def fit_critical(
    points: pd.DataFrame,
    *,
    overhead: float = 0.2,
    reference: float | str = 256,
    unit: str = "sequences",
    constraints: Constraints | str = FREE,
    hold_out: Sequence[str] = (),
    options: Options | None = None,
) -> CriticalFit:
    """Fit critical batch sizes per (model, target), and their law over models and budgets.

    Args:
        points: as `bss.tables.read_points` gives it.
        overhead: r, the fraction of steps above linear scaling that is allowed.
        reference: B_ref, a batch in the range of linear scaling: a number in `unit`, "smallest" of
            each curve, or a share of each b/a as "10%".
        unit: of batches: "sequences", or "tokens" to compare context lengths.
        constraints: the exponent of the batch, held at 1 by default, as "alpha=1.2".
        hold_out: also left out in turn: batch, of the steps; cell, of the law of critical batches.
        options: how intervals are made.

    Raises:
        InputError: a setting out of range, or a table that `steps_curves` refuses.
    """
    options, definition = options or DEFAULTS, CbsDefinition.parse(overhead, reference)
    alpha, level = _alpha(constraints := Constraints.parse(constraints)), options.level
    curves, warnings = steps_curves(points, unit)
    held = Fitted.of(curves, alpha, options)
    enough = all(len(curve.batch) > LEAST_BATCHES for curve in curves)
    free = Fitted.of(curves, None, options) if enough else None
    fits = tuple(_critical_batch(i, held, definition, level) for i in range(len(curves)))
    warnings += [text for fit in fits for text in _warnings(fit)]
    few = sum(fit.is_linear for fit in fits) * 2 < len(fits)
    quantity: Quantity = "B_crit" if few else "cbs"
    if few:
        warnings.append(
            f"the laws are of b/a: most curves do not scale linearly up to the reference batch of "
            f"{definition}; --reference-batch smallest serves every curve"
        )
    values = [getattr(fit, quantity).value for fit in fits]
    law_draws, measured_draws = held.by_law(definition)[1], held.without_law(definition)[1]
    draws = [b if fit.method == "measured" else a
             for fit, a, b in zip(fits, law_draws, measured_draws, strict=True)]  # fmt: skip
    draws = list(held.refits.kappa) if few else draws
    laws, refused, notes = laws_of(curves, values, draws, level)
    law = next((laws[name] for name in ("joint", "params", "tokens") if name in laws), None)
    unseen = without_each(curves, alpha)
    errors = [left_out_of(unseen, alpha)]
    errors += [left_out_of(without_each(curves, None), None)] if enough else []
    bracketed = [fit.B_crit.value is not None for fit in fits]
    variables = () if law is None else law.variables
    return CriticalFit(
        overhead=overhead,
        reference=definition.reference,
        unit=unit,
        fits=fits,
        quantity=quantity,
        law=law,
        laws=laws,
        joint_refused=refused,
        definitions=definitions(held, free, bracketed, definition, variables, level),
        left_out=tuple(errors),
        outliers=tuple(outliers(fits, unseen)),
        held_out=held_out(curves, unseen, values, law, hold_out),
        constraints=constraints,
        resamples=options.resamples,
        level=level,
        warnings=(*warnings, *notes),
    )


def _alpha(constraints: Constraints) -> float:
    """The exponent of the batch, which alone can be held."""
    constraints.check(("alpha",), "the law of steps, S = a + b/B^alpha,")
    low, high = constraints.ranges.get("alpha", (1.0, 1.0))
    least, most = shape.ALPHA_RANGE
    check(low == high, "alpha", f"{low:g}:{high:g}", "one value; it is fitted beside in any case")
    check(least <= low <= most, "alpha", low, f"an exponent from {least:g} to {most:g}")
    return low


def _critical_batch(
    i: int, fitted: Fitted, definition: CbsDefinition, level: float
) -> CriticalBatch:
    """That of curve i, for α held; the interval of κ is its profile's."""
    curve, shapes, refits = fitted.curves[i], fitted.shapes, fitted.refits
    kappa, alpha, smallest = float(shapes.kappa[i]), float(shapes.alpha[i]), curve.batch[0]
    ends = shape.profile_interval(curve, level, alpha)
    three = np.array([kappa, *ends])
    references = definition.at(three, smallest)
    reference = float(references[0])
    cbs = shape.critical_batch(three, alpha, definition.overhead, references)
    B_crit = _bracketed(kappa, *ends, level)
    value, low, high = cbs.tolist()
    by_law = _replaced(B_crit, Estimate(value, low, high, level))
    B_crit = _within_reach(B_crit, curve.batch)
    if cbs[0] > curve.batch[-1] or (B_crit.value is None and B_crit.low is None):
        by_law = _replaced(B_crit, by_law)
    S_min = interval(shapes.a[i], refits.a[i], level=level)
    E_min = interval(shapes.b[i], refits.b[i], level=level)
    if B_crit.value is None and B_crit.high is None:
        S_min = Estimate(None, None, float(curve.steps.min()), level, B_crit.note)
    if B_crit.value is None and B_crit.low is None:
        least = float((curve.batch * curve.steps).min())
        E_min = Estimate(None, None, least, level, B_crit.note)
    if alpha != 1:
        E_min = Estimate(None, level=level, note="of S = a + b/B alone")
    if curve.covers(reference):
        interpolated = _interpolated(i, fitted, definition.overhead, reference, level)
    else:
        low, high = (f"{end:.4g}" for end in curve.batch[[0, -1]])
        note = f"reference {reference:.4g} is outside the batches measured, {low} to {high}"
        by_law = interpolated = Estimate(None, level=level, note=f"unidentified: {note}")
    logs = shape.log_steps(shapes, i, curve.batch)
    how = definition.overhead, reference
    expected = float(shape.measured_critical_batch(curve.batch, logs, *how))
    cbs, by_law = _answer(by_law, interpolated, expected)
    most = float(shape.critical_batch(kappa, alpha, LINEAR, smallest))
    least, excess = _excess(curve, reference)
    told = excess - SURE * 2**0.5 * float(np.max(fitted.mean_noise(i))) > np.log1p(LINEAR)
    return CriticalBatch(
        curve=curve,
        reference=reference,
        max_reference=least if told and least > reference else most,
        is_linear=curve.covers(reference) and reference <= most and not told,
        S_min=S_min,
        E_min=E_min,
        alpha=Estimate(alpha, alpha, alpha, level, "held"),
        B_crit=B_crit,
        cbs=cbs,
        method="law" if cbs is by_law else "measured",
        by_law=by_law,
        interpolated=interpolated,
        noise=float(shapes.noise[i]),
        residuals=tuple((np.log(curve.steps) - logs).tolist()),
        status=B_crit.note or ("converged" if shapes.converged[i] else "not converged"),
    )


def _answer(by_law: Estimate, measured: Estimate, expected: float) -> tuple[Estimate, Estimate]:
    """The critical batch, and that of the law, which reaches as far where it does not fit.

    Where the intervals of the two do not meet the measured one is given. `expected` is what
    interpolation gives of the law's own steps: between batches it is a little off.
    """
    if by_law.value is None or measured.value is None or not np.isfinite(expected):
        return by_law, by_law
    low, high = by_law.low or 0.0, by_law.high or np.inf
    least, most = measured.low or 0.0, measured.high or np.inf
    least, most = (measured.value * (end / measured.value) ** DOUBTED for end in (least, most))
    for off in (1.0, by_law.value / expected):
        if least * off <= high and low <= most * off:
            return by_law, by_law
    ends = {"low": min(low, measured.value), "high": max(high, measured.value)}
    return measured, replace(by_law, **ends)


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


def _within_reach(B_crit: Estimate, batch: np.ndarray) -> Estimate:
    """A bound in place of a bend more than a factor of 2 outside the batches measured."""
    if B_crit.value is None:
        return B_crit
    low, high = B_crit.low or 0.0, B_crit.high or np.inf
    low = 0.0 if B_crit.value < batch[0] / REACH else low
    high = np.inf if B_crit.value > REACH * batch[-1] else high
    return _bracketed(B_crit.value, low, high, B_crit.level)


def _replaced(bound: Estimate, estimate: Estimate) -> Estimate:
    """An estimate that follows from one which is not identified loses its value too."""
    if bound.value is not None:
        return estimate
    low = estimate.low if bound.low is not None else None
    high = estimate.high if bound.high is not None else None
    return Estimate(None, low, high, estimate.level, bound.note)


def _interpolated(
    i: int, fitted: Fitted, overhead: float, reference: float, level: float
) -> Estimate:
    """Without a law; its noise is that between seeds where there are any, else the residuals'."""
    curve = fitted.curves[i]
    noise = fitted.noise[i] * (fitted.mean_noise(i) / fitted.shapes.noise[i])
    logs = np.log(curve.steps)
    at = [
        shape.measured_critical_batch(curve.batch, x, overhead, reference)
        for x in (logs, logs + noise)
    ]
    value = float(at[0])
    estimate = interval(value, at[1], level=level)
    if np.isfinite(value):
        return estimate
    note = "unidentified: the largest batch keeps within the overhead"
    return Estimate(None, estimate.low or float(curve.batch[-1]), None, level, note)


def _excess(curve: StepsCurve, reference: float) -> tuple[float, float]:
    """The batch of the least tokens, and the log of those at the reference over them."""
    used = curve.batch * curve.steps
    at_reference = np.interp(np.log(reference), np.log(curve.batch), np.log(used))
    return float(curve.batch[used.argmin()]), float(at_reference - np.log(used.min()))


def _warnings(fit: CriticalBatch) -> list[str]:
    texts, curve, reference = [], fit.curve, fit.reference
    if fit.status != "converged":
        texts.append(f"{curve.name}: B_crit is {fit.status}")
    if not curve.covers(reference):
        texts.append(f"{curve.name}: CBS is {fit.cbs.note}; --reference-batch smallest")
    elif not fit.is_linear:
        texts.append(
            f"{curve.name}: the reference batch {reference:.4g} takes over {LINEAR:.0%} more tokens"
            f" than smaller ones: scaling from it is not linear; {fit.max_reference:.4g} would do"
        )
    if fit.method == "measured":
        low, high = fit.interpolated.low, fit.interpolated.high
        ends = " to ".join("open" if end is None else f"{end:.4g}" for end in (low, high))
        texts.append(
            f"{curve.name}: S = a + b/B does not fit: its CBS is {fit.by_law.value:.4g}, measured "
            f"is {fit.cbs.value:.4g} ({ends}), which is given"
        )
    return texts
