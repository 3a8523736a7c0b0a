"""E(S) of each variation: points, laws, and where the best batch lies without one."""

from pathlib import Path
from typing import Any

import pandas as pd

from bss.laws.fitting.estimate import Options
from bss.points.crossings import crossing_pairs, crossings, optima
from bss.points.curve import default_targets, points
from bss.sweeps.contenders import Contender
from bss.sweeps.table import run_table
from experiments.es_ablations.study import Study
from experiments.es_wsd.measure import fit_laws


def measure(
    study: Study, runs: list[Contender], directory: Path
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Points of the constants at constant rate, on stable and averaged losses, and their fits."""
    stable = [contender.run for contender in runs if contender.role == "constant"]
    table = run_table(directory, stable)
    tables, fits = [], {}
    columns = {"stable": "eval_loss", "averaged": f"eval_loss_avg_{study.setup.averages[0]}"}
    warmup = stable[0].schedule.warmup
    for kind, column in columns.items():
        targets = default_targets(table, study.targets, warmup_tokens=warmup, column=column)
        table_of_points = points(table, targets, column=column, kind=kind)
        tables.append(table_of_points)
        fits[kind] = fitted(table_of_points, Options(study.resamples))
    return pd.concat(tables), fits


def fitted(measured: pd.DataFrame, options: Options) -> dict[str, Any]:
    """The law that is chosen, with the errors of all at left-out batches."""
    laws = fit_laws(measured, options, others=())
    return {"comparison": laws.comparison, "law": laws.best.name, "fit": laws.best}


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
