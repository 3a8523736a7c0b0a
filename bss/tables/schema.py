"""The tables that packages exchange, checked: runs with their loss curves, and points.

A run table has loss curves of many runs, ours and those of other trainers. Ours has the columns
run, model, params, seq_len, seed, data_seed, peak_lr, step, tokens, batch, lr, loss, and measured
ones: eval_loss, grad_norm, seconds, ... A user's needs only what `check_runs` says.

Only this module and Plan convert steps into tokens. Curves of other trainers are converted by
integrating the batch size of each step (derived here). A row's batch is the batch of the steps
since the row before; the first row's, of the steps since step 0.

A table of points has steps and tokens to a target loss, one row for a target of a run.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.tables.columns import (
    Origin,
    as_numbers,
    counts,
    need,
    numbers,
    positive,
    refuse_duplicates,
    refuse_odd,
)
from bss.tables.reading import SETTINGS, Reading
from bss.tables.renaming import with_new_names
from bss.tables.storage import read_table


def read_runs(
    path: str | Path, reading: Reading | None = None, *, need_loss: bool = True
) -> pd.DataFrame:
    """Read and check a run table from CSV (lines that begin with # are comments) or Parquet.

    Args:
        path: Path of the file.
        reading: Column names of the file.
        need_loss: as in `check_runs`.

    Returns:
        As `check_runs`.

    Raises:
        InputError: the file cannot be read, or `check_runs` refuses a line.

    Examples:
        >>> sorted({*read_runs("results/demo/runs.parquet")["batch"].tolist()})  # sequences
        [1, 2, 3, 4, 6, 8, 12, 16, 32]
    """
    return check_runs(*read_table(path, reading), need_loss=need_loss)


def check_runs(
    frame: pd.DataFrame, source: str | Origin = "runs", *, need_loss: bool = True
) -> pd.DataFrame:
    """Check a table of loss curves and derive what it lacks.

    Needed are run, batch (sequences), loss or eval_loss (nats per token), one of step or tokens,
    and one of seq_len or batch_tokens; any other column is passed on. A row may lack the loss if it
    has an eval_loss.

    Args:
        frame: rows of a run in order; runs may alternate.
        source: Name of the table in error messages, or its origin.
        need_loss: refuse rows without a loss, except at the end of a run that diverged; else they
            are of the schedule alone, their loss NaN.

    Returns:
        A new frame with columns run (text), step, tokens, batch, seq_len (int64) and loss. A
        missing loss is replaced by the eval_loss. If a run has no finite loss at its end, and other
        runs have one, its `status` is "diverged".

    Raises:
        InputError: If a column or value is missing, or a value is not finite, not positive or (for
            counts) not whole. If a run's rows repeat or go back, or columns contradict each other.
            It names the row, the first being 1.

    Examples:
        >>> columns = {"batch": 8, "seq_len": 64, "step": [10, 20], "loss": [3.0, 2.5]}
        >>> check_runs(pd.DataFrame({"run": "a", **columns}))["tokens"].tolist()
        [5120, 10240]
    """
    origin = source if isinstance(source, Origin) else Origin(source)
    refuse_odd(frame, origin)
    losses = [("loss", "eval_loss")] if need_loss else []
    counted = ("step", "tokens"), ("seq_len", "batch_tokens")
    need(frame, origin, "run", "batch", *losses, *counted)
    if frame.empty:
        raise InputError(f"{origin.source}: has no rows; write at least one")
    runs = frame.reset_index(drop=True)
    for i in np.flatnonzero(runs["run"].isna())[:1]:
        origin.refuse(i, "run is missing; name the run of every row")
    runs["run"] = runs["run"].astype(str)
    rows = {str(name): rows for name, rows in runs.groupby("run").indices.items()}
    return pd.DataFrame(check_columns(dict(runs.items()), rows, origin, need_loss), runs.index)


def check_columns(
    columns: dict[str, Any], rows: Mapping[str, np.ndarray], origin: Origin, need_loss: bool = True
) -> dict[str, Any]:
    """Return columns that are checked and derived as `check_runs` does it, without a frame.

    Args:
        columns: Series or arrays by name, those that `check_runs` needs and others.
        rows: Positions of the rows of each run, in order.
        origin: The origin of the columns.
        need_loss: as in `check_runs`.
    """
    runs = {**columns, "batch": counts(columns, "batch", origin)}
    runs["seq_len"] = _sequence_lengths(runs, origin)
    for column in ("step", "tokens"):
        if column in runs:
            runs[column] = counts(runs, column, origin, least=0)
    runs = _mark_diverged(runs, rows, need_loss)
    runs = _with_losses(runs, origin, need_loss)
    return _integrated(runs, rows, origin)


class _Run(NamedTuple):
    """The rows of a run in order, and their counts.

    Attributes:
        name: of the run.
        rows: positions in the table.
        seq_len: tokens of a sequence.
        size: tokens of a step.
    """

    name: str
    rows: np.ndarray
    seq_len: np.ndarray
    size: np.ndarray


def _integrated(
    runs: dict[str, Any], rows_of_runs: Mapping[str, np.ndarray], origin: Origin
) -> dict[str, Any]:
    """Return runs with steps or tokens derived from the other, or compared with it."""
    given = {column: runs[column] for column in ("step", "tokens") if column in runs}
    lengths = runs["seq_len"]
    sizes = runs["batch"] * lengths
    derived = np.zeros(len(sizes), np.int64)
    for name, rows in rows_of_runs.items():
        run = _Run(name, rows, lengths[rows], sizes[rows])
        counted = {column: values[rows] for column, values in given.items()}
        for column, values in counted.items():
            _refuse_going_back(run, column, values, origin)
        if len(counted) > 1:
            _refuse_contradiction(run, counted["step"], counted["tokens"], origin)
        elif "step" in counted:
            derived[rows] = np.cumsum(np.diff(counted["step"], prepend=0) * run.size)
        else:
            consumed = np.diff(counted["tokens"], prepend=0)
            derived[rows] = np.rint(np.cumsum(consumed / run.size)).astype(np.int64)
            _refuse_going_back(run, "step", derived[rows], origin)
    lacking = {"step", "tokens"} - given.keys()
    return runs | dict.fromkeys(lacking, derived)


def _refuse_contradiction(run: _Run, step: np.ndarray, tokens: np.ndarray, origin: Origin) -> None:
    """Refuse tokens that differ from steps times batch by a whole step, since the first row.

    The first row is free, because a branch or a cut-off file does not begin at token 0, but a
    step takes at least a sequence. Between rows of two batches the switch may be anywhere.
    """
    size = run.size
    taken = np.diff(step)
    least = np.concatenate([[0], np.cumsum(taken * np.minimum(size[:-1], size[1:]))])
    most = np.concatenate([[0], np.cumsum(taken * np.maximum(size[:-1], size[1:]))])
    since = tokens - tokens[0]
    wrong = (since <= least - size) | (since >= most + size)
    wrong[0] = tokens[0] < step[0] * run.seq_len[0]
    if wrong.any():
        i = int(np.argmax(wrong))
        start = origin.row(int(run.rows[0]))
        expected = f"{least[i]}" if least[i] == most[i] else f"{least[i]} to {most[i]}"
        reason = (
            f"tokens {tokens[0]} are fewer than a sequence for each of {step[0]} steps"
            if i == 0
            else f"{since[i]} tokens since {start}, but its steps and batches make {expected}"
        )
        origin.refuse(int(run.rows[i]), f"{reason}; correct step, tokens, batch or seq_len")


def _sequence_lengths(runs: Mapping[str, Any], origin: Origin) -> np.ndarray:
    if "batch_tokens" not in runs:
        return counts(runs, "seq_len", origin)
    size = counts(runs, "batch_tokens", origin)
    batch = runs["batch"]
    if "seq_len" in runs:
        lengths = counts(runs, "seq_len", origin)
        rule = "batch times seq_len"
    else:
        lengths = size // batch
        rule = "a multiple of batch"
    for i in np.flatnonzero(size != batch * lengths)[:1]:
        reason = f"batch_tokens {size[i]} is not {rule} (batch {batch[i]})"
        origin.refuse(i, f"{reason}; correct one of them")
    return lengths


def _mark_diverged(
    runs: dict[str, Any], rows_of_runs: Mapping[str, np.ndarray], need_loss: bool
) -> dict[str, Any]:
    """Mark runs that have no finite loss at their end as "diverged" in the column `status`.

    Their infinite losses become missing ones. If no run would be left, none is marked, so that the
    rows are refused.
    """
    columns = [column for column in ("loss", "eval_loss") if column in runs]
    infinite = {name: np.isinf(as_numbers(runs[name])) for name in columns}
    lost = np.all([infinite[name] | pd.isna(runs[name]) for name in columns], axis=0)
    if not need_loss:  # a row without a loss is of the schedule alone
        lost &= np.any([*infinite.values()], axis=0)
    if not np.any(lost):
        return runs
    marked = np.zeros(len(runs["batch"]), bool)
    for rows in rows_of_runs.values():
        marked[rows] = lost[rows[-1]]
    if not columns or not marked.any() or marked.all():
        return runs
    finite = {name: pd.Series(runs[name]).mask(marked & infinite[name]) for name in columns}
    status = pd.Series(runs.get("status", ""), range(len(marked)))
    return runs | finite | {"status": status.mask(marked, "diverged")}


def _with_losses(runs: dict[str, Any], origin: Origin, need_loss: bool) -> dict[str, Any]:
    """Return runs with losses that are numbers, none infinite; a row has one where it needs it.

    An empty column eval_loss counts as missing.
    """
    columns = [column for column in ("loss", "eval_loss") if column in runs]
    losses = {column: positive(runs, column, origin, missing_ok=True) for column in columns}
    lacking = np.all([np.isnan(values) for values in losses.values()], axis=0) & need_loss
    if "status" in runs:
        lacking &= np.asarray(runs["status"] != "diverged")
    for i in np.flatnonzero(lacking)[:1]:
        origin.refuse(i, f"{columns[0]} is missing or NaN; drop the rows after divergence")
    held_out = losses.get("eval_loss", np.full(len(runs["batch"]), np.nan))
    runs = runs | {"loss": held_out} | losses  # the held-out loss, if there is no other
    if np.isnan(held_out).all():
        runs.pop("eval_loss", None)
    return runs


def _refuse_going_back(run: _Run, column: str, values: np.ndarray, origin: Origin) -> None:
    for i in np.flatnonzero(np.diff(values) <= 0)[:1]:
        same = np.flatnonzero(values[: i + 1] == values[i + 1])
        if len(same):
            earlier = origin.row(int(run.rows[same[0]]))
            reason = f"{column} {values[i + 1]} of run {run.name} was given in {earlier}; drop one"
        else:
            reason = (
                f"{column} {values[i + 1]} of run {run.name} follows {values[i]}; sort the rows"
            )
        origin.refuse(int(run.rows[i + 1]), reason)


POINTS = (
    "model", "params", "budget_tokens", "target_loss", "lr_phase", "weights", "batch", "steps",
    "tokens_to_target", "reached", "eval_spacing", "seq_len", "seed", "data_seed", "peak_lr",
)  # fmt: skip
"""Columns of a table of steps and tokens to a target loss; one row for a target of a run."""

TARGET = ("target_loss", "target")
LR_PHASES = ("constant", "decayed", "cosine")
WEIGHTS = ("last", "averaged")


TABLE = Origin("points")


def holds_points(table: pd.DataFrame) -> bool:
    """Return whether a table has target losses, and no loss curves."""
    return bool({*TARGET} & {*table}) and not {"loss", "eval_loss"} & {*table}


def read_points(
    path: str | Path,
    reading: Reading | None = None,
    *,
    lr_phase: str = "constant",
    weights: str = "last",
) -> pd.DataFrame:
    """Read and check a Points table; also the published critical-batch file, as it is.

    Args:
        path: CSV (lines that begin with # are comments) or Parquet, with target_loss (or target),
            batch, and steps or tokens_to_target. `tokens` is budget_tokens if there are steps, and
            tokens_to_target otherwise; `lr` is peak_lr; `params_m` (millions) becomes params. Those
            of SETTINGS that are there tell runs apart.
        reading: Column names of the file, and the sequence length if no column has it.
        lr_phase: "constant", "decayed" or "cosine", where the file has no such column.
        weights: "last" or "averaged", where the file has no such column.

    Returns:
        A frame with the columns POINTS, float64 where a number may be missing. A row with
        `reached` False says that the target was not met within its steps.

    Raises:
        InputError: the file cannot be read, lacks a column, or a line is refused.

    Examples:
        >>> from importlib.resources import files
        >>> points = read_points(files("bss.laws") / "published" / "cbs_steps.csv")
        >>> sorted({*points["target_loss"].tolist()})[:2]  # nats
        [2.736, 2.92]
    """
    frame, origin = read_table(path, reading)
    return check_points(frame, origin, lr_phase=lr_phase, weights=weights)


def check_points(
    frame: pd.DataFrame,
    origin: Origin = TABLE,
    *,
    lr_phase: str = "constant",
    weights: str = "last",
) -> pd.DataFrame:
    """Check a table of points; arguments, result and errors are those of `read_points`.

    Args:
        frame: With the columns that `read_points` names.
        origin: What to call the table and its rows in an error message.
        lr_phase: "constant", "decayed" or "cosine", if the table has no such column.
        weights: "last" or "averaged", if the table has no such column.
    """
    refuse_odd(frame, origin)
    frame, old = with_new_names(frame)
    for line in old:
        warnings.warn(f"{origin.source}: {line}", stacklevel=3)
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
    defaults = {"lr_phase": lr_phase, "weights": weights, "reached": True}
    for column in POINTS:
        if column not in points:
            points[column] = defaults.get(column, "" if column == "model" else np.nan)
    points["target_loss"] = positive(points, "target_loss", origin)
    for column in ("params", "budget_tokens", "steps", "tokens_to_target", "seq_len", "peak_lr"):
        points[column] = positive(points, column, origin, missing_ok=True)
    for column, known in (("lr_phase", LR_PHASES), ("weights", WEIGHTS)):
        for i, value in enumerate(points[column]):
            if not isinstance(value, str) or value not in known:
                origin.refuse(i, f"{column} {value!r} is unknown; write {', '.join(known)}")
    if "run" in points:
        for i in np.flatnonzero(points["run"].isna())[:1]:
            origin.refuse(i, "run is missing; name the run of every row, or leave the column out")
    points["reached"] = _booleans(pd.Series(points["reached"]), origin)
    _derive_to_target(points, origin)
    key = ["model", "params", "target_loss", "lr_phase", "weights", "batch", "seq_len"]
    key += ["seed", "data_seed", "peak_lr"]
    key += [name for name in ("run", *SETTINGS) if name in points]
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
