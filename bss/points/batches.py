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
    x, losses = _losses(curves)
    mean = {batch: pd.DataFrame(some).mean().to_numpy() for batch, some in losses.items()}
    best = np.nanmin(list(mean.values()), axis=0)
    return np.exp(x), {batch: loss - best for batch, loss in mean.items()}


def seed_bands(curves: Sequence[BatchCurve]) -> pd.DataFrame:
    """The curves of each batch over its seeds, and how far they are above the best batch there.

    Args:
        curves: one a batch and seed, every batch with the same seeds.

    Returns:
        Columns batch, tokens (as of `excess`), loss (mean), low and high (lowest and highest
        seed), above (loss less that of the batch with the lowest mean there) and error, 2 standard
        errors of it over paired seeds, NaN with one seed.
    """
    x, losses = _losses(sorted(curves, key=lambda curve: (curve.batch, curve.rows["seed"].iloc[0])))
    stacked = np.array([*losses.values()])  # [batch, seed, T]
    means = stacked.mean(axis=1)
    best = np.nanargmin(means, axis=0)
    apart = stacked - stacked[best, :, np.arange(len(x))].T
    seeds = stacked.shape[1]
    errors = 2 * apart.std(axis=1, ddof=1) / np.sqrt(seeds) if seeds > 1 else 0 * means + np.nan
    ends = stacked.min(axis=1), stacked.max(axis=1)
    tables = [
        pd.DataFrame({"batch": batch, "tokens": np.exp(x), "loss": means[i], "low": ends[0][i],
                      "high": ends[1][i], "above": apart[i].mean(axis=0), "error": errors[i]})
        for i, batch in enumerate(losses)
    ]  # fmt: skip
    return pd.concat(tables, ignore_index=True)


def meetings(curves: Sequence[BatchCurve], pairs: Sequence[tuple[float, float]]) -> pd.DataFrame:
    """Where the curve of a smaller batch falls behind that of a larger one for good.

    Args:
        curves: one a batch and seed.
        pairs: small and large.

    Returns:
        Columns small, large, tokens with low and high (2 standard errors of their logarithm over
        seeds), loss of the small batch there; of the pairs that meet so in every seed, two at
        least.
    """
    x, losses = _losses(sorted(curves, key=lambda curve: (curve.batch, curve.rows["seed"].iloc[0])))
    rows = []
    for small, large in pairs:
        ahead = losses[small] <= losses[large]
        if len(ahead) < 2 or ahead[:, -1].any() or not ahead.any(axis=1).all():
            continue
        last = ahead.shape[1] - 1 - np.argmax(ahead[:, ::-1], axis=1)
        at, error = x[last].mean(), 2 * x[last].std(ddof=1) / np.sqrt(len(last))
        loss = float(np.interp(at, x, losses[small].mean(axis=0)))
        rows.append((small, large, *np.exp([at, at - error, at + error]), loss))
    return pd.DataFrame(rows, columns=["small", "large", "tokens", "low", "high", "loss"])


def _losses(curves: Sequence[BatchCurve]) -> tuple[np.ndarray, dict[float, np.ndarray]]:
    """Log tokens [T] as of `excess`, and the losses of each batch there, [run, T]."""
    start = max(curve.fit.log_tokens[0] for curve in curves)
    end = max(curve.fit.log_tokens[-1] for curve in curves)
    x = np.linspace(start, end, GRID_POINTS)
    losses: dict[float, list[np.ndarray]] = {}
    for curve in curves:
        known = x <= curve.fit.log_tokens[-1] + END_SLACK
        loss = np.where(known, np.interp(x, curve.fit.log_tokens, curve.fit.loss), np.nan)
        losses.setdefault(curve.batch, []).append(loss)
    return x, {batch: np.array(some) for batch, some in losses.items()}
