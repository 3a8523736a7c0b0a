"""Critical batches judged: batches left out of the steps, sizes left out of the law, outliers.

A left-out point is predicted by the law of the curve's other batches. An outlier is one whose
residual, over the scatter of the others, is rarer than one in a hundred in a curve of as many
points, by Student's t (derived here).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from bss.laws.critical.curves import LEAST_BATCHES, StepsCurve
from bss.laws.critical.shape import fit_shapes, log_steps
from bss.laws.critical.values import CriticalBatch, LeftOutSteps, OutlierSteps
from bss.laws.held_out import HeldOut, check_hold_out
from bss.laws.power import PowerFit, fit_power, unidentified
from bss.laws.resampling import rms

ROUNDING = 0.002  # of steps, of which no batch is an outlier
RARE = 0.01
TELLING = 3  # degrees of freedom from which a point is called an outlier


Unseen = Sequence[tuple[np.ndarray, np.ndarray]]
"""Per curve, by fits to its other batches: errors of log steps at each, and kappa, [n]."""


def without_each(curves: Sequence[StepsCurve], alpha: float | None) -> Unseen:
    """What each curve is without each of its batches; NaN where it has none to spare."""
    least = LEAST_BATCHES + (alpha is None)
    able = [
        (i, j) for i, c in enumerate(curves) for j in range(len(c.batch)) if len(c.batch) > least
    ]
    told = [(np.full(len(c.batch), np.nan), np.full(len(c.batch), np.nan)) for c in curves]
    if not able:
        return told
    shapes = fit_shapes([_without(curves[i], j) for i, j in able], alpha)
    for k, (i, j) in enumerate(able):
        told[i][0][j] = log_steps(shapes, k, curves[i].batch[j]) - np.log(curves[i].steps[j])
        told[i][1][j] = shapes.kappa[k]
    return told


def _without(curve: StepsCurve, j: int) -> StepsCurve:
    columns = {name: np.delete(getattr(curve, name), j) for name in ("batch", "steps")}
    return replace(curve, **columns)


def left_out_of(unseen: Unseen, alpha: float | None) -> LeftOutSteps:
    """The errors of a form; None where no curve has a batch to spare."""
    errors = [error for error, _ in unseen]
    inside, edges = ([e[s] for e in errors] for s in (slice(1, -1), [0, -1]))
    told = (np.concatenate(each) for each in (inside, edges))
    ends = (rms(e) if np.isfinite(e).any() else None for e in told)
    return LeftOutSteps("exponent of B free" if alpha is None else f"S = a + b/B^{alpha:g}", *ends)


def held_out(
    curves: Sequence[StepsCurve],
    unseen: Unseen,
    values: Sequence[float | None],
    law: PowerFit | None,
    by: Sequence[str],
) -> tuple[HeldOut, ...]:
    """What a user leaves out in turn: batches of every curve, or curves of the law through them.

    Raises:
        InputError: another group, or too few of them.
    """
    return tuple(_held_out(curves, unseen, values, law, one) for one in by)


def _held_out(curves, unseen, values, law, by) -> HeldOut:
    most = max(len(curve.batch) for curve in curves)
    told = [(c, v) for c, v in zip(curves, values, strict=True) if v is not None] if law else []
    groups, least = (most, LEAST_BATCHES + 1) if by == "batch" else (len(told), 3)
    check_hold_out(by, ("batch", "cell"), groups, least)
    if by == "batch":
        labels = [f"batch={batch:g}" for curve in curves for batch in curve.batch]
        return HeldOut.of(by, "log steps", labels, np.concatenate([error for error, _ in unseen]))
    errors = []
    for i in range(len(told)):
        x = {n: np.array([getattr(curve, n) for curve, _ in told]) for n in law.variables}
        rest = {name: np.delete(column, i) for name, column in x.items()}
        if unidentified(rest):
            errors.append(np.nan)
            continue
        y = np.delete([value for _, value in told], i)
        other = fit_power(y, rest, unit=law.unit, level=law.level)
        row = other.design({name: column[i : i + 1] for name, column in x.items()})[0]
        line = [np.log(other.coefficient.value or 1.0), *(p.value for p in other.exponents)]
        errors.append(float(row @ line) - np.log(told[i][1]))
    names = [curve.name for curve, _ in told]
    return HeldOut.of(by, "log critical batch", names, np.array(errors))


def outliers(fits: Sequence[CriticalBatch], unseen: Unseen) -> list[OutlierSteps]:
    """The points that do not fit the others of their curve."""
    named = []
    for at, (error, kappa) in zip(fits, unseen, strict=True):
        missed, count = -np.array(at.residuals), len(at.residuals)
        if count - LEAST_BATCHES < TELLING or not np.isfinite(error).all():
            continue
        share = np.clip(missed / np.where(error == 0, np.inf, error), 1e-6, 1.0)  # 1 less leverage
        others = np.maximum(np.sum(missed**2) - missed**2 / share, count * ROUNDING**2)
        times = np.abs(missed) / np.sqrt(share * others / (count - LEAST_BATCHES))
        i = int(np.argmax(times))
        if abs(missed[i]) < ROUNDING:
            continue
        if count * 2 * stats.t.sf(times[i], count - LEAST_BATCHES) < RARE:
            model, target = at.curve.model, at.curve.target_loss
            far = float(at.curve.batch[i]), -float(error[i]), float(times[i])
            named.append(OutlierSteps(model, target, *far, float(kappa[i])))
    return named
