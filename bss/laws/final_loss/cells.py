"""The valley of each (N, D): which rows make it, and which of them are outliers (derived here)."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.ndimage import median_filter

from bss.laws.final_loss.facts import OutlierRow
from bss.laws.final_loss.points import LossPoints
from bss.laws.fitting.bootstrap import robust_scale
from bss.points.batch_means import BatchMeans
from bss.points.valley import FEWEST, FEWEST_TO_DOUBT, MISFIT, Valley, valleys

TYPICAL, SPREAD = 0.0025, 0.5  # nats, the usual scatter of final losses, and of its logarithm
NAMED = 0.5  # probability from which a row is called an outlier
DOUBTED = 0.1  # probability from which the law of all cells need not be as far
SUSPECT, FAR = 5.2, 33.0  # times the usual distance from the law of all cells, from which a row may
# be one; and that times its distance from the valley through the others over the scatter
SUSPECT_DOUBTED, FAR_DOUBTED = 3.4, 20.0  # the same of a row that its own valley doubts
GROWN = 0.1  # nats above the best at which noise may be twice that of the best
COMMON = 0.12  # of all rows, those by which what the law misses everywhere is told
FEWEST_CELLS = 4  # that tell what is usual
ERRORS_KNOWN = 30  # degrees of freedom that a column of standard errors counts as


@dataclass(frozen=True)
class Cell:
    """One (N, D).

    Attributes:
        params, tokens: N and D.
        rows: of the points, by their batches; those that are no bracket are left out.
        valley: None of a cell with too few batches, or one rate for all.
        one_rate: whether all batches share a rate.
    """

    params: float
    tokens: float
    rows: np.ndarray
    valley: Valley | None
    one_rate: bool


def cells_of(points: LossPoints, usable: np.ndarray, level: float) -> list[Cell]:
    """The cells of a table.

    Args:
        points: the table.
        usable: [n], whether a row is no diverged one.
        level: of intervals.
    """
    cells = []
    for cell in range(points.cell.max() + 1):
        rows = np.flatnonzero(points.cell == cell)
        at = float(points.params[rows[0]]), float(points.tokens[rows[0]])
        usable_rows = rows[usable[rows]]
        # Budgets within 3% are one cell: of two at one batch the longer counts.
        usable_rows = usable_rows[
            np.lexsort([-points.tokens[usable_rows], points.batch[usable_rows]])
        ]
        usable_rows = usable_rows[np.unique(points.batch[usable_rows], return_index=True)[1]]
        cells.append(Cell(*at, usable_rows, None, points.shared_rate(rows)))
    return _with_valleys(points, cells, level)


def _with_valleys(points: LossPoints, cells: list[Cell], level: float) -> list[Cell]:
    """The cells with the valleys of their rows."""
    able = [i for i, one in enumerate(cells) if len(one.rows) >= FEWEST and not one.one_rate]
    fitted = valleys(
        [_measured(points, cells[i].rows, first=i == able[0]) for i in able], level, SPREAD
    )
    valley = dict(zip(able, fitted, strict=True))
    return [replace(one, valley=valley.get(i)) for i, one in enumerate(cells)]


def _measured(points: LossPoints, rows: np.ndarray, *, first: bool) -> BatchMeans:
    """Rows as a valley sees them; what repetitions say of the scatter is told once, by one."""
    freedom, count = (points.freedom, points.count) if first else (0.0, points.count)
    single = points.noise**2 / float(np.mean(1 / count)) if freedom else 0.0
    freedom = int(min(freedom, ERRORS_KNOWN)) if np.isinf(freedom) else int(freedom)
    measured = BatchMeans.of_runs(points.batch[rows], points.loss[rows], typical=TYPICAL)
    return replace(measured, count=count[rows], squares=single * freedom, freedom=freedom)


def without_outliers(
    points: LossPoints, cells: list[Cell], law: np.ndarray, level: float
) -> tuple[list[Cell], list[OutlierRow], np.ndarray]:
    """Cells without the rows that are called outliers, these, and what is left [n].

    A row is one by its own valley; or, as few batches can make a valley of any shape about one,
    where it lies far from the law of all cells and from the valley through the others of its cell.
    One of a cell at most.

    Args:
        points: the table.
        cells: its valleys by all rows.
        law: [n], losses by all cells together, in nats.
        level: of intervals.

    Returns:
        the outliers with the farthest first; `left` is False of them.
    """
    left, outliers = np.ones(len(points.loss), bool), []
    for one, by_law in zip(cells, _by_law(points, cells, law), strict=True):
        if one.valley is None or len(one.rows) < FEWEST_TO_DOUBT:
            continue
        own, others = int(np.argmax(one.valley.outlier)), int(np.argmax(by_law))
        likely, limits = one.valley.outlier[own], {}
        if likely > NAMED:
            limits[own] = 0.0
        elif likely > DOUBTED and by_law[own] >= SUSPECT_DOUBTED:
            limits[own] = FAR_DOUBTED
        if by_law[others] >= SUSPECT:
            limits.setdefault(others, FAR)
        judged = [(*_judged(points, one, i, float(by_law[i]), level), i) for i in limits]
        known = [(far, outlier, i) for far, outlier, i in judged if far > limits[i]]
        if known:
            _, outlier, i = max(known, key=lambda at: at[0])
            left[one.rows[i]] = False
            outliers.append(outlier)
    if outliers:
        cells = _with_valleys(points, [replace(c, rows=c.rows[left[c.rows]]) for c in cells], level)
    return cells, sorted(outliers, key=lambda one: -one.times), left


def _judged(
    points: LossPoints, cell: Cell, i: int, by_law: float, level: float
) -> tuple[float, OutlierRow]:
    """How far one of a cell's rows is, by the law and by the valley through the others."""
    assert cell.valley is not None
    batch, scatter = float(points.batch[cell.rows[i]]), cell.valley.scatter
    others = np.delete(cell.rows, i)
    (rest,) = valleys([_measured(points, others, first=False)], level, SPREAD)
    rise = np.interp(np.log(points.batch), rest.log_batch, rest.curve)
    apart = points.loss - rise
    above = float(apart[cell.rows[i]] - np.median(apart[others]))
    far = by_law * abs(above) / float(np.hypot(scatter, MISFIT * rise[cell.rows[i]]))
    moves = float(np.exp(abs(np.log(rest.batch / cell.valley.batch)))) - 1
    at = cell.params, float(points.tokens[cell.rows[i]]), batch
    return far, OutlierRow(*at, above, abs(above) / scatter, moves)


def _by_law(points: LossPoints, cells: list[Cell], law: np.ndarray) -> list[np.ndarray]:
    """Per cell, how many times the usual distance from the law its rows lie, by their batches.

    Of the differences within the cell, less what cells have in common that far from the best batch;
    noise may grow with the rise above the best.
    """
    if len(cells) < FEWEST_CELLS:
        return [np.zeros(len(one.rows)) for one in cells]
    apart, off, grown = [np.zeros(0)], [np.zeros(0)], [np.zeros(0)]
    for rows in (one.rows for one in cells if len(one.rows)):
        missed, rise = points.loss[rows] - law[rows], law[rows] - law[rows].min()
        apart.append(missed - np.median(missed))
        off.append(np.log(points.batch[rows] / points.batch[rows[np.argmin(rise)]]))
        grown.append(1 + rise / GROWN)
    missed, order = np.concatenate(apart), np.argsort(np.concatenate(off), kind="stable")
    window = max(int(COMMON * len(missed)) | 1, FEWEST_TO_DOUBT)
    missed[order] -= median_filter(missed[order], size=window, mode="nearest")
    times = np.abs(missed) / np.concatenate(grown)
    ends = np.cumsum([len(one.rows) for one in cells])[:-1]
    return np.split(times / max(robust_scale(times), 1e-12), ends)
