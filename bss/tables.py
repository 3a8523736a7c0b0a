"""The tables that rooms exchange, and the reading and checking of users' CSV and Parquet files.

Beside Plan the only place that turns steps into tokens: here for curves of other trainers, by
integrating the batch that each step used (derived here). A row's batch is the batch of the steps
since the row before; the first row's, of the steps since step 0.
"""

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import pandas as pd

from bss.errors import InputError

CURVE = ("step", "tokens", "batch", "lr", "loss")
"""Columns of one run's curve; with eval_loss, grad_norm, seconds, ... where they were measured."""

RUNS = ("run", "model", "params", "seq_len", "seed", "data_seed", "peak_lr", *CURVE)
"""Columns of our run tables. A user's needs only what `check_runs` says."""

POINTS = (
    "model", "params", "budget_tokens", "target_loss", "kind", "batch", "steps",
    "tokens_to_target", "reached", "resolution", "seq_len", "seed", "data_seed", "peak_lr", "hyper",
)  # fmt: skip
"""Columns of a table of steps and tokens to a target loss; one row for a target of a run."""

PUBLISHED_POINTS = {"params_m": "params", "tokens": "budget_tokens"}
"""Columns of the published critical-batch file (arXiv 2410.21676) and what they are here."""

KINDS = ("stable", "averaged", "annealed")


@dataclass(frozen=True)
class _Origin:
    """Where a table came from, to say in an error message."""

    source: str
    rows: Sequence[str]

    def refuse(self, i: int, told: str) -> NoReturn:
        raise InputError(f"{self.source}, {self.rows[i]}: {told}")


def read_runs(path: str | Path) -> pd.DataFrame:
    """Read and check a run table from CSV (lines that begin with # are comments) or Parquet.

    Returns:
        As `check_runs`.

    Raises:
        InputError: the file cannot be read, or `check_runs` refuses a line.
    """
    return _checked_runs(*_read(path))


def check_runs(frame: pd.DataFrame, source: str = "runs") -> pd.DataFrame:
    """Check a table of loss curves and derive what it lacks.

    Needed are run, batch (sequences), loss or eval_loss (nats per token), one of step or tokens,
    and one of seq_len or batch_tokens; any other column is passed on. A row may lack the loss
    where it has an eval_loss.

    Args:
        frame: rows of a run in order; runs may alternate.
        source: what to call the table in an error message.

    Returns:
        A new frame with columns run (text), step, tokens, batch, seq_len (int64) and loss, the
        loss being the eval_loss where there is no other.

    Raises:
        InputError: a column is missing; a value is missing, not finite, not positive or (of a
            count) not whole; a run's rows repeat or go back; columns contradict each other. It
            names the row, the first being 1.
    """
    return _checked_runs(frame, _Origin(source, _row_names(frame)))


def loss_column(frame: pd.DataFrame) -> str:
    """The column to evaluate a run by: held-out loss where there is one, else training loss."""
    return "eval_loss" if "eval_loss" in frame else "loss"


def read_points(
    path: str | Path, *, seq_len: int | None = None, kind: str = "stable"
) -> pd.DataFrame:
    """Read and check a Points table; also the published critical-batch file, as it is.

    Args:
        path: CSV (lines that begin with # are comments) or Parquet, with target_loss, batch, and
            steps or tokens_to_target. The published file's `params_m` (millions) becomes params
            and its `tokens` budget_tokens.
        seq_len: tokens per sequence, where the file has no such column.
        kind: "stable", "averaged" or "annealed", where the file has no such column.

    Returns:
        A frame with the columns POINTS, float64 where a number may be missing. A row with
        `reached` False says that the target was not met within its steps.

    Raises:
        InputError: the file cannot be read, lacks a column, or a line is refused.
    """
    frame, origin = _read(path)
    if "params_m" in frame:
        frame = frame.rename(columns=PUBLISHED_POINTS)
        frame["params"] = 1e6 * _numbers(frame, "params", origin)
    _need(frame, origin, "target_loss", "batch", ("steps", "tokens_to_target"))
    points = frame.copy()
    points["batch"] = _counts(frame, "batch", origin)
    defaults = {"seq_len": np.nan if seq_len is None else seq_len, "kind": kind, "reached": True}
    for column in POINTS:
        if column not in points:
            points[column] = defaults.get(column, "" if column in ("model", "hyper") else np.nan)
    points["target_loss"] = _positive(points, "target_loss", origin)
    for column in ("params", "budget_tokens", "steps", "tokens_to_target", "seq_len", "peak_lr"):
        points[column] = _positive(points, column, origin, missing_ok=True)
    for i, value in enumerate(points["kind"]):
        if value not in KINDS:
            origin.refuse(i, f"kind {value!r} is unknown; write {', '.join(KINDS)}")
    points["reached"] = _booleans(pd.Series(points["reached"]), origin)
    _derive_to_target(points, origin)
    key = ["model", "params", "target_loss", "kind", "batch", "seq_len"]
    key += ["seed", "data_seed", "peak_lr", "hyper"]
    _refuse_duplicates(points, key, origin)
    extra = [column for column in points if column not in POINTS]
    return points.reindex(columns=[*POINTS, *extra])


def write_table(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a table as CSV or Parquet, whole or not at all (a temporary file, then a rename).

    Raises:
        InputError: the name ends in neither .csv nor .parquet, or its directory does not exist.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"table: {path.parent} is no directory; make it, or write elsewhere")
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"table: {path} has an unknown ending; write it as .csv or .parquet")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.suffix == ".csv":
            frame.to_csv(temporary, index=False)
        else:
            frame.to_parquet(temporary, index=False)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _read(path: str | Path) -> tuple[pd.DataFrame, _Origin]:
    """The table as it stands, and its origin."""
    path = Path(path)
    try:
        if path.suffix == ".parquet":
            frame = pd.read_parquet(path).reset_index(drop=True)
            return frame, _Origin(str(path), _row_names(frame))
        numbered = [
            (number, line)
            for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1)
            if line.strip() and not line.startswith("#")
        ]
        _refuse_ragged(path, numbered)
        text = "\n".join(line for _, line in numbered)
        frame = pd.read_csv(io.StringIO(text), dtype={"run": str, "model": str}, index_col=False)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, ValueError, csv.Error) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{path}: cannot be read as CSV or Parquet: {reason}") from None
    return frame, _Origin(str(path), [f"line {number}" for number, _ in numbered[1:]])


def _refuse_ragged(path: Path, numbered: list[tuple[int, str]]) -> None:
    widths = [len(values) for values in csv.reader(line for _, line in numbered)]
    for (number, _), width in zip(numbered, widths, strict=False):
        if width != widths[0]:
            raise InputError(
                f"{path}, line {number}: {width} values for {widths[0]} columns; correct the line"
            )


def _row_names(frame: pd.DataFrame) -> list[str]:
    return [f"row {i + 1}" for i in range(len(frame))]


def _checked_runs(frame: pd.DataFrame, origin: _Origin) -> pd.DataFrame:
    _need(
        frame, origin, "run", "batch", ("loss", "eval_loss"), ("step", "tokens"),
        ("seq_len", "batch_tokens"),
    )  # fmt: skip
    if frame.empty:
        raise InputError(f"{origin.source}: has no rows; write at least one")
    runs = frame.reset_index(drop=True).copy()
    for i, missing in enumerate(runs["run"].isna()):
        if missing:
            origin.refuse(i, "run is missing; name the run of every row")
    runs["run"] = runs["run"].astype(str)
    runs["batch"] = _counts(runs, "batch", origin)
    runs["seq_len"] = _sequence_lengths(runs, origin)
    for column in ("step", "tokens"):
        if column in runs:
            runs[column] = _counts(runs, column, origin, least=0)
    _check_losses(runs, origin)
    pieces = [_integrated(run, origin) for _, run in runs.groupby("run", sort=False)]
    return pd.concat(pieces).sort_index()


def _integrated(run: pd.DataFrame, origin: _Origin) -> pd.DataFrame:
    """One run, in order, with steps or tokens derived from the other, or compared with it."""
    for column in ("step", "tokens"):
        if column in run:
            _refuse_going_back(run, column, origin)
    size = (run["batch"] * run["seq_len"]).to_numpy()
    if "tokens" not in run:
        taken = np.diff(run["step"].to_numpy(), prepend=0)
        return run.assign(tokens=np.cumsum(taken * size))
    if "step" not in run:
        consumed = np.diff(run["tokens"].to_numpy(), prepend=0)
        steps = np.rint(np.cumsum(consumed / size)).astype(np.int64)
        derived = run.assign(step=steps)
        _refuse_going_back(derived, "step", origin)
        return derived
    _refuse_contradiction(run, size, origin)
    return run


def _refuse_contradiction(run: pd.DataFrame, size: np.ndarray, origin: _Origin) -> None:
    """Refuse tokens that differ from steps times batch by a whole step, since the first row.

    The first row is free, because a branch or a cut-off file does not begin at token 0, but a
    step takes at least a sequence. Between rows of two batches the switch may be anywhere.
    """
    step, tokens = run["step"].to_numpy(), run["tokens"].to_numpy()
    taken, before = np.diff(step), np.minimum(size[:-1], size[1:])
    least = np.concatenate([[0], np.cumsum(taken * before)])
    most = np.concatenate([[0], np.cumsum(taken * np.maximum(size[:-1], size[1:]))])
    since = tokens - tokens[0]
    wrong = (since <= least - size) | (since >= most + size)
    wrong[0] = tokens[0] < step[0] * run["seq_len"].iloc[0]
    if wrong.any():
        i = int(np.argmax(wrong))
        row, start = int(run.index[i]), origin.rows[run.index[0]]
        expected = f"{least[i]}" if least[i] == most[i] else f"{least[i]} to {most[i]}"
        told = (
            f"tokens {tokens[0]} are fewer than a sequence for each of {step[0]} steps"
            if i == 0
            else f"{since[i]} tokens since {start}, but its steps and batches make {expected}"
        )
        origin.refuse(row, f"{told}; correct step, tokens, batch or seq_len")


def _derive_to_target(points: pd.DataFrame, origin: _Origin) -> None:
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


def _need(frame: pd.DataFrame, origin: _Origin, *columns: str | tuple[str, ...]) -> None:
    """Refuse a table that lacks a column, or all of several alternative ones."""
    alternatives = [c if isinstance(c, tuple) else (c,) for c in columns]
    lacking = [" or ".join(c) for c in alternatives if not any(name in frame for name in c)]
    if lacking:
        raise InputError(
            f"{origin.source}: no column {', '.join(lacking)}; "
            f"it has {', '.join(map(str, frame.columns))}"
        )


def _numbers(
    frame: pd.DataFrame, column: str, origin: _Origin, missing_ok: bool = False
) -> pd.Series:
    numbers = pd.Series(pd.to_numeric(frame[column], errors="coerce"))
    refused = ~np.isfinite(numbers.astype(float))
    if missing_ok:
        refused &= frame[column].notna()
    for i in np.flatnonzero(refused)[:1]:
        hint = "drop the rows after divergence" if "loss" in column else "write a finite number"
        origin.refuse(i, f"{column} is {frame[column].iloc[i]}; {hint}")
    return numbers


def _positive(
    frame: pd.DataFrame, column: str, origin: _Origin, missing_ok: bool = False
) -> pd.Series:
    numbers = _numbers(frame, column, origin, missing_ok).astype(float)
    for i in np.flatnonzero(numbers <= 0)[:1]:
        origin.refuse(i, f"{column} is {frame[column].iloc[i]}; write a positive number")
    return numbers


def _counts(frame: pd.DataFrame, column: str, origin: _Origin, least: int = 1) -> pd.Series:
    numbers = _numbers(frame, column, origin)
    for i in np.flatnonzero((numbers < least) | (numbers % 1 != 0) | (numbers >= 2**63))[:1]:
        origin.refuse(
            i, f"{column} is {frame[column].iloc[i]}; write a whole number of at least {least}"
        )
    return numbers.astype(np.int64)


def _booleans(column: pd.Series, origin: _Origin) -> pd.Series:
    known = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
    values = column.astype(str).str.lower().map(known)
    for i in np.flatnonzero(values.isna())[:1]:
        origin.refuse(i, f"reached is {column.iloc[i]}; write true or false")
    return values.astype(bool)


def _sequence_lengths(runs: pd.DataFrame, origin: _Origin) -> pd.Series:
    if "batch_tokens" not in runs:
        return _counts(runs, "seq_len", origin)
    size = _counts(runs, "batch_tokens", origin)
    if "seq_len" in runs:
        lengths = _counts(runs, "seq_len", origin)
        wrong, rule = size != runs["batch"] * lengths, "batch times seq_len"
    else:
        lengths = size // runs["batch"]
        wrong, rule = size % runs["batch"] != 0, "a multiple of batch"
    for i in np.flatnonzero(wrong)[:1]:
        origin.refuse(
            i,
            f"batch_tokens {size[i]} is not {rule} (batch {runs['batch'][i]}); correct one of them",
        )
    return lengths


def _check_losses(runs: pd.DataFrame, origin: _Origin) -> None:
    """Make the loss columns numbers; every row needs one of them, and none may be infinite."""
    columns = [column for column in ("loss", "eval_loss") if column in runs]
    for column in columns:
        runs[column] = _positive(runs, column, origin, missing_ok=True)
    for i in np.flatnonzero(runs[columns].isna().all(axis=1))[:1]:
        origin.refuse(i, f"{columns[0]} is missing or NaN; drop the rows after divergence")
    if "loss" not in runs:
        runs["loss"] = runs["eval_loss"]


def _refuse_going_back(run: pd.DataFrame, column: str, origin: _Origin) -> None:
    values, name = run[column].to_numpy(), run["run"].iloc[0]
    for i in np.flatnonzero(np.diff(values) <= 0)[:1]:
        earlier, row = origin.rows[run.index[i]], int(run.index[i + 1])
        if values[i + 1] == values[i]:
            told = f"{column} {values[i]} of run {name} was given in {earlier}; drop one"
        else:
            told = f"{column} {values[i + 1]} of run {name} follows {values[i]}; sort the rows"
        origin.refuse(row, told)


def _refuse_duplicates(frame: pd.DataFrame, key: list[str], origin: _Origin) -> None:
    groups = frame.groupby(key, dropna=False).ngroup().to_numpy()
    for i in np.flatnonzero(frame.duplicated(key))[:1]:
        first = origin.rows[int(np.argmax(groups == groups[i]))]
        origin.refuse(i, f"repeats {first}; drop one of them")
