"""The valley of each (N, D): which rows make it, and which of them are outliers (derived here)."""

from dataclasses import dataclass, replace

import numpy as np

from bss.laws.final_loss.points import LossPoints
from bss.laws.final_loss.values import Outlier
from bss.points.valley import FEWEST, Measured, Valley, valleys

NAMED = 0.5  # probability from which a row is called an outlier
ERRORS_KNOWN = 30  # degrees of freedom that a column of standard errors counts as


@dataclass(frozen=True)
class Cell:
    """One (N, D).

    Attributes:
        params, tokens: N and D.
        rows: of the points, those that are no bracket left out.
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
    found = []
    for cell in range(points.cell.max() + 1):
        rows = np.flatnonzero(points.cell == cell)
        at = float(points.params[rows[0]]), float(points.tokens[rows[0]])
        found.append(Cell(*at, rows[usable[rows]], None, points.shared_rate(rows)))
    told = [i for i, one in enumerate(found) if len(one.rows) >= FEWEST and not one.one_rate]
    made = valleys([_measured(points, found[i].rows, first=i == told[0]) for i in told], level)
    for i, valley in zip(told, made, strict=True):
        found[i] = replace(found[i], valley=valley)
    return found


def _measured(points: LossPoints, rows: np.ndarray, *, first: bool) -> Measured:
    """Rows as a valley sees them; what repetitions say of the scatter is told once, by one."""
    freedom, count = (points.freedom, points.count) if first else (0.0, points.count)
    single = points.noise**2 / float(np.mean(1 / count)) if freedom else 0.0
    freedom = int(min(freedom, ERRORS_KNOWN)) if np.isinf(freedom) else int(freedom)
    order = rows[np.argsort(points.batch[rows])]
    measured = Measured.of_runs(points.batch[order], points.loss[order])
    return replace(measured, count=count[order], squares=single * freedom, freedom=freedom)


def outliers(points: LossPoints, cells: list[Cell], level: float) -> list[Outlier]:
    """The rows that are called so, the farthest first."""
    found = []
    for one in cells:
        for i in np.flatnonzero(one.valley.outlier > NAMED) if one.valley is not None else ():
            assert one.valley is not None
            row, kept = one.rows[i], np.delete(one.rows, i)
            (without,) = valleys([_measured(points, kept, first=False)], level)
            above = float(one.valley.missed[i])
            found.append(
                Outlier(
                    one.params,
                    float(points.tokens[row]),
                    float(points.batch[row]),
                    above,
                    abs(above) / one.valley.scatter,
                    float(np.exp(abs(np.log(without.batch / one.valley.batch)))) - 1,
                )
            )
    return sorted(found, key=lambda one: -one.times)


def trust(points: LossPoints, cells: list[Cell]) -> np.ndarray:
    """[n], 0 of the rows that are called outliers, else 1."""
    found = np.ones(len(points.loss))
    for one in cells:
        if one.valley is not None:
            found[one.rows[one.valley.outlier > NAMED]] = 0.0
    return found
