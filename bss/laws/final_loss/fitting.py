"""Forms fitted to all rows, and without each fold: cells, the largest model, budgets and batches.

Folds weigh forms and measure errors. Intervals are as wide as left-out rows require: of cells
inside of the table, of the largest model and budgets outside. These are few sizes, whose rows share
their error. If they require less than the inside, the outside is the geometric mean of both. 90%
intervals then hold 97% of 473 rows of the largest models of 16 planted tables (derived here).
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from bss.laws.final_loss.forms import Form, losses
from bss.laws.final_loss.law import slopes_of
from bss.laws.final_loss.points import NEAR, LossPoints
from bss.laws.final_loss.residual_gp import left_out
from bss.laws.minimum import FEWEST
from bss.laws.solver import CHUNK, EVERY, ROUND, Solution, repeated, solve

PADDING = 96  # rows: tables up to this size share one compiled program
ROUNDS = 40  # of ten iterations, for a fit that is kept
Unseen = tuple[np.ndarray, np.ndarray]  # losses predicted for a fold, and their variances
NARROWEST = 0.5  # factor of standard deviations: few left-out rows may be near by luck
TOP = 0.1 * 2.0 ** np.arange(3)  # shares of the cells whose budgets are left out as the largest
FAR = 2.0**FEWEST  # times the largest batch left in: an octave for each that is left in at least


class Fold(NamedTuple):
    """Rows that are left out together.

    Attributes:
        kind: what of the rows is unseen: "cell", "params", "tokens" or "batch".
        out: [n], True where a row is left out.
    """

    kind: str
    out: np.ndarray


def folds_of(points: LossPoints) -> list[Fold]:
    """Return groups of cells, the largest model and budgets; of one cell its inner batches.

    Each leaves two sizes of what is left out.
    """
    n, d = points.logs.T[:2]
    if len(points.cells) < 3:  # no fold would leave two
        inner = np.unique(points.batch)[1:-1] if len(points.cells) == 1 else ()
        return [Fold("cell", points.batch == batch) for batch in inner]
    first = [rows[0] for rows in points.cells]
    group = np.empty(len(first), int)
    # One group per start of a block of the solver.
    group[np.lexsort([n[first], d[first]])] = np.arange(len(first)) % CHUNK
    member = group[points.cell]
    folds = [Fold("cell", member == i) for i in range(member.max() + 1)]
    rounding = 1e-9  # of a logarithm
    for kind, axis, share in (("params", 0, 0.0), *(("tokens", 1, top) for top in TOP)):
        x = points.logs[:, axis]
        out = x >= np.quantile(x[first], 1 - share, method="higher") - rounding
        new = (out != folds[-1].out).any()
        if new and points.varies[axis] and len(np.unique(x[~out])) > 1:
            folds.append(Fold(kind, out))
    return [*folds, *_far_batches(points)]


def _far_batches(points: LossPoints) -> list[Fold]:
    """Return a fold of the largest batches of every second cell that has enough, or none."""
    out = np.zeros(len(points.loss), bool)
    wide = []
    for rows in points.cells:
        sizes = np.unique(points.batch[rows])
        if len(sizes) > FEWEST and sizes[-1] > FAR * sizes[FEWEST - 1]:
            wide.append(rows)
    for rows in wide[::-2]:
        out[rows] = points.batch[rows] > points.batch[rows].max() / FAR
    return [Fold("batch", out)] if len(wide) > 1 else []


def solved(
    form: Form,
    points: LossPoints,
    starts: np.ndarray,
    weight: np.ndarray,
    constraints: str,
    rounds: int = EVERY,  # from the fit to all rows a fit without a fold is near its end
) -> Solution:
    """Return a descent from each start [Q, P], with weights [Q, n]."""
    rows = ((0, 0), (0, -len(points.loss) % PADDING))
    data = {"logs": np.pad(points.logs, (rows[1], (0, 0))), "loss": np.pad(points.loss, rows[1])}
    each = repeated(data, len(starts), weight=np.pad(weight, rows))
    problem = form.residual, starts[:, None], *form.bounds(points, constraints), each
    return solve(*problem, iterations=ROUND, rounds=rounds)


def best_fit(
    form: Form,
    points: LossPoints,
    constraints: str,
    starts: np.ndarray | None = None,
) -> Solution:
    """Return the best of all starts [Q, P], by default the form has them, on all rows."""
    starts = form.starts(points, points.weight) if starts is None else starts
    each = np.repeat(points.weight[None], len(starts), axis=0)
    found = solved(form, points, starts, each, constraints, ROUNDS)
    return Solution(*(array[[np.argmin(found.cost)]] for array in found))


def stacked(
    points: LossPoints, folds: Sequence[Fold], each: Sequence[Sequence[Unseen]]
) -> np.ndarray:
    """Return shares [F] of forms: those of the mean with the lowest error at left-out rows.

    Every kind of fold counts as much. Errors are over the noise of a row, and shares are drawn to
    equal ones.

    Args:
        points: the rows.
        folds: what was left out.
        each: of each form the losses predicted for each fold.
    """
    from scipy.optimize import nnls  # of fits; predictions need NumPy only

    count = len(each)
    if count == 1 or not folds:
        return np.full(count, 1 / count)
    noise = points.noise_sd(points.excess, points.least)
    blocks = []
    for kind in dict.fromkeys(fold.kind for fold in folds):
        errors = [
            np.stack([(form[i][0] - points.loss[fold.out]) / noise[fold.out] for form in each], 1)
            for i, fold in enumerate(folds)
            if fold.kind == kind
        ]
        block = np.concatenate(errors)
        blocks.append(block / np.sqrt(len(block)))
    errors = np.concatenate(blocks)
    errors /= np.sqrt(np.sum(errors.mean(axis=1) ** 2))
    drawn = np.eye(count)  # to equal shares, as few folds hardly tell forms apart
    one = 1e3 * np.ones((1, count))  # so large that shares add up to 1
    rows = np.concatenate([errors, drawn, one])
    wanted = np.concatenate([np.zeros(len(errors)), np.full(count, 1 / count), one[0, :1]])
    shares = nnls(rows, wanted)[0]
    return shares / shares.sum()


def mixed(each: Sequence[Sequence[Unseen]], shares: np.ndarray) -> list[Unseen]:
    """Return the losses that a mean of forms predicts for each fold, and their variances."""
    found = []
    for fold in zip(*each, strict=True):
        means = np.array([mean for mean, _ in fold])
        mean = shares @ means
        within = shares @ np.array([variance for _, variance in fold])
        found.append((mean, within + shares @ (means - mean) ** 2))
    return found


def unseen_losses(
    form: Form,
    points: LossPoints,
    fit: Solution,
    folds: Sequence[Fold],
    constraints: str,
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
    """Return the factor of standard deviations within which 90% of the rows of these folds lie.

    It is 1 if there are none.
    """
    near = points.excess <= NEAR
    parts = []
    for fold, (mean, variance) in zip(folds, unseen, strict=True):
        if fold.kind in kinds:
            times = np.abs(points.loss[fold.out] - mean) / np.sqrt(variance)
            parts.append(times[near[fold.out]])
    if not sum(map(len, parts)):
        return 1.0
    # A normal deviation has 5% above each end of the 90% interval.
    return float(np.quantile(np.concatenate(parts), 0.9)) / NormalDist().inv_cdf(0.95)
