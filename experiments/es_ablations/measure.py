"""E(S) of each variation: points, laws, and where the best batch lies without one."""

from pathlib import Path
from typing import Any

import pandas as pd

from bss.laws import fit_es
from bss.laws.es.compare import compare
from bss.laws.fitting.estimate import Options
from bss.points.crossings import crossing_pairs, crossings, optima
from bss.points.curve import default_targets, points
from bss.sweeps.contenders import Contender
from bss.sweeps.table import run_table
from bss.tables.held_out import HeldOutColumn
from experiments.es_ablations.study import Study


def measure(
    study: Study, runs: list[Contender], directory: Path
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Points of the constants at constant rate, on stable and averaged losses, and their fits."""
    stable = [contender.run for contender in runs if contender.role == "constant"]
    table = run_table(directory, stable)
    tables, fits = [], {}
    columns = {
        "stable": "eval_loss",
        "averaged": str(HeldOutColumn(half_life=study.setup.averages[0])),
    }
    warmup = stable[0].schedule.warmup
    for kind, column in columns.items():
        targets = default_targets(table, study.targets, warmup_tokens=warmup, column=column)
        table_of_points = points(table, targets, column=column, kind=kind)
        tables.append(table_of_points)
        fits[kind] = fitted(table_of_points, Options(study.resamples))
    return pd.concat(tables), fits


def fitted(measured: pd.DataFrame, options: Options) -> dict[str, Any]:
    """The law that is chosen, with the errors of all at left-out batches."""
    fit = fit_es(measured, options=options)
    comparison = fit.comparison or compare(measured)
    return {"comparison": comparison, "law": fit.name, "fit": fit}


def optimum_rows(name: str, measured: pd.DataFrame) -> list[dict[str, Any]]:
    """B_opt at each target without a law, in log2 sequences with 2 standard errors over seeds.

    `bound` says what it is where some seed's best batch is at an edge of those measured.
    """
    rows = []
    for kind, table in measured.groupby("kind", sort=False):
        pairs = crossing_pairs(crossings(table))
        rows += [
            {
                "variation": name,
                "kind": kind,
                "params": table["params"].iloc[0],
                "target_loss": optimum.target_loss,
                "best_batch": optimum.batch,
                "interior": optimum.interior,
                "bound": optimum.bound,
                "log2_B_opt": optimum.log2_batch.value,
                "error": optimum.log2_batch.error,
                "seeds": optimum.log2_batch.seeds,
                "crossing_pairs": " ".join(f"{small:g}/{large:g}" for small, large in pairs),
            }
            for optimum in optima(table)
        ]
    return rows
