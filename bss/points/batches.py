"""Constant batches side by side: which runs compare, and how far each is from the best."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.points.curve import Smooth, smooth_curve
from bss.tables import loss_column

SETTING = ("model", "params", "seq_len", "peak_lr", "rate")
GRID_POINTS = 200
END_SLACK = 0.03  # equal budgets end apart by remainders that fill no batch


@dataclass(frozen=True)
class BatchCurve:
    """A run of one batch: the batch in sequences, its rows, and the monotone fit to its losses."""

    batch: float
    rows: pd.DataFrame
    fit: Smooth


def alike(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of one batch that share model, sequence length and rate, of the most batches.

    Of several with as many, those of the lowest loss.
    """
    constant = runs.loc[runs.groupby("run")["batch"].transform("nunique") == 1]
    if constant.empty:
        return constant
    columns = [column for column in SETTING if column in runs]
    settings = constant.groupby(columns, dropna=False, sort=False)
    batches, lowest = settings["batch"].nunique(), settings[loss_column(constant)].min()
    return constant.loc[settings.ngroup() == np.lexsort((lowest, -batches))[0]]


def batch_curves(runs: pd.DataFrame, column: str) -> list[BatchCurve]:
    """Every run of one batch with at least 3 losses in a column, ascending in batch.

    Raises:
        InputError: there is none.
    """
    curves = []
    for _, run in runs.groupby("run", sort=False):
        losses = np.isfinite(run[column].to_numpy(float)).sum()
        if len(set(run["batch"])) == 1 and losses >= 3:
            curves.append(BatchCurve(float(run["batch"].iloc[0]), run, smooth_curve(run, column)))
    if not curves:
        raise InputError("runs: no run has a constant batch and at least 3 losses; add one")
    return sorted(curves, key=lambda curve: curve.batch)


def excess(curves: Sequence[BatchCurve]) -> tuple[np.ndarray, dict[float, np.ndarray]]:
    """Tokens, and each batch's loss above the best one there, averaged over its runs.

    Returns:
        Tokens [T], evenly spaced in log from where all curves are known to the farthest end; and
        by batch the excess [T] in nats, NaN past a curve's end, but for a trifle of the tokens.
    """
    x, losses = losses_on_grid(curves)
    mean = {batch: pd.DataFrame(some).mean().to_numpy() for batch, some in losses.items()}
    best = np.nanmin(list(mean.values()), axis=0)
    return np.exp(x), {batch: loss - best for batch, loss in mean.items()}


def losses_on_grid(curves: Sequence[BatchCurve]) -> tuple[np.ndarray, dict[float, np.ndarray]]:
    """Return log tokens [T] as in `excess`, and the losses of each batch there, [run, T]."""
    start = max(curve.fit.log_tokens[0] for curve in curves)
    end = max(curve.fit.log_tokens[-1] for curve in curves)
    x = np.linspace(start, end, GRID_POINTS)
    losses: dict[float, list[np.ndarray]] = {}
    for curve in curves:
        known = x <= curve.fit.log_tokens[-1] + END_SLACK
        loss = np.where(known, np.interp(x, curve.fit.log_tokens, curve.fit.loss), np.nan)
        losses.setdefault(curve.batch, []).append(loss)
    return x, {batch: np.array(some) for batch, some in losses.items()}
