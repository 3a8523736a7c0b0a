"""The law of final losses fitted: its forms, weighed with their departures by left-out rows.

Each form is fitted to all rows and, warm-started, without each of eight groups of cells, without
the largest models and budgets, and without the smallest. What the left-out rows are off by, with
the departure that the others tell, weighs the forms and chooses the departure, for every regime by
itself; and the intervals are as wide as the errors there say (derived here).
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bss.laws.constraints import FREE, Constraints
from bss.laws.final_loss.departure import (
    AMPLITUDES,
    LENGTHS,
    Departure,
    left_out,
    precision_of,
    scatter,
)
from bss.laws.final_loss.folds import Fold
from bss.laws.final_loss.forms import Form, losses
from bss.laws.final_loss.law import LossLaw, slopes_of
from bss.laws.final_loss.points import REGIMES, LossPoints, regimes
from bss.laws.resampling import rms
from bss.laws.solver import Solution, solve_in_rounds

PADDING = 96  # rows: tables up to this size share one compiled program
ROUNDS = 40  # of ten iterations, for a fit that is kept
REFIT_ROUNDS = 8
NEAR = 0.1  # nats above the best of the cell, up to which rows judge
POWER = 4.0  # of a left-out error, by which a form weighs
LEAST = 0.05  # weight below which a form is left out
NARROWEST = 0.5  # of what the constants say, that an interval may be
FAR = 6.0  # times its expected error, from which a row is an outlier
NORMAL_90 = 1.645


class Unseen(NamedTuple):
    """What rows were expected to be without their fold, and its variance: a pair for each fold."""

    expected: list[np.ndarray]
    variance: list[np.ndarray]


def solved(
    form: Form,
    points: LossPoints,
    starts: np.ndarray,
    weight: np.ndarray,
    constraints: Constraints,
    rounds: int = REFIT_ROUNDS,
) -> Solution:
    """A descent from each start [Q, P], of weights [Q, n]."""
    rows = ((0, 0), (0, -len(points.loss) % PADDING))
    data = {"logs": np.pad(points.logs, (rows[1], (0, 0))), "loss": np.pad(points.loss, rows[1])}
    box = form.bounds(points, constraints)
    changed = {"weight": np.pad(weight, rows)}
    return solve_in_rounds(form.residual, starts, box, data, changed, rounds=rounds)


def best_fit(form: Form, points: LossPoints, constraints: Constraints = FREE) -> Solution:
    """The best of all starts, on all rows."""
    starts = form.starts(points, points.weight)
    each = np.repeat(points.weight[None], len(starts), axis=0)
    return solved(form, points, starts, each, constraints, ROUNDS).best()


def fit_law(
    points: LossPoints,
    forms: Mapping[str, Form],
    fits: Mapping[str, Solution],
    folds: list[Fold],
    constraints: Constraints = FREE,
) -> tuple[LossLaw, Unseen]:
    """The law, and what it expects of each fold.

    Args:
        points: the rows.
        forms: by name.
        fits: of each to all rows.
        folds: those with a regime weigh; a user's follow.
        constraints: what is fixed.
    """
    thetas = {n: _without(forms[n], points, fit, folds, constraints) for n, fit in fits.items()}
    slopes = {n: _slopes(forms[n], points, fit, constraints) for n, fit in fits.items()}
    laws = {n: [losses(forms[n], x, points.logs) for x in each] for n, each in thetas.items()}
    unseen = {
        departure: _unseen(departure, points, folds, forms, laws, slopes)
        for departure in (Departure(s, x) for s in AMPLITUDES for x in LENGTHS)
    }
    judging = _rows_by_regime(points, folds)
    errors = {
        regime: {
            departure: {n: _error(points, folds, one, rows) for n, one in by.items()}
            for departure, by in unseen.items()
        }
        for regime, rows in judging.items()
    }
    chosen = {one: min(at, key=lambda d: min(at[d].values())) for one, at in errors.items()}
    weights = {one: weighed(errors[one][chosen[one]]) for one in REGIMES}
    mixed = Unseen([], [])
    for i, fold in enumerate(folds):
        logs = points.logs[:, :2]
        at = regimes(logs[fold.out], logs[~fold.out])
        each = {one: _mixed(unseen[chosen[one]], weights[one], i) for one in REGIMES}
        rows = [fold.regime or one for one in at.tolist()]
        mean, variance = np.array([np.array(each[one])[:, j] for j, one in enumerate(rows)]).T
        mixed.expected.append(mean)
        mixed.variance.append(variance)
    law = LossLaw(
        thetas={name: fit.parameters[0] for name, fit in fits.items()},
        weights=weights,
        cv_errors={one: errors[one][chosen[one]] for one in REGIMES},
        departures=chosen,
        widened={one: _widened(points, folds, mixed, judging[one], one) for one in REGIMES},
        converged=all(bool(fit.converged[0]) for fit in fits.values()),
        points=points,
        constraints=constraints,
    )
    return law, mixed


def weighed(errors: Mapping[str, float]) -> dict[str, float]:
    """Weights of forms, which sum to 1, by their left-out errors; small ones are 0."""
    error = np.maximum(list(errors.values()), 1e-9)
    weight = (error / error.min()) ** -POWER
    weight = np.where(weight / weight.sum() < LEAST, 0.0, weight)
    return dict(zip(errors, (weight / weight.sum()).tolist(), strict=True))


def outliers(
    points: LossPoints, forms: Mapping[str, Form], fits: Mapping[str, Solution]
) -> np.ndarray:
    """[n], by how many times its expected error each row is off what all others say; signed.

    What they say is a form with the departure of the least freedom through them; where none are
    near it is the form alone.
    """
    departure = Departure(1.0, LENGTHS[-1])
    precision = precision_of(departure, points.logs, scatter(points.excess, points.count))
    found = []
    for name, fit in fits.items():
        missed = points.loss - losses(forms[name], fit.parameters[0], points.logs)
        found.append(precision @ missed / np.sqrt(np.diag(precision)))
    return np.mean(found, axis=0)


def _slopes(form: Form, points: LossPoints, fit: Solution, constraints: Constraints) -> np.ndarray:
    lower, upper = form.bounds(points, constraints)
    return slopes_of(form, fit.parameters[0], points.logs, lower < upper)


def _without(
    form: Form, points: LossPoints, fit: Solution, folds: list[Fold], constraints: Constraints
) -> list[np.ndarray]:
    """Parameters [P] without each fold."""
    if not folds:
        return []
    weight = points.weight * ~np.array([fold.out for fold in folds])
    starts = np.repeat(fit.parameters, len(folds), axis=0)
    return list(solved(form, points, starts, weight, constraints).parameters)


def _unseen(
    departure: Departure,
    points: LossPoints,
    folds: list[Fold],
    forms: Mapping[str, Form],
    laws: dict[str, list[np.ndarray]],
    slopes: dict[str, np.ndarray],
) -> dict[str, Unseen]:
    """Of each form, by its losses [n] without each fold, and its slopes [n, P]."""
    precision = precision_of(departure, points.logs, scatter(points.excess, points.count))
    turned = {name: precision @ x for name, x in slopes.items()}
    inner = [x.T @ turned[n] + np.diag(forms[n].usual[1] ** -2.0) for n, x in slopes.items()]
    unseen = {name: Unseen([], []) for name in laws}
    for i, fold in enumerate(folds):
        law = np.array([each[i] for each in laws.values()])
        missed, spread = left_out(precision, points.loss - law, [*turned.values()], inner, fold.out)
        means = law[:, fold.out] + missed
        for one, mean, variance in zip(unseen.values(), means, spread, strict=True):
            one.expected.append(mean)
            one.variance.append(variance)
    return unseen


def _rows_by_regime(points: LossPoints, folds: list[Fold]) -> dict[str, list[np.ndarray]]:
    """For each regime, and fold, which of its rows judge it: so asked, and near their best."""
    near, logs = points.excess <= NEAR, points.logs[:, :2]
    judging: dict[str, list[np.ndarray]] = {one: [] for one in REGIMES}
    for fold in folds:
        at = regimes(logs[fold.out], logs[~fold.out])
        for one in REGIMES:
            counts = (fold.regime == one) & ((at == one) | (one == REGIMES[0]))
            judging[one].append(near[fold.out] & counts)
    for one in REGIMES[1:]:  # where nothing can be asked so, what is asked inside
        if not any(rows.any() for rows in judging[one]):
            judging[one] = judging[REGIMES[0]]
    return judging


def _error(points: LossPoints, folds: list[Fold], one: Unseen, rows: list[np.ndarray]) -> float:
    """Root mean square over folds, so that each counts once."""
    missed = [
        rms((expected - points.loss[fold.out])[here])
        for fold, expected, here in zip(folds, one.expected, rows, strict=True)
        if here.any()
    ]
    return rms(missed) if missed else 1.0


def _mixed(
    unseen: dict[str, Unseen], weights: dict[str, float], i: int
) -> tuple[np.ndarray, np.ndarray]:
    """The mean of the forms at a fold, and its variance with their spread."""
    share = np.array([weights[n] for n in unseen])[:, None]
    each = np.array([one.expected[i] for one in unseen.values()])
    mean = (share * each).sum(axis=0)
    variance = np.array([one.variance[i] for one in unseen.values()])
    return mean, (share * (variance + (each - mean) ** 2)).sum(axis=0)


def _widened(
    points: LossPoints, folds: list[Fold], mixed: Unseen, judging: list[np.ndarray], regime: str
) -> float:
    """By how much standard deviations are wider, so that 90% of left-out rows lie within.

    Beyond the table more, and never less than the constants say: what is asked may be farther out.
    """
    share, least = (0.9, NARROWEST) if regime == REGIMES[0] else (0.97, 1.0)
    parts = [
        (np.abs(points.loss[fold.out] - mean) / np.sqrt(variance))[rows]
        for fold, mean, variance, rows in zip(folds, *mixed, judging, strict=True)
    ]
    far = np.concatenate(parts) if parts else np.zeros(0)
    return max(float(np.quantile(far, share)) / NORMAL_90, least) if len(far) else 1.0
