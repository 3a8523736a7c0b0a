"""Share of grids with planted exponents whose 95% intervals hold them.

    python -m experiments.critical_batch.planted --grids 40     # results/critical_batch/planted.csv

A grid is mini-batch SGD on power-law least squares with exact risks (`bss.theory.least_squares`):
the exponent of D is 1 - a/min(b, 2a + 1), and that of N, the number of modes, is 0. The known
exponents are those of `resampled.py` without noise, which finite D moves by up to 0.1 from theory.
Runs have three LRs a factor of 2 apart and two seeds; their log tokens have a deviation of the
whole run and one of each budget, as large as ours.
"""

import argparse

import numpy as np
import pandas as pd

from bss.theory.least_squares import LeastSquares, risk_curve
from experiments.critical_batch.analysis import RESAMPLES, write
from experiments.critical_batch.resampled import (
    QUANTITIES,
    Cell,
    Exponents,
    critical,
    exponents,
    resampled,
)

TASKS = ((1.5, 2.5), (1.5, 2.2), (2.0, 3.0), (2.0, 3.5))
MODES = (100, 200, 400)
BATCHES = (1, 2, 4, 8, 16, 32, 64)
BUDGETS = (256, 512, 1_024, 2_048)
LONGEST = 16  # times the largest budget
OF_RUN, OF_BUDGET = 0.06, 0.02  # standard deviations of log tokens
PENALTIES = (0.06, 0.0, 0.06)  # log tokens that the lower, best and higher LR cost
SEEDS = 2


def exact(capacity: float, source: float) -> list[Cell]:
    """Return the exact log tokens of a task at several numbers of modes, at the best step size."""
    cells = []
    for modes in MODES:
        task = LeastSquares(capacity, source, modes)
        known = []
        for batch in BATCHES:
            counts, risks = risk_curve(task, batch, LONGEST * BUDGETS[-1] // batch)
            known.append((np.log(batch * counts), np.log(np.minimum.accumulate(risks))))
        targets = np.interp(np.log(BUDGETS), *known[0])
        logs = [np.interp(-targets, -risks, tokens) for tokens, risks in known]
        arrays = tuple(log[None, None, None] for log in logs)
        cells.append(Cell(f"{modes} modes", modes, 1, BATCHES, BUDGETS, arrays))
    return cells


def noisy(cells: list[Cell], generator: np.random.Generator) -> list[Cell]:
    """Return the cells with three LRs and two seeds."""
    found = []
    for cell in cells:
        arrays = []
        for logs in cell.logs:
            shape = (len(PENALTIES), 1, SEEDS)
            whole = OF_RUN * generator.standard_normal((*shape, 1))
            own = OF_BUDGET * generator.standard_normal((*shape, len(cell.budgets)))
            arrays.append(logs + np.reshape(PENALTIES, (-1, 1, 1, 1)) + whole + own)
        at = (cell.size, cell.params, cell.seq_len, cell.batches, cell.budgets)
        found.append(Cell(*at, tuple(arrays)))
    return found


def laws(cells: list[Cell], resamples: int, seed: int = 0) -> dict[str, Exponents]:
    """Return the exponents by quantity."""
    drawn = resampled(cells, resamples, seed)
    values = [critical(cell, tokens) for cell, tokens in zip(cells, drawn, strict=True)]
    return {name: exponents(cells, [value[name] for value in values]) for name in QUANTITIES}


def coverage(grids: int) -> pd.DataFrame:
    """Return one row per grid, quantity and exponent."""
    rows = []
    for i, task in enumerate(TASKS):
        cells = exact(*task)
        known = laws(cells, 1)
        for grid in range(i, grids, len(TASKS)):
            found = laws(noisy(cells, np.random.default_rng(grid)), RESAMPLES // 2, grid)
            for quantity, law in found.items():
                for name, weights in (("N", (1, 0)), ("D", (0, 1))):
                    truth, one = known[quantity].draws[0] @ [0, *weights], law.of(*weights)
                    low, high = one.ends()
                    row = {"capacity": task[0], "source": task[1], "grid": grid}
                    row |= {"quantity": quantity, "exponent": name, "known": truth}
                    row |= {"theory": LeastSquares(*task).exponent * weights[1]}
                    row |= {"value": one.value, "low": low, "high": high}
                    rows.append(row | {"covered": low <= truth <= high})
    return pd.DataFrame(rows)


def main() -> None:
    """Write the coverage and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grids", type=int, default=40)
    table = coverage(parser.parse_args().grids)
    write("planted.csv", table)
    print(table.groupby(["quantity", "exponent"])["covered"].mean())


if __name__ == "__main__":
    main()
