"""Final losses of finished runs, as teams have them: one row per run, reduced to design points.

At each (params, tokens, batch) the learning rate with the least loss counts, losses of repeated
runs at one rate being averaged; how many rates the minimum was taken over is kept, because a
minimum over many is too low by luck and one over few too high.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.tables.columns import Origin, need, positive, row_names
from bss.tables.storage import read_table


@dataclass(frozen=True)
class LossPoints:
    """Least final losses over the learning rate, [n] each.

    Attributes:
        params: non-embedding parameters N.
        tokens: training tokens D.
        batch: B in tokens.
        loss: in nats.
        rates: learning rates that the minimum was taken over.
        bracketed: whether a rate was tried on both sides of the best one.
    """

    params: np.ndarray
    tokens: np.ndarray
    batch: np.ndarray
    loss: np.ndarray
    rates: np.ndarray
    bracketed: np.ndarray


def read_losses(path: str | Path) -> pd.DataFrame:
    """Read a table of final losses from CSV (lines that begin with # are comments) or Parquet.

    Returns:
        The rows with params, tokens, batch_tokens, loss, and lr where there is one.

    Raises:
        InputError: it cannot be read, or a row is refused.
    """
    return _checked(*read_table(path))


def check_losses(frame: pd.DataFrame, source: str = "table") -> pd.DataFrame:
    """Check a table of final losses and put its batches in tokens.

    Args:
        frame: params, tokens, loss, and batch with seq_len, or batch_tokens; lr if it was varied.
            A loss that is missing or infinite says that the run diverged.
        source: what to call the table in an error message.

    Raises:
        InputError: a column is missing, or a row (the first is 1) is not positive or contradicts
            itself.
    """
    return _checked(frame, Origin(source, row_names(frame)))


def _checked(frame: pd.DataFrame, origin: Origin) -> pd.DataFrame:
    size = ["batch_tokens"] if "batch_tokens" in frame else ["batch", "seq_len"]
    need(frame, origin, "params", "tokens", "loss", *size)
    given = [*size, *(name for name in ("batch", "seq_len", "lr") if name in frame)]
    columns = {name: positive(frame, name, origin) for name in ("params", "tokens", *given)}
    losses = columns["loss"] = pd.Series(pd.to_numeric(frame["loss"], errors="coerce"), dtype=float)
    for i in np.flatnonzero(losses <= 0)[:1]:
        origin.refuse(i, f"loss is {losses.iloc[i]:g}; write a positive number")
    if {"batch", "seq_len"} <= columns.keys():
        size = columns["batch"] * columns["seq_len"]
        for i in np.flatnonzero(size != columns.setdefault("batch_tokens", size))[:1]:
            told = f"batch_tokens is not batch times seq_len, {size.iloc[i]:g}"
            origin.refuse(i, f"{told}; correct one of them")
    if "run" in frame:
        columns["run"] = pd.Series(frame["run"].astype(str))
    return pd.DataFrame(columns)


def loss_points(table: pd.DataFrame) -> tuple[LossPoints, list[str]]:
    """Design points from checked rows, and warnings.

    Raises:
        InputError: no row has a finite loss.
    """
    warnings = []
    finite = np.isfinite(table["loss"].to_numpy(float))
    if not finite.any():
        raise InputError("loss: no row has a finite one; give final losses")
    if not finite.all():
        warnings.append(f"{int((~finite).sum())} rows without a finite loss: diverged, left out")
    rows = []
    for key, here in table.loc[finite].groupby(["params", "tokens", "batch_tokens"]):
        params, tokens, batch = key  # type: ignore[misc]
        losses = {0.0: float(np.mean(here["loss"].tolist()))}
        if "lr" in here:
            losses = {
                float(lr): float(np.mean(group["loss"].tolist()))  # type: ignore[arg-type]
                for lr, group in here.groupby("lr")
            }
        best = min(losses, key=lambda lr: losses[lr])
        inside = min(losses) < best < max(losses)
        rows.append((params, tokens, batch, losses[best], len(losses), inside))
    points = LossPoints(*(np.array(column) for column in zip(*rows, strict=True)))
    warnings += _rate_warnings(points, "lr" in table)
    return points, warnings


def _rate_warnings(points: LossPoints, has_rates: bool) -> list[str]:
    if not has_rates:
        return ["no column lr: every loss is taken as that of a tuned learning rate"]
    open_ended = int((~points.bracketed).sum())
    if not open_ended:
        return []
    single = int((points.rates == 1).sum())
    return [
        f"learning rate not bracketed at {open_ended} of {len(points.loss)} points ({single} with "
        "one rate only): their losses are upper bounds of the tuned ones"
    ]
