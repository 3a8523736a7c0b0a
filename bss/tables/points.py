"""The table of points: steps and tokens to a target loss, one row for a target of a run."""

from pathlib import Path

import numpy as np
import pandas as pd

from bss.tables.columns import Origin, counts, need, numbers, positive, refuse_duplicates
from bss.tables.reading import SETTINGS, Reading
from bss.tables.storage import read_table

POINTS = (
    "model", "params", "budget_tokens", "target_loss", "kind", "batch", "steps",
    "tokens_to_target", "reached", "resolution", "seq_len", "seed", "data_seed", "peak_lr",
)  # fmt: skip
"""Columns of a table of steps and tokens to a target loss; one row for a target of a run."""

TARGET = ("target_loss", "target")
KINDS = ("stable", "averaged", "annealed")


def holds_points(path: str | Path, reading: Reading | None = None) -> bool:
    """Return whether a table has target losses, and no loss curves."""
    frame, _ = read_table(path, reading)
    return bool({*TARGET} & {*frame}) and not {"loss", "eval_loss"} & {*frame}


def read_points(
    path: str | Path, reading: Reading | None = None, *, kind: str = "stable"
) -> pd.DataFrame:
    """Read and check a Points table; also the published critical-batch file, as it is.

    Args:
        path: CSV (lines that begin with # are comments) or Parquet, with target_loss (or target),
            batch, and steps or tokens_to_target. `tokens` is budget_tokens if there are steps, and
            tokens_to_target otherwise; `lr` is peak_lr; `params_m` (millions) becomes params. Those
            of SETTINGS that are there tell runs apart.
        reading: Column names of the file, and the sequence length if no column has it.
        kind: "stable", "averaged" or "annealed", where the file has no such column.

    Returns:
        A frame with the columns POINTS, float64 where a number may be missing. A row with
        `reached` False says that the target was not met within its steps.

    Raises:
        InputError: the file cannot be read, lacks a column, or a line is refused.
    """
    frame, origin = read_table(path, reading)
    if "params_m" in frame and "params" not in frame:
        frame["params"] = 1e6 * numbers(frame, "params_m", origin)
        frame = frame.drop(columns="params_m")
    if "target_loss" not in frame:
        frame = frame.rename(columns={"target": "target_loss"})
    if "peak_lr" not in frame:
        frame = frame.rename(columns={"lr": "peak_lr"})
    counted = bool({"steps", "tokens_to_target"} & {*frame})
    if not counted or "budget_tokens" not in frame:
        name = "budget_tokens" if counted else "tokens_to_target"
        frame = frame.rename(columns={"tokens": name})
    need(frame, origin, "target_loss", "batch", ("steps", "tokens_to_target"))
    points = frame.copy()
    points["batch"] = counts(frame, "batch", origin)
    defaults = {"kind": kind, "reached": True}
    for column in POINTS:
        if column not in points:
            points[column] = defaults.get(column, "" if column == "model" else np.nan)
    points["target_loss"] = positive(points, "target_loss", origin)
    for column in ("params", "budget_tokens", "steps", "tokens_to_target", "seq_len", "peak_lr"):
        points[column] = positive(points, column, origin, missing_ok=True)
    for i, value in enumerate(points["kind"]):
        if value not in KINDS:
            origin.refuse(i, f"kind {value!r} is unknown; write {', '.join(KINDS)}")
    points["reached"] = _booleans(pd.Series(points["reached"]), origin)
    _derive_to_target(points, origin)
    key = ["model", "params", "target_loss", "kind", "batch", "seq_len"]
    key += ["seed", "data_seed", "peak_lr", *(name for name in SETTINGS if name in points)]
    refuse_duplicates(points, key, origin)
    extra = [column for column in points if column not in POINTS]
    return points.reindex(columns=[*POINTS, *extra])


def _derive_to_target(points: pd.DataFrame, origin: Origin) -> None:
    """Fill steps from tokens to the target or the other way; refuse a contradiction."""
    size = points["batch"] * points["seq_len"]
    unknown = points["steps"].isna() & (points["tokens_to_target"].isna() | size.isna())
    off = (points["tokens_to_target"] - points["steps"] * size).abs() >= size
    for i in np.flatnonzero(unknown)[:1]:
        origin.refuse(i, "steps cannot be derived; give steps")
    for i in np.flatnonzero(off)[:1]:
        row = points.iloc[i]
        origin.refuse(
            i,
            f"tokens_to_target {row['tokens_to_target']:.0f} is not steps x batch x seq_len, "
            f"{row['steps'] * row['batch'] * row['seq_len']:.0f}; correct one of them",
        )
    points["steps"] = points["steps"].fillna(points["tokens_to_target"] / size)
    points["tokens_to_target"] = points["tokens_to_target"].fillna(points["steps"] * size)


def _booleans(column: pd.Series, origin: Origin) -> pd.Series:
    known = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
    values = column.astype(str).str.lower().map(known)
    for i in np.flatnonzero(values.isna())[:1]:
        origin.refuse(i, f"reached is {column.iloc[i]}; write true or false")
    return values.astype(bool)
