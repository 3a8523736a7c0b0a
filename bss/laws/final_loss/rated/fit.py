"""The law of (N, D, B, rate) fitted to every row: its forms, weighed with their departures.

Each form is fitted to all rows and, warm-started, without each of `FOLDS` groups of cells, without
the largest models and budgets, and without the smallest. What the left-out rows are off by, with
the departure that the others tell, weighs the forms and chooses the departure, for every use by
itself; and the intervals are as wide as the errors there say (derived here).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bss.laws.final_loss.averaged import weighed
from bss.laws.final_loss.forms.form import losses
from bss.laws.final_loss.left_out import Fold, cells_in_turn, ends
from bss.laws.final_loss.points import USES, uses
from bss.laws.final_loss.rated.departure import (
    AMPLITUDES,
    LENGTHS,
    Departure,
    left_out,
    precision_of,
    scatter,
)
from bss.laws.final_loss.rated.forms import RATED, RatedForm
from bss.laws.final_loss.rated.law import RatedLaw, prior_of, slopes_of
from bss.laws.final_loss.rated.points import RatedPoints
from bss.laws.final_loss.solved import ROUNDS, solved
from bss.laws.fitting.bootstrap import rms
from bss.laws.fitting.solve import Solution

FOLDS = 8
NEAR = 0.1  # nats above the best of the cell, up to which rows judge
NARROWEST = 0.5  # of what the constants say, that an interval may be
NORMAL_90 = 1.645


class _Judged(NamedTuple):
    """Of one form and departure: per fold what its rows were expected to be, and variances."""

    expected: list[np.ndarray]
    variance: list[np.ndarray]


def fit_rated(points: RatedPoints, names: Sequence[str] | None = None) -> RatedLaw:
    """Fit the law.

    Args:
        points: the rows.
        names: of the forms; None for all.

    Raises:
        InputError: a form is unknown.
    """
    forms = {name: RATED[name] for name in names or RATED}
    design, folds = points.design, folds_of(points)
    fits = {name: best_fit(form, points) for name, form in forms.items()}
    thetas = {n: _without(forms[n], points, fit, folds) for n, fit in fits.items()}
    slopes = {n: slopes_of(forms[n], x.parameters[0], design.logs, design) for n, x in fits.items()}
    laws = {n: [losses(forms[n], x, design.logs) for x in each] for n, each in thetas.items()}
    judged = {
        departure: _judged(departure, points, folds, laws, slopes)
        for departure in (Departure(s, x) for s in AMPLITUDES for x in LENGTHS)
    }
    wanted = _rows_by_use(points, folds)
    errors = {
        use: {
            departure: {n: _error(points, folds, one, wanted[use]) for n, one in by.items()}
            for departure, by in judged.items()
        }
        for use in USES
    }
    chosen = {use: min(at, key=lambda one: min(at[one].values())) for use, at in errors.items()}
    weights = {use: weighed(errors[use][chosen[use]]) for use in USES}
    mixed = [_mixed(judged[chosen[use]], weights[use], i) for i, use in enumerate(_use_of(folds))]
    return RatedLaw(
        thetas={name: fit.parameters[0] for name, fit in fits.items()},
        weights=weights,
        judged={use: errors[use][chosen[use]] for use in USES},
        departures=chosen,
        widened={use: _widened(points, folds, mixed, wanted[use]) for use in USES},
        left_out={k: _left_out(points, folds, mixed, k) for k in ("cell", "params", "tokens")},
        converged=all(bool(fit.converged[0]) for fit in fits.values()),
        points=points,
    )


def folds_of(points: RatedPoints) -> list[Fold]:
    """Groups of cells in turn and the ends; of a single cell its batches in turn."""
    design, every = points.design, np.ones(len(points.loss), bool)
    cells = cells_in_turn(design, every, FOLDS)
    if cells:
        return [*cells, *ends(design, every)]
    batches = np.unique(points.batch)
    return [Fold("cell", points.batch == batch) for batch in batches] if len(batches) > 2 else []


def best_fit(form: RatedForm, points: RatedPoints) -> Solution:
    """The best of all starts, on all rows."""
    design, weight = points.design, points.weight
    starts = form.starts(design, weight)
    each = np.repeat(weight[None], len(starts), axis=0)
    return solved(form, design, starts, each, rounds=ROUNDS).best()


def _without(
    form: RatedForm, points: RatedPoints, fit: Solution, folds: list[Fold]
) -> list[np.ndarray]:
    """Parameters [P] without each fold."""
    if not folds:
        return []
    weight = points.weight * ~np.array([fold.out for fold in folds])
    starts = np.repeat(fit.parameters, len(folds), axis=0)
    return list(solved(form, points.design, starts, weight).parameters)


def _judged(
    departure: Departure,
    points: RatedPoints,
    folds: list[Fold],
    laws: dict[str, list[np.ndarray]],
    slopes: dict[str, np.ndarray],
) -> dict[str, _Judged]:
    """Of each form, by its losses [n] without each fold, and its slopes [n, P]."""
    precision = precision_of(departure, points.design.logs, scatter(points.excess, points.count))
    turned = {name: precision @ x for name, x in slopes.items()}
    inner = [x.T @ turned[name] + np.diag(prior_of(RATED[name])) for name, x in slopes.items()]
    judged = {name: _Judged([], []) for name in laws}
    for i, fold in enumerate(folds):
        law = np.array([each[i] for each in laws.values()])
        missed, spread = left_out(precision, points.loss - law, [*turned.values()], inner, fold.out)
        means = law[:, fold.out] + missed
        for one, mean, variance in zip(judged.values(), means, spread, strict=True):
            one.expected.append(mean)
            one.variance.append(variance)
    return judged


def _use_of(folds: list[Fold]) -> list[str]:
    return [USES[0] if fold.kind == "cell" else fold.use for fold in folds]


def _rows_by_use(points: RatedPoints, folds: list[Fold]) -> dict[str, list[np.ndarray]]:
    """For each use, and fold, which of its rows are asked in that way and near their best."""
    near, logs = points.excess <= NEAR, points.design.logs[:, :2]
    asked: dict[str, list[np.ndarray]] = {use: [] for use in USES}
    for fold, use in zip(folds, _use_of(folds), strict=True):
        at = np.array(uses(logs[fold.out], logs[~fold.out]))
        for one in USES:
            counts = (use == USES[0]) if one == USES[0] else (use == one) & (at == one)
            asked[one].append(near[fold.out] & counts)
    for one in USES[1:]:  # where nothing can be asked so, what is asked inside
        if not any(rows.any() for rows in asked[one]):
            asked[one] = asked[USES[0]]
    return asked


def _error(points: RatedPoints, folds: list[Fold], one: _Judged, wanted: list[np.ndarray]) -> float:
    """Root mean square over folds, so that each counts once."""
    missed = [
        rms((expected - points.loss[fold.out])[rows])
        for fold, expected, rows in zip(folds, one.expected, wanted, strict=True)
        if rows.any()
    ]
    return rms(missed) if missed else 1.0


def _mixed(
    judged: dict[str, _Judged], weights: dict[str, float], i: int
) -> tuple[np.ndarray, np.ndarray]:
    """The mean of the forms at a fold, and its variance with their spread."""
    share = np.array([weights[n] for n in judged])[:, None]
    each = np.array([one.expected[i] for one in judged.values()])
    mean = (share * each).sum(axis=0)
    variance = np.array([one.variance[i] for one in judged.values()])
    return mean, (share * (variance + (each - mean) ** 2)).sum(axis=0)


def _widened(
    points: RatedPoints,
    folds: list[Fold],
    mixed: list[tuple[np.ndarray, np.ndarray]],
    wanted: list[np.ndarray],
) -> float:
    """By how much standard deviations are wider, so that 90% of left-out rows lie within."""
    parts = [
        (np.abs(points.loss[fold.out] - mean) / np.sqrt(variance))[rows]
        for fold, (mean, variance), rows in zip(folds, mixed, wanted, strict=True)
    ]
    far = np.concatenate(parts) if parts else np.zeros(0)
    return max(float(np.quantile(far, 0.9)) / NORMAL_90, NARROWEST) if len(far) else 1.0


def _left_out(
    points: RatedPoints, folds: list[Fold], mixed: list[tuple[np.ndarray, np.ndarray]], kind: str
) -> float | None:
    parts = [
        (mean - points.loss[fold.out])[points.excess[fold.out] <= NEAR]
        for fold, (mean, _) in zip(folds, mixed, strict=True)
        if fold.kind == kind
    ]
    return rms(np.concatenate(parts)) if parts else None
