"""The law of final losses fitted: forms, weighted by left-out cells, and how wide intervals are.

Each form is fitted to all rows and, warm-started, without each fold: eight groups of cells, the
largest model and the largest budgets. Errors at left-out cells, with the residuals that the other
rows predict, weigh the forms. Intervals are as wide as left-out rows require: those of cells inside
of the table, those of the largest model and budgets outside (derived here).
"""

from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np

from bss.laws.base import Options
from bss.laws.constraints import FREE, Constraints
from bss.laws.final_loss.folds import Fold
from bss.laws.final_loss.forms import Form, losses
from bss.laws.final_loss.law import LossLaw, slopes_of
from bss.laws.final_loss.points import NEAR, LossPoints
from bss.laws.final_loss.residual_gp import inverse, left_out
from bss.laws.resampling import rms
from bss.laws.solver import Solution, solve_in_rounds

PADDING = 96  # rows: tables up to this size share one compiled program
ROUNDS = 40  # of ten iterations, for a fit that is kept
REFIT_ROUNDS = 8  # for a fit without a fold, which starts from the fit to all rows
POWER = 4.0  # of a left-out error, by which a form weighs: twice the error is 1/16 of the weight
NARROWEST = 0.5  # factor of standard deviations: few left-out rows may be near by luck


def solved(
    form: Form,
    points: LossPoints,
    starts: np.ndarray,
    weight: np.ndarray,
    constraints: Constraints,
    rounds: int = REFIT_ROUNDS,
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
    """Return the best of all starts [Q, P], by default those of the form, on all rows."""
    starts = form.starts(points, points.weight) if starts is None else starts
    each = np.repeat(points.weight[None], len(starts), axis=0)
    return solved(form, points, starts, each, constraints, ROUNDS).best()


def fit_law(
    points: LossPoints,
    forms: Mapping[str, Form],
    fits: Mapping[str, Solution],
    folds: Sequence[Fold],
    constraints: Constraints,
    options: Options,
) -> tuple[LossLaw, list[np.ndarray]]:
    """Return the law, and the losses that it predicts for each fold without it.

    Args:
        points: the rows.
        forms: by name.
        fits: of each to all rows.
        folds: those of `folds_of`; others may follow.
        constraints: what is fixed.
        options: number and seed of the draws of the law.
    """
    precision = points.gp.precision
    blocks = [inverse(precision[np.ix_(fold.out, fold.out)]) for fold in folds]
    unseen = {
        name: _unseen(forms[name], points, fit, folds, blocks, constraints)
        for name, fit in fits.items()
    }
    errors = {n: _cell_error(points, folds, each) for n, each in unseen.items()}
    weights = weighed(errors)
    share = np.array([*weights.values()])[:, None]
    expected, times = [], []
    for fold, *each in zip(folds, *unseen.values(), strict=True):
        means, variances = (np.array(x) for x in zip(*each, strict=True))
        mean = (share * means).sum(axis=0)
        variance = (share * (variances + (means - mean) ** 2)).sum(axis=0)
        expected.append(mean)
        times.append(np.abs(points.loss[fold.out] - mean) / np.sqrt(variance))
    inside = _widened(points, folds, times, ("cell",))
    law = LossLaw(
        thetas={name: fit.parameters[0] for name, fit in fits.items()},
        weights=weights,
        cv_errors=errors,
        widened={
            "inside": inside,
            "outside": max(_widened(points, folds, times, ("params", "tokens")), inside),
        },
        converged=all(bool(fit.converged[0]) for fit in fits.values()),
        points=points,
        constraints=constraints,
        resamples=options.resamples,
        seed=options.seed,
    )
    return law, expected


def weighed(errors: Mapping[str, float]) -> dict[str, float]:
    """Return weights of forms, which sum to 1, by their left-out errors."""
    error = np.maximum(list(errors.values()), 1e-9)
    weight = (error / error.min()) ** -POWER
    return dict(zip(errors, (weight / weight.sum()).tolist(), strict=True))


def residuals_over_error(
    points: LossPoints, forms: Mapping[str, Form], fits: Mapping[str, Solution]
) -> np.ndarray:
    """Return [n], signed residuals of rows given all others, over their expected error."""
    precision, found = points.gp.precision, []
    for name, fit in fits.items():
        residuals = points.loss - losses(forms[name], fit.parameters[0], points.logs)
        found.append(precision @ residuals / np.sqrt(np.diag(precision)))
    return np.mean(found, axis=0)


def _unseen(
    form: Form,
    points: LossPoints,
    fit: Solution,
    folds: Sequence[Fold],
    blocks: Sequence[np.ndarray],
    constraints: Constraints,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Losses that a form predicts for each fold without it, and variances."""
    if not folds:
        return []
    outs = [fold.out for fold in folds]
    starts = np.repeat(fit.parameters, len(folds), axis=0)
    weight = points.weight * ~np.array(outs)
    thetas = solved(form, points, starts, weight, constraints).parameters
    lower, upper = form.bounds(points, constraints)
    slopes = slopes_of(form, fit.parameters[0], points.logs, lower < upper)
    fitted = losses(form, thetas, points.logs)
    found = left_out(points.gp, points.loss - fitted, slopes, form.usual[1] ** -2.0, outs, blocks)
    pairs = zip(fitted, outs, found, strict=True)
    return [(loss[out] + mean, variance) for loss, out, (mean, variance) in pairs]


def _cell_error(points: LossPoints, folds: Sequence[Fold], unseen: list) -> float:
    """Root mean square error near the best of left-out cells, each fold once; 1 without any."""
    near = points.excess <= NEAR
    errors = [
        rms((mean - points.loss[fold.out])[near[fold.out]])
        for fold, (mean, _) in zip(folds, unseen, strict=True)
        if fold.kind == "cell" and near[fold.out].any()
    ]
    return rms(errors) if errors else 1.0


def _widened(
    points: LossPoints, folds: Sequence[Fold], times: list[np.ndarray], kinds: tuple[str, ...]
) -> float:
    """The factor of standard deviations with which 90% of the rows of these folds lie within."""
    near = points.excess <= NEAR
    each = [x[near[fold.out]] for fold, x in zip(folds, times, strict=True) if fold.kind in kinds]
    far = np.concatenate(each) if each else np.zeros(0)
    factor = float(np.quantile(far, 0.9)) / NormalDist().inv_cdf(0.95) if len(far) else 1.0
    return max(factor, NARROWEST)
