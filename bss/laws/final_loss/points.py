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
    path = Path(path)
    try:
        if path.suffix == ".parquet":
            frame = pd.read_parquet(path).reset_index(drop=True)
        else:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
            skipped = [i for i, line in enumerate(lines) if line.startswith("#")]
            frame = pd.read_csv(path, skiprows=skipped, index_col=False)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{path}: cannot be read as CSV or Parquet: {reason}") from None
    return check_losses(frame, str(path))


def check_losses(frame: pd.DataFrame, source: str = "table") -> pd.DataFrame:
    """Check a table of final losses and put its batches in tokens.

    Args:
        frame: params, tokens, loss, and batch with seq_len, or batch_tokens; lr if it was varied.
            A loss that is missing or infinite says that the run diverged.
        source: what to call the table in an error message.

    Raises:
        InputError: a column is missing, or a row (the first is 1) is not positive, repeats
            another run, or contradicts itself.
    """
    by_tokens = "batch_tokens" in frame
    needed = ["params", "tokens", "loss"]
    needed += ["batch_tokens"] if by_tokens else ["batch", "seq_len"]
    lacking = [name for name in needed if name not in frame]
    if lacking:
        listed = ", ".join(map(str, frame.columns))
        raise InputError(f"{source}: no column {', '.join(lacking)}; it has {listed}")
    numeric = [*needed, *(c for c in ("batch", "seq_len", "lr") if c in frame and c not in needed)]
    columns = {name: pd.Series(pd.to_numeric(frame[name], errors="coerce")) for name in numeric}
    for name, column in columns.items():
        values = column.to_numpy(float)
        wrong = ~(np.isfinite(values) & (values > 0)) if name != "loss" else values <= 0
        for i in np.flatnonzero(wrong)[:1]:
            told = frame[name].tolist()[i]
            raise InputError(f"{source}, row {i + 1}: {name} is {told}; write a positive number")
    table = pd.DataFrame(columns).astype(float)
    if not by_tokens:
        table["batch_tokens"] = table["batch"] * table["seq_len"]
    elif "batch" in table and "seq_len" in table:
        size = (table["batch"] * table["seq_len"]).to_numpy()
        for i in np.flatnonzero(size != table["batch_tokens"].to_numpy())[:1]:
            raise InputError(
                f"{source}, row {i + 1}: batch_tokens is not batch times seq_len, {size[i]:g}; "
                "correct one of them"
            )
    if "run" in frame:
        table["run"] = frame["run"].astype(str)
    return table


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
