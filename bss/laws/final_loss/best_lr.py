"""The best learning rate of every measured (N, D), and how it grows, by the law of final losses."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bss.laws.base import SPANS, Estimate, interval, too_wide
from bss.laws.final_loss.best import drawn_minimum, regressions, separable
from bss.laws.final_loss.law import LossLaw
from bss.laws.final_loss.points import VARIED
from bss.laws.minimum import parabola_vertex

SYMBOLS = {"params": "N", "tokens": "D", "batch": "B"}
NEAR_BEST = 0.03  # nats above the best batch, up to which batches count: runs are near it


@dataclass(frozen=True)
class BestLR:
    """At one N and D; batches in tokens, learning rates per step.

    Attributes:
        params, tokens: N and D.
        batch: of the least loss over batches and learning rates.
        lr: the best one at that batch; without a value if those tried do not bracket it.
    """

    params: float
    tokens: float
    batch: float
    lr: Estimate


@dataclass(frozen=True)
class BestLRs:
    """Best learning rates.

    Attributes:
        optima: of each measured (N, D).
        exponents: x, y, p of the best learning rate ∝ N^x·D^y·B^p, by "N", "D", "B"; at fixed N
            and D it follows the batch by the last.
    """

    optima: tuple[BestLR, ...]
    exponents: dict[str, Estimate]


def best_lrs(law: LossLaw, batches: Sequence[float | None], level: float) -> BestLRs:
    """Return the best learning rates of all (N, D).

    Args:
        law: with learning rates.
        batches: per (N, D) the best batch in tokens; None for that of the law.
        level: of intervals.
    """
    points, optima = law.points, []
    for size, rows, given in zip(points.sizes, points.cells, batches, strict=True):
        batch = given or law.curve(*size)[2]
        best = best_lr(law, *size, batch, level)
        optima.append(BestLR(*size, batch, _bracketed(law, rows, batch, best)))
    return BestLRs(tuple(optima), _exponents(law, level))


def best_lr(law: LossLaw, params: float, tokens: float, batch: float, level: float) -> Estimate:
    """Return the best learning rate; without a value if the loss falls to the end of the grid."""
    losses = law.draws(params, tokens, batch, law.grid[1])
    return _optimum(law.grid[1], losses, law.seed, level, "learning rate")


def best_batch_at(law: LossLaw, params: float, tokens: float, lr: float, level: float) -> Estimate:
    """Return the best batch in tokens at a given learning rate."""
    losses = law.draws(params, tokens, law.grid[0], lr)
    return _optimum(law.grid[0], losses, law.seed, level, "batch")


def _optimum(grid: np.ndarray, losses: np.ndarray, seed: int, level: float, what: str) -> Estimate:
    """Where expected losses and draws [1 + R, G] over a grid are least, if inside of it."""
    value, *draws = np.exp(drawn_minimum(grid, losses, [seed])).tolist()
    best = interval(value, np.array(draws), level=level)
    first, last = grid[0] * 1.001, grid[-1] / 1.001
    low = best.low if (best.low or 0) > first else None
    high = best.high if (best.high or np.inf) < last else None
    kept = replace(best, low=low, high=high)
    if not first < value < last:
        return replace(kept, value=None, note=f"unidentified: the loss falls to the last {what}")
    if too_wide(kept):
        return replace(kept, value=None, note=f"unidentified: {SPANS}")
    return kept


def _bracketed(law: LossLaw, rows: np.ndarray, batch: float, best: Estimate) -> Estimate:
    """Without a value if no lower and higher one was tried at a batch near by of the (N, D)."""
    ratio = np.exp(np.abs(np.log(law.points.batch[rows] / batch)))
    tried = law.points.lr[rows[ratio <= ratio.min() * VARIED]]
    if best.value is None or tried.min() < best.value < tried.max():
        return best
    note = f"unidentified: {best.value:.3g} is outside the learning rates tried at such a batch"
    return replace(best, value=None, note=f"{note}, {tried.min():.3g} to {tried.max():.3g}")


def _exponents(law: LossLaw, level: float) -> dict[str, Estimate]:
    """Powers through the best learning rates at batches near the best of their (N, D)."""
    found = [one for i in range(len(law.points.cells)) if (one := _of_cell(law, i)) is not None]
    note = "unidentified: the learning rates tried do not bracket the best ones"
    estimates = dict.fromkeys("NDB", Estimate(None, level=level, note=note))
    if not found:
        return estimates
    cell = np.repeat(np.arange(len(found)), [len(x) for x, _ in found])
    columns = np.log(np.concatenate([x for x, _ in found])).T
    sizes = separable(dict(zip(SYMBOLS, columns, strict=True)))
    logs = np.concatenate([logs for _, logs in found])
    theta = regressions(cell, np.stack([*sizes.values()], axis=1), logs, law.seed)
    for name, draws in zip(sizes, theta.T[1:], strict=True):
        estimates[SYMBOLS[name]] = interval(float(draws[0]), draws[1:], level=level)
    return estimates


def _of_cell(law: LossLaw, cell: int) -> tuple[np.ndarray, np.ndarray] | None:
    """N, D and B [m, 3] of batches, and the logs of their best learning rates [m, 1 + R].

    Of batches whose best one was bracketed, near the best batch; None if they are fewer than two.
    """
    points, rates = law.points, np.log(law.grid[1])
    size, rows = points.sizes[cell], points.cells[cell]
    batches, which = np.unique(points.batch[rows], return_inverse=True)
    tuned = law.over(*size, batches, law.grid[1])
    best, above = parabola_vertex(rates, tuned), tuned.min(axis=1) - tuned.min()
    tried = [np.log(points.lr[rows[which == i]]) for i in range(len(batches))]
    inside = [x.min() < at < x.max() for x, at in zip(tried, best, strict=True)]
    kept = batches[(above < NEAR_BEST) & inside]
    if len(kept) < 2:
        return None
    draws = law.draws(*size, kept[:, None], law.grid[1]).reshape(-1, len(kept), len(rates))
    sizes = np.stack(np.broadcast_arrays(*size, kept), axis=1)
    return sizes, parabola_vertex(rates, draws).T
