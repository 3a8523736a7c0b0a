"""Compare runs of one batch size each: which are comparable, and their excess losses."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.points.conditions import NEAR
from bss.points.curve import FEWEST, Smooth, loss_column, smooth_curves

SETTING = ("model", "params", "seq_len", "peak_lr", "rate")
GRID_POINTS = 200
"""Points of a plotted curve: closer than the pixels of a figure can show."""
END_SLACK = 0.03
"""Log tokens by which equal budgets may end apart: remainders fill no batch (derived here)."""


@dataclass(frozen=True)
class BatchCurve:
    """A run of one batch size (sequences), its name, and a monotone fit to its losses."""

    batch: float
    run: str
    fit: Smooth


def alike(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of one batch size each that share model, sequence length and LR.

    The group with the most batch sizes is returned. Ties are broken by the
    lowest loss.
    """
    constant = runs.loc[runs.groupby("run")["batch"].transform("nunique") == 1]
    if constant.empty:
        return constant
    columns = [column for column in SETTING if column in runs]
    settings = constant.groupby(columns, dropna=False, sort=False)
    batches = settings["batch"].nunique()
    lowest = settings[loss_column(constant)].min()
    return constant.loc[settings.ngroup() == np.lexsort((lowest, -batches))[0]]


def varied(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs whose batch size changes or whose LR falls after its peak."""
    by_run = runs.groupby("run", sort=False)
    changes = by_run["batch"].transform("nunique") > 1
    if "lr" in runs:
        rates = runs["lr"].astype(float).groupby(runs["run"], sort=False)
        changes |= rates.transform("last") < (1 - NEAR) * rates.transform("max")
    return runs[changes]


def batch_curves(runs: pd.DataFrame, column: str) -> list[BatchCurve]:
    """Return the curves of runs with one batch size and at least 3 losses, by batch size.

    Raises:
        InputError: If no run qualifies.
    """
    finite = pd.Series(np.isfinite(runs[column].to_numpy(float)), runs.index)
    known = finite.groupby(runs["run"]).transform("sum") >= FEWEST
    some = runs.loc[known & (runs.groupby("run")["batch"].transform("nunique") == 1)]
    batches = some.drop_duplicates("run").set_index("run")["batch"].to_dict()
    curves = [
        BatchCurve(float(batches[name]), name, fit)
        for name, fit in smooth_curves(some, column).items()
    ]
    if not curves:
        raise InputError("runs: no run has one batch size and at least 3 losses; add such a run")
    return sorted(curves, key=lambda curve: curve.batch)


def excess(curves: Sequence[BatchCurve]) -> tuple[np.ndarray, dict[float, np.ndarray]]:
    """Return the loss of each batch size above the best one, averaged over runs.

    Returns:
        Tokens [T], evenly spaced in log, from the first count at which every curve has a loss to
        the end of the longest curve.
        Excess losses [T] in nats by batch size. They are NaN after the end of a curve; ends that
        differ by at most 3% of the tokens count as equal.
    """
    x, losses = losses_on_grid(curves)
    mean = {batch: pd.DataFrame(some).mean().to_numpy() for batch, some in losses.items()}
    best = np.nanmin(list(mean.values()), axis=0)
    return np.exp(x), {batch: loss - best for batch, loss in mean.items()}


def losses_on_grid(curves: Sequence[BatchCurve]) -> tuple[np.ndarray, dict[float, np.ndarray]]:
    """Return log tokens [T] as in `excess`, and losses [run, T] at them by batch size."""
    start = max(curve.fit.log_tokens[0] for curve in curves)
    end = max(curve.fit.log_tokens[-1] for curve in curves)
    x = np.linspace(start, end, GRID_POINTS)
    losses: dict[float, list[np.ndarray]] = {}
    for curve in curves:
        known = x <= curve.fit.log_tokens[-1] + END_SLACK
        loss = np.where(known, np.interp(x, curve.fit.log_tokens, curve.fit.loss), np.nan)
        losses.setdefault(curve.batch, []).append(loss)
    return x, {batch: np.array(some) for batch, some in losses.items()}
