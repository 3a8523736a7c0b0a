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
from bss.tables.reading import Reading
from bss.tables.storage import read_table


@dataclass(frozen=True)
class LossPoints:
    """Least final losses over the learning rate, [n] each.

    Attributes:
        params, tokens: non-embedding parameters N, training tokens D.
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


def read_losses(path: str | Path, reading: Reading | None = None) -> pd.DataFrame:
    """Read a table of final losses from CSV (lines that begin with # are comments) or Parquet.

    Args:
        path: of the file.
        reading: what it calls its columns.

    Raises:
        InputError: it cannot be read, or `check_losses` refuses a row.
    """
    return _checked(*read_table(path, reading))


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
    known = ["params", "tokens", *size, "batch", "seq_len", "lr"]
    columns = {name: positive(frame, name, origin) for name in known if name in frame}
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
    tried = table.loc[finite] if "lr" in table else table.loc[finite].assign(lr=0.0)
    for size, here in tried.groupby(["params", "tokens", "batch_tokens"]):
        losses = here.groupby("lr")["loss"].mean()
        best, rates = losses.idxmin(), losses.index
        rows.append((*size, losses.min(), len(rates), rates.min() < best < rates.max()))  # type: ignore[misc]
    points = LossPoints(*map(np.array, zip(*rows, strict=True)))
    open_ended, single = int((~points.bracketed).sum()), int((points.rates == 1).sum())
    if "lr" not in table:
        warnings.append("no column lr: every loss is taken as that of a tuned learning rate")
    elif open_ended:
        warnings.append(
            f"learning rate not bracketed at {open_ended} of {len(rows)} points ({single} with one "
            "rate only): their losses are upper bounds of the tuned ones"
        )
    return points, warnings
