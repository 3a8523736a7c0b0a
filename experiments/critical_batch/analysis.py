"""Tables and answers from the curves that `run.py` wrote; nothing is trained.

    python -m experiments.critical_batch.analysis        # results/critical_batch/*.csv, fits.json
    python -m experiments.critical_batch.analysis --answers  # without the fits of single curves

After Zhang et al. (arXiv 2410.21676). Parts that are not trained are left out. This file answers
questions.toml; `sizes.py` and `settings.py` answer the questions that were asked later.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from bss.files import write_json
from bss.stats import Effect
from experiments.critical_batch import comparisons, settings, sizes
from experiments.critical_batch.averages import average_answers, average_sizes
from experiments.critical_batch.cells import Cell, by_params
from experiments.critical_batch.comparisons import Compared, Pair
from experiments.critical_batch.exponents import exponents, exponents_table, laws_of
from experiments.critical_batch.fits import curve_table, designs, fitted, published_table
from experiments.critical_batch.measuring import (
    BASE,
    BUDGETS,
    SIZE,
    curves,
    known_of,
    measured,
    minima,
    trained,
)
from experiments.critical_batch.resampled import critical_values, estimated, freedom_of
from experiments.critical_batch.schedules import schedule_answers
from experiments.findings import Measured, findings, read_questions
from experiments.tables import Tables, add_directory

RESULTS = Path("results/critical_batch")
QUESTIONS = Path(__file__).parent / "questions.toml"
PAPER = {"paper": "2410.21676", "command": "python -m experiments.critical_batch.analysis"}

GRID = ("c1-7k", "c1-12k", "c1-27k", "c1-49k")
SCHEDULED = ("c3-wsd", "c3")
SCHEDULES = {"cosine": "schedule_cosine", "WSD": "schedule_wsd", "schedule-free": "schedule_free"}
SHAPE = Pair("size", SIZE, "4 layers", "1 layer of width 32, 4 of width 16")
CONTEXT = Pair("seq_len", 16, 64, "sequences of 16 and of 64 tokens", smallest=64)
APPENDIX = {
    "beta1_other": Pair("size", SIZE, "beta1 0.95", "beta1 0.95 against 0.9"),
    "beta2_other": Pair("size", SIZE, "beta2 0.99", "beta2 0.99 against a half-life in tokens"),
    "warmup_other": Pair("size", SIZE, "warm-up 2.5K", "warm-up of 2.5K against 10K tokens"),
}
COMPARED = (
    Compared("c2-shape", {"shape": SHAPE}),
    Compared("c2-context", {"context": CONTEXT}),
    Compared("appendix-b", APPENDIX),
)


def main() -> None:
    """Write the tables of every part that was trained, and findings.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_directory(parser, RESULTS)
    parser.add_argument("--answers", action="store_true", help="without fits of single curves")
    options = parser.parse_args()
    tables = Tables(options.results)
    found = {
        QUESTIONS: answers(tables, fits=not options.answers),
        sizes.QUESTIONS: sizes.answers(tables),
        settings.QUESTIONS: settings.answers(tables),
    }
    answered = [findings(read_questions(file), one, **PAPER) for file, one in found.items()]
    tables.write("findings.csv", pd.concat(answered, ignore_index=True))


def answers(tables: Tables, *, fits: bool = True) -> dict[str, Measured]:
    """Return the answers of every part that was trained, and write its tables.

    Args:
        tables: The results directory.
        fits: Whether to fit single curves, too.
    """
    found: dict[str, Measured] = {}
    donors: list[Cell] = []
    if fits:
        tables.write("published.csv", published_table())
    if trained(tables, GRID):
        runs, points = grid(tables)
        donors = by_params(points)
        if fits:
            grid_fits(tables, points)
        found |= grid_answers(tables, runs, donors)
        found |= average_answers(tables) | average_sizes(tables, runs, GRID[0])
    for compared in COMPARED:
        if trained(tables, [compared.part]):
            runs, points = comparisons.points_of(tables, compared)
            if fits:
                comparisons.write_fits(tables, compared, points)
            found |= comparisons.answers(tables, compared, runs, points, donors)
    if parts := trained(tables, SCHEDULED, "schedules.parquet"):
        found |= schedule_answers(tables, BASE, parts, SCHEDULES, "schedules.csv")
    return found


def grid(tables: Tables) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs and the points of all model sizes."""
    parts = trained(tables, GRID)
    runs = pd.concat([curves(tables, part) for part in parts], ignore_index=True)
    return runs, measured(runs, BUDGETS).round(7)


def grid_fits(tables: Tables, points: pd.DataFrame) -> None:
    """Write the critical batch size of every curve of the grid."""
    tables.write("points.csv", points)
    fits = {name: fitted(some) for name, some in designs(points).items()}
    write_json(tables.folder / "fits.json", {name: fit.to_dict() for name, fit in fits.items()})
    tables.write("curves.csv", curve_table(points, {"both": fits["both"]}))
    tables.write("steps.csv", minima(points))


def grid_answers(tables: Tables, runs: pd.DataFrame, cells: Sequence[Cell]) -> dict[str, Measured]:
    """Return the answers on N and D, and write the exponents."""
    values = critical_values(cells)
    laws = laws_of(cells, values)
    crossing = exponents(cells, crossings(cells, tables.read("curves.csv")))
    tables.write("exponents.csv", exponents_table({**laws, "measured crossing": crossing}))
    more = f"muP; D {BUDGETS[0] / 1e6:g}M to {BUDGETS[-1] / 1e6:g}M"
    known = known_of(tables, runs, GRID[0], more)
    effects: dict[str, Effect] = {}
    for quantity, end in (("cbs", ""), ("b/a", "_other")):
        law = laws[quantity]
        in_data = abs(law.of(0, 1).value)  # what a small exponent of N qualifies
        effects |= {
            f"together{end}": law.of(1, 1),
            f"data{end}": law.of(0, 1),
            f"size{end}": replace(law.of(1, 0), qualifies=in_data),
            f"data_size{end}": law.of(-1, 1),
        }
    effects["published_exponent"] = replace(laws["cbs"].of(1, 1, 0.47), qualifies=0.47)
    last = _last_slope(cells, [v["cbs"] for v in values])
    effects["width"] = replace(last, qualifies=abs(effects["size"].value))
    return {key: Measured(one, known, "exponents.csv") for key, one in effects.items()}


def crossings(cells: Sequence[Cell], fitted_curves: pd.DataFrame) -> list[np.ndarray]:
    """Return per cell the measured crossing of 20% above linear scaling, twice [2, D].

    The rows of an estimate without resamples are alike. NaN if the curve has no crossing.
    """
    found = []
    for cell in cells:
        own = fitted_curves.loc[fitted_curves["params"] == cell.params].set_index("tokens")
        values = own["cbs_interpolated"].reindex(cell.budgets).to_numpy(float)
        found.append(np.stack([values, values]))
    return found


def _last_slope(cells: Sequence[Cell], values: Sequence[np.ndarray]) -> Effect:
    """Return the slope of log critical batch over log N between the two widest models."""
    shared = min(value.shape[1] for value in values[-2:])
    logs = np.log(values[-1][:, :shared] / values[-2][:, :shared])
    slopes = logs.mean(axis=1) / math.log(cells[-1].params / cells[-2].params)
    return estimated(slopes, freedom_of(cells), cells[-1].logs[0].shape[2])


if __name__ == "__main__":
    main()
