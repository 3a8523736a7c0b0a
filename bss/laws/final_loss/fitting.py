"""The law of final losses fitted, and how wide its intervals are.

A form is fitted to all rows and, warm-started, without each fold: eight groups of cells, the
largest model and the largest budgets. Intervals are as wide as left-out rows require: of cells
inside of the table, of the largest model and budgets outside (derived here).
"""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from bss.laws.base import FREE, Constraints
from bss.laws.final_loss.folds import Fold
from bss.laws.final_loss.forms import Form, losses
from bss.laws.final_loss.law import slopes_of
from bss.laws.final_loss.points import NEAR, LossPoints
from bss.laws.final_loss.residual_gp import left_out
from bss.laws.solver import EVERY, Solution, solve_in_rounds

PADDING = 96  # rows: tables up to this size share one compiled program
ROUNDS = 40  # of ten iterations, for a fit that is kept
Unseen = tuple[np.ndarray, np.ndarray]  # losses predicted for a fold, and their variances
NARROWEST = 0.5  # factor of standard deviations: few left-out rows may be near by luck


def solved(
    form: Form,
    points: LossPoints,
    starts: np.ndarray,
    weight: np.ndarray,
    constraints: Constraints,
    rounds: int = EVERY,  # from the fit to all rows a fit without a fold is near its end
) -> Solution:
    """Return a descent from each start [Q, P], with weights [Q, n]."""
    rows = ((0, 0), (0, -len(points.loss) % PADDING))
    data = {"logs": np.pad(points.logs, (rows[1], (0, 0))), "loss": np.pad(points.loss, rows[1])}
    box = form.bounds(points, constraints)
    changed = {"weight": np.pad(weight, rows)}
    return solve_in_rounds(form.residual, starts, box, data, changed, rounds=rounds)


def best_fit(
    form: Form,
    points: LossPoints,
    constraints: Constraints = FREE,
    starts: np.ndarray | None = None,
) -> Solution:
    """Return the best of all starts [Q, P], by default the form has them, on all rows."""
    starts = form.starts(points, points.weight) if starts is None else starts
    each = np.repeat(points.weight[None], len(starts), axis=0)
    return solved(form, points, starts, each, constraints, ROUNDS).best()


def residuals_over_error(points: LossPoints, form: Form, fit: Solution) -> np.ndarray:
    """Return [n], signed residuals of rows given all others, over their expected error."""
    precision = points.gp.precision
    residuals = points.loss - losses(form, fit.parameters[0], points.logs)
    return precision @ residuals / np.sqrt(np.diag(precision))


def unseen_losses(
    form: Form,
    points: LossPoints,
    fit: Solution,
    folds: Sequence[Fold],
    constraints: Constraints,
) -> list[Unseen]:
    """Return losses that a form predicts for each fold without it, and variances.

    Args:
        form: a form of the law.
        points: the rows.
        fit: of the form to all rows.
        folds: rows that are left out together.
        constraints: what is fixed.
    """
    if not folds:
        return []
    outs = [fold.out for fold in folds]
    starts = np.repeat(fit.parameters, len(folds), axis=0)
    weight = points.weight * ~np.array(outs)
    thetas = solved(form, points, starts, weight, constraints).parameters
    lower, upper = form.bounds(points, constraints)
    slopes = slopes_of(form, fit.parameters[0], points.logs, lower < upper)
    fitted = losses(form, thetas, points.logs)
    found = left_out(points.gp, points.loss - fitted, slopes, form.usual[1] ** -2.0, outs)
    pairs = zip(fitted, outs, found, strict=True)
    return [(loss[out] + mean, variance) for loss, out, (mean, variance) in pairs]


def widened(
    points: LossPoints, folds: Sequence[Fold], unseen: Sequence[Unseen], kinds: tuple[str, ...]
) -> float:
    """Return the factor of standard deviations within which 90% of the rows of these folds lie."""
    near, far = points.excess <= NEAR, [np.zeros(0)]
    for fold, (mean, variance) in zip(folds, unseen, strict=True):
        if fold.kind in kinds:
            times = np.abs(points.loss[fold.out] - mean) / np.sqrt(variance)
            far.append(times[near[fold.out]])
    times = np.concatenate(far)
    factor = float(np.quantile(times, 0.9)) / NormalDist().inv_cdf(0.95) if len(times) else 1.0
    return max(factor, NARROWEST)
