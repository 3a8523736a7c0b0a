"""Runs that diverged, which measure no law: they are left out, with a message.

A run diverged if its table marks it: column `status` is "diverged", or `diverged` is 1. It also
diverged if its last loss is far above its lowest one, or if it never fell below the first losses of
other runs (derived here).
"""

import numpy as np
import pandas as pd

FAR = 1.0
"""Nats above the lowest loss: the noise of evaluations and spikes that pass are smaller."""
YES = ("1", "1.0", "true", "yes")


def marked_diverged(table: pd.DataFrame) -> np.ndarray:
    """Return a mask [n] of the rows that the columns `diverged` or `status` mark as diverged."""
    marked = np.zeros(len(table), bool)
    if "diverged" in table:
        marked |= table["diverged"].astype(str).str.strip().str.lower().isin(YES).to_numpy()
    if "status" in table:
        marked |= (table["status"].astype(str) == "diverged").to_numpy()
    return marked


def diverged_runs(runs: pd.DataFrame, column: str) -> list[str]:
    """Return the names of diverged runs of a run table.

    Args:
        runs: A run table as `bss.tables.check_runs` returns it.
        column: Column of the losses.
    """
    marked = {*runs.loc[marked_diverged(runs), "run"]}
    known = runs.loc[np.isfinite(runs[column].to_numpy(float))]
    losses = known.groupby("run", sort=False)[column].agg(["first", "min", "last"])
    if losses.empty:
        return [*marked]
    start = float(losses["first"].median())
    far = (losses["last"] > losses["min"] + FAR) | (losses["min"] > start + FAR)
    return [run for run in runs["run"].unique() if run in marked or far.get(run, False)]


def without_diverged(runs: pd.DataFrame, column: str) -> tuple[pd.DataFrame, list[str]]:
    """Return a run table without diverged runs, and a message if there were some.

    If all runs diverged, none is left out: the fit refuses them with its reason.
    """
    found = diverged_runs(runs, column)
    if not found or len(found) == runs["run"].nunique():
        return runs, []
    return runs.loc[~runs["run"].isin(found)], [left_out(found)]


def left_out(runs: list[str]) -> str:
    """Return the message that runs diverged and are left out."""
    return (
        f"{len(runs)} runs diverged, or have no loss at their end: left out (the first: {runs[0]})"
    )
