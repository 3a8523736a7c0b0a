"""Critical batches of the rungs, and whether they go with N or with D.

    python -m experiments.ladder.critical results/ladder

It reads the constants at constant rate, which one trunk a batch gives for every D at once: the
target of a D is the loss of the smallest batch there. It writes critical.csv and laws.csv.
"""

import math
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from bss.laws import CriticalFit, fit_critical
from bss.laws.base import Options
from bss.laws.critical.curves import LEAST_BATCHES
from bss.points.curve import points, smooth_curve
from bss.tables import write_table
from experiments.critical_batch.tables import critical_table, laws_table
from experiments.tables import Tables, folder_asked

RUNGS = (("es_99k",), ("es_380k",), ("es_790k", "more_790k"))
"""Their parts; the last is of rates that were lowered after the first had been seen."""
CURVES = "curves.parquet"
BUDGETS = (1 / 8, 1 / 4, 1 / 2)
"""Of the tokens of a rung, behind its warmup and where three batches or more get as low."""


def measured(results: Path) -> pd.DataFrame:
    """Steps to the losses of the smallest batch, of every rung that has ended."""
    rungs = []
    for parts in RUNGS:
        known = [at for part in parts if CURVES in (at := Tables(results / part))]
        rungs += [steps(pd.concat([at.read(CURVES) for at in known]))] if known else []
    return pd.concat(rungs)


def steps(curves: pd.DataFrame) -> pd.DataFrame:
    """Points of one model's constants, a row a run and D, as `bss.laws.fit_critical` takes them.

    Targets that fewer than three batches reach are left out.
    """
    smallest = curves.loc[curves["batch"] == curves["batch"].min()]
    paths = [smooth_curve(run, "eval_loss") for _, run in smallest.groupby("run")]
    targets = {}
    for part in BUDGETS:
        budget = round(part * float(smallest["tokens"].max()))
        losses = [np.interp(math.log(budget), path.log_tokens, path.loss) for path in paths]
        targets[float(np.mean(losses))] = budget
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "points: .* fewer than")  # large batches have few steps
        met = points(curves, list(targets))
    met = met.assign(budget_tokens=met["target_loss"].map(targets.get))
    batches = met.loc[met["reached"]].groupby("target_loss")["batch"].nunique()
    return met.loc[met["target_loss"].isin(batches.index[batches >= LEAST_BATCHES])]


def fit(results: Path) -> CriticalFit:
    """The critical batches above a sequence, and their law in N and D."""
    return fit_critical(measured(results), reference=1, options=Options(400))


if __name__ == "__main__":
    folder = folder_asked(__doc__)
    fits = {"ladder": fit(folder)}
    for name, table in (("critical", critical_table(fits)), ("laws", laws_table(fits))):
        write_table(table, folder / f"{name}.csv")
        print(table.dropna(axis=1, how="all").to_string(index=False))
