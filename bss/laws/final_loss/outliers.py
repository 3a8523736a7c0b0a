"""Rows of final losses that are far from all others: single ones, and all LRs of a batch.

A row is compared with what the forms and the other rows predict of it. It may differ by the noise
at the predicted loss, never at its own: so a loss that is too high is found like one that is too
low. If all LRs of one (N, D, B) are off, each is as the others say. Their common shift is therefore
compared with what the rows of other batches predict. Rows that may have diverged hardly count, and
are no outliers (derived here).
"""

import numpy as np

from bss.laws.base import Outlier
from bss.laws.final_loss.points import LossPoints
from bss.laws.resampling import robust_scale

OUTLIER = 5.0  # expected errors from which a row is an outlier: one in two million by chance
MOST_OUTLIERS = 0.1  # share of rows: more than that are a law that does not fit


def far_rows(points: LossPoints, expected: np.ndarray) -> np.ndarray:
    """Return [n], by how many expected errors a row that is left out is off; 0 for the others.

    Args:
        points: the rows.
        expected: [n] nats, of the forms.
    """
    residuals = points.loss - expected
    precision = points.gp.precision
    off = np.zeros(len(residuals))
    single = np.where(points.diverged, 0.0, _single(points, residuals, precision))
    limit = OUTLIER * max(robust_scale(single[~points.diverged]), 1.0)
    rows = np.flatnonzero(np.abs(single) > limit)
    if len(rows):  # an outlier makes rows near it look far: they are asked again without it
        again = _given_others(points, residuals, precision, rows)
        rows = rows[np.abs(again) > limit]
        off[rows] = single[rows]
    single_ones = np.flatnonzero(off)
    for group in _batches(points):
        here = group[(off[group] == 0) & ~points.diverged[group]]
        if len(here) > 1:
            shift = _shift(points, residuals, precision, here, single_ones)
            off[here] = shift if abs(shift) > limit else 0.0
    return off if (off != 0).mean() <= MOST_OUTLIERS else np.zeros(len(off))


def _batches(points: LossPoints) -> list[np.ndarray]:
    """The rows of each (N, D, B) that has several LRs."""
    if not points.with_lr:
        return []
    at = np.unique(np.stack([points.cell, points.batch]), axis=1, return_inverse=True)[1].ravel()
    order = np.argsort(at, kind="stable")
    every = np.split(order, np.flatnonzero(np.diff(at[order])) + 1)
    return [rows for rows in every if len(rows) > 1]


def _single(points: LossPoints, residuals: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """[n], of each row what the others do not predict, over its expected error."""
    known = np.diag(precision)
    missed = precision @ residuals / known
    variance = 1 / known + _more_noise(points, missed, np.arange(len(residuals)))
    return missed / np.sqrt(variance)


def _given_others(
    points: LossPoints, residuals: np.ndarray, precision: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """Errors of some rows, as the rows outside of them predict them, over the expected ones."""
    missed, spread = _missed(points, residuals, precision, rows)
    return missed / np.sqrt(np.diag(spread))


def _shift(
    points: LossPoints,
    residuals: np.ndarray,
    precision: np.ndarray,
    rows: np.ndarray,
    outliers: np.ndarray,
) -> float:
    """The common shift of some rows, which all others do not predict, over its expected error.

    Outliers are no others: one at a batch makes all LRs of the batch look far.
    """
    both = np.concatenate([rows, outliers])
    missed, spread = _missed(points, residuals, precision, both)
    missed = missed[: len(rows)]
    spread = spread[: len(rows), : len(rows)]
    weights = np.linalg.solve(spread, np.ones(len(rows)))
    return float(weights @ missed / np.sqrt(weights.sum()))


def _missed(
    points: LossPoints, residuals: np.ndarray, precision: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Errors of some rows, as the rows outside of them predict them, and their covariance."""
    spread = np.linalg.inv(precision[np.ix_(rows, rows)])
    missed = spread @ (precision[rows] @ residuals)
    spread[np.diag_indices(len(rows))] += _more_noise(points, missed, rows)
    return missed, spread


def _more_noise(points: LossPoints, missed: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Variances of noise at the predicted losses minus those at the rows' own, in nats²; 0 at most.

    A low outlier is the lowest loss of its (N, D), from which the noise of all others is counted.
    """
    least = points.least[rows]
    count = points.count[rows]
    own = points.noise_sd(points.excess[rows], least, count)
    there = points.noise_sd(points.excess[rows] - missed, least, count)
    return np.minimum(there**2 - own**2, 0.0)


def named(points: LossPoints, off: np.ndarray) -> tuple[Outlier, ...]:
    """Return the outliers, the farthest first; `off` is of `far_rows`."""
    found = [_outlier(points, int(i), float(off[i])) for i in np.flatnonzero(off)]
    return tuple(sorted(found, key=lambda one: -one.times))


def _outlier(points: LossPoints, i: int, off: float) -> Outlier:
    names = {"params": points.params, "tokens": points.tokens, "batch_tokens": points.batch}
    if points.with_lr:
        names["lr"] = points.lr
    others = (points.cell == points.cell[i]) & (np.arange(len(points.loss)) != i)
    near = others if others.any() else np.ones(len(others), bool)
    above = float(points.loss[i] - np.median(points.loss[near]))
    at: dict[str, float | str] = {name: float(column[i]) for name, column in names.items()}
    return Outlier(at, "", abs(above) * float(np.sign(off)), abs(off), "nats")
