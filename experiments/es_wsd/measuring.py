"""Tokens to a target loss of every run, as numbers or bounds."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from bss.points.measuring import measure_points
from bss.stats import Numbers
from experiments.tables import show_warnings, shown_warnings

PHASES = {"constant": "eval_loss", "averaged": "eval_loss_avg_4%"}
"""Columns of the held-out loss at constant LR, of the last weights and of averaged ones."""


def measured_points(
    runs: pd.DataFrame, targets: Sequence[float], column: str = "eval_loss"
) -> pd.DataFrame:
    """Return tokens and steps to each target that some run reaches, one row per run and target."""
    kept = ["run", "model", "params", "seq_len", "seed", "data_seed", "peak_lr", "step", "tokens"]
    table = runs[[*kept, "batch"]].assign(eval_loss=runs[column])
    lowest = table.groupby("run")["eval_loss"].min().min()
    with shown_warnings("points"):
        points, notes = measure_points(table, [t for t in targets if t > lowest + 1e-3])
    show_warnings("points", notes)
    return points


def at_target(points: pd.DataFrame, target: float, column: str) -> pd.DataFrame:
    """Return a column at a target, [batch, seed]."""
    rows = points.loc[np.isclose(points["target_loss"], target)]
    return rows.pivot(index="batch", columns="seed", values=column)


def log_tokens(points: pd.DataFrame, target: float) -> dict[int, Numbers]:
    """Return log tokens to a target by batch size, one number per seed."""
    tokens = np.log(at_target(points, target, "tokens_to_target"))
    reached = at_target(points, target, "reached")
    return {
        int(batch): Numbers.to_target(tokens.loc[batch], reached.loc[batch])
        for batch in tokens.index
    }
