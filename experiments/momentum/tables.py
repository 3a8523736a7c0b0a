"""The runs that have ended so far, as tables: each with its commit, start and registration.

    python -m experiments.momentum.tables runs/momentum results/momentum

Rows of runs that the directory has not, as they were trained elsewhere, stay as they are.
"""

import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pandas as pd

from bss.sweeps.table import outcomes, run_table
from bss.tables import write_table
from bss.training.run_config import RunConfig
from bss.training.run_directory import read_config, read_executions, read_status
from experiments.tables import Tables

LOSSES = ("eval_loss", "test_loss", "test_loss_avg_4%")


def tables(runs: Path, ids: Collection[str] | None = None) -> dict[str, pd.DataFrame]:
    """finals.csv and curves.parquet of the runs of a directory that have ended.

    Args:
        runs: the directory.
        ids: of the runs that are told; all by default.

    Returns:
        finals.csv: a row a run: run, parent, seed, batch, beta1, beta2 (empty for a half-life),
        peak_lr, stop, ending, started (UTC, the first time), tokens, steps, status, commit and
        registration (of every start), and losses in nats with their standard errors over sequences.
        curves.parquet: the run table of those at constant rate that finished.
    """
    rows, stable = [], []
    for file in sorted(runs.glob("*/config.json")):
        run, status = read_config(file.parent), read_status(file.parent)
        if status.status not in ("finished", "diverged") or (ids and run.id not in ids):
            continue
        if status.finished and not run.schedule.decay:
            stable.append(run)
        rows.append(
            _row(run)
            | {
                "started": read_executions(file.parent)[0]["started"],
                "tokens": status.tokens,
                "steps": status.step,
            }
            | {name: status.losses.get(name) for of in LOSSES for name in (of, f"{of}_se")}
        )
    finals = pd.DataFrame(rows)
    known = ["run", "status", "commit", "registration"]
    finals = finals.merge(outcomes(runs, [*finals["run"]])[known], on="run")
    curves = {"curves.parquet": run_table(runs, stable)} if stable else {}
    return {"finals.csv": finals, **curves}


def _row(run: RunConfig) -> dict[str, Any]:
    optimizer = run.optimizer
    return {
        "run": run.id,
        "parent": run.parent.run if run.parent else None,
        "seed": run.seed,
        "batch": str(run.schedule.batch),
        "beta1": optimizer.beta1,
        "beta2": None if optimizer.beta2_half_life else optimizer.beta2,
        "peak_lr": optimizer.lr,
        "stop": run.schedule.tokens,
        "ending": "decay" if run.schedule.decay else "constant",
    }


def kept(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """A table behind the rows of other runs that a file has, if there is one."""
    if path.name not in (there := Tables(path.parent)):
        return table
    before = there.read(path.name)
    others = before.loc[~before["run"].isin(table["run"])]
    return pd.concat([others, table], ignore_index=True)


if __name__ == "__main__":
    for name, table in tables(Path(sys.argv[1])).items():
        write_table(kept(table, Path(sys.argv[2]) / name), Path(sys.argv[2]) / name)
