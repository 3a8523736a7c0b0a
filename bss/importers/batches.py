"""Batch and tokens of every row: from the log, from options, or from both.

Steps become tokens as a Plan resolves the schedule; counts in the log are kept and compared.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from bss.errors import InputError, check
from bss.importers.log import COLUMNS, LOSSES, Columns, present, some
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve
from bss.tables.likeness import held_out_name, unit_of_loss
from bss.tables.reading import COLUMNS as OF_TABLES
from bss.tables.reading import Reading

ROUNDED = 0.51
"""Error of a count that is printed with three digits, in the last of them: half, and a little."""

ASSUMED = "assumed_batch"
"""Column of a batch size that may be of a device; a given one replaces it."""
DROPPED = ("samples", "rounded_tokens", "batch_tokens", "planned_steps", ASSUMED)
"""Columns of a log that a run table does not have."""

LONG = ("metric", "value")
"""Columns of a table with a row per value, beside run and step."""


@dataclass(frozen=True)
class LogReading(Reading):
    """Names of the values of logs, and of the columns of a long table."""

    known: ClassVar[Sequence[str]] = tuple(dict.fromkeys([*OF_TABLES, *COLUMNS, *LONG]))


@dataclass(frozen=True)
class Batches:
    """Batch schedules of runs, by patterns of their names.

    Examples:
        >>> str(Batches.parse(["big*=0:256 2B:512"]).of("big-1"))
        '0:256 2B:512'
    """

    schedules: tuple[tuple[str, BatchSchedule], ...] = ()

    @classmethod
    def parse(cls, texts: Sequence[str]) -> "Batches":
        """Return the batches written as GLOB=SCHEDULE, or as SCHEDULE alone for every run.

        Raises:
            InputError: If a schedule is not written so.
        """
        pairs = [text.rpartition("=") for text in texts]
        return cls(tuple((glob or "*", BatchSchedule.parse(text)) for glob, _, text in pairs))

    def of(self, run: str) -> BatchSchedule | None:
        """Return the schedule of a run; None if no pattern matches it.

        Raises:
            InputError: If two patterns match it.
        """
        matching = [(glob, s) for glob, s in self.schedules if fnmatchcase(run, glob)]
        if len(matching) > 1:
            globs = " and ".join(repr(glob) for glob, _ in matching)
            raise InputError(f"--batch: {globs} both match run {run}; narrow one")
        return matching[0][1] if matching else None

    def refuse_idle(self, runs: Sequence[str]) -> None:
        """Refuse a pattern that matches no run."""
        for glob, _ in self.schedules:
            if not any(fnmatchcase(run, glob) for run in runs):
                raise InputError(f"--batch: {glob!r} matches no run; there are {some(runs)}")


@dataclass(frozen=True)
class LogOptions:
    """Facts that the user gives about the logs.

    Attributes:
        batches: Batches of the runs, by patterns.
        seq_len: Tokens per sequence, if the log does not have it.
        run_regex: Searched in a run's name; its groups become columns: `size` is params, `lr`
            peak_lr, `run` the run's name, `batch` its batch, and others as they are called.
        columns: Names of metrics, by ours.
        out: Path of the table that is written, which is not read in a directory.

    Raises:
        InputError: On construction, if run_regex is not a regular expression with named groups, or
            one of `columns` names another loss.
    """

    batches: Batches = field(default_factory=Batches)
    seq_len: int | None = None
    run_regex: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    out: Path | None = None

    def __post_init__(self) -> None:
        check(self.seq_len is None or self.seq_len >= 1, "--seq-len", self.seq_len, "1 or more")
        if self.run_regex is not None:
            try:
                groups = re.compile(self.run_regex).groupindex
            except re.error as error:
                raise InputError(f"--run-regex {self.run_regex!r}: {error}") from None
            check(
                bool(groups), "--run-regex", self.run_regex, "named groups, e.g. b(?P<batch>\\d+)"
            )
            for name in set(groups) & {*COLUMNS, "seq_len"} - {"batch", "lr"}:
                raise InputError(f"--run-regex: the log has {name}; rename the group")
        for name in set(self.columns) - {*COLUMNS, "run", *LONG}:
            raise InputError(f"--columns: {name} is not read; known are run, {', '.join(COLUMNS)}")
        for ours, theirs in self.columns.items():
            _refuse_other_loss(ours, theirs)

    def named(self, run: str) -> dict[str, str]:
        """Return the groups of --run-regex in the run's name."""
        if self.run_regex is None:
            return {}
        groups = re.search(self.run_regex, run)
        if groups is None:
            raise InputError(f"--run-regex {self.run_regex!r} does not match run {run!r}")
        return {name: value for name, value in groups.groupdict().items() if value is not None}


def _refuse_other_loss(ours: str, theirs: str) -> None:
    """Refuse a name given for a loss that is the name of another loss, or of another unit.

    Raises:
        InputError: If a held-out loss is given as the training loss, or a loss in bits or a
            perplexity as one in nats.
    """
    given = f"--columns {ours}={theirs}"
    if ours == "loss" and held_out_name(theirs):
        raise InputError(f"{given}: is named as a held-out loss; write eval_loss={theirs}")
    if ours in LOSSES and (unit := unit_of_loss(theirs)):
        raise InputError(f"{given}: is named as {unit}; a loss is in nats per token, so convert it")


@np.errstate(divide="ignore", invalid="ignore")
def counted(
    rows: Columns, run: str, schedule: BatchSchedule | None, seq_len: int | None, given: str
) -> tuple[Columns, str]:
    """Return the rows with their batch, and with tokens if a log or a schedule gives them.

    Args:
        rows: Rows of one run, in order; columns as in a Log.
        run: Name of the run.
        schedule: The batches that were given.
        seq_len: Tokens per sequence.
        given: The option that gave them.

    Returns:
        The rows without the columns DROPPED, and where the batch is from.

    Raises:
        InputError: If neither the log nor an option gives the batch, or the sequence length, or
            if they contradict each other.
    """
    length = seq_len or 1
    rounded = rows.get("rounded_tokens")
    if _numbers_batches(rows):
        rows = {name: values for name, values in rows.items() if name != "batch"}
    if "samples" in rows:
        rows = _with_tokens(rows, rows["samples"] * length)
    if "batch_tokens" in rows and "batch" not in rows:
        rows = rows | {"batch": _sequences(rows["batch_tokens"], run, length)}
    if ASSUMED in rows and "batch" not in rows and schedule is None:
        rows = rows | {"batch": rows[ASSUMED]}
    rows = {name: values for name, values in rows.items() if name not in DROPPED}
    logged = "batch" in rows and bool(np.isfinite(rows["batch"]).any())
    given_batch = schedule is not None or logged
    stepped = None if given_batch else _tokens_per_step(rows, length)
    missing = [] if seq_len else [f"run {run} does not give its sequence length; give --seq-len N"]
    if not given_batch and stepped is None:
        each = f"'{run}=512', or '{run}=0:256 2B:512' if it changes"
        missing.append(f"run {run} does not give its batch in sequences; give --batch {each}")
    if missing or seq_len is None:
        raise InputError("; ".join(missing))
    if schedule is not None:
        table = _scheduled(rows, run, schedule, seq_len)
        source = given
        if logged:
            _compare(rows, table["batch"], run, given)
    elif logged or stepped is None:
        finite = np.where(np.isfinite(rows["batch"]), rows["batch"], np.nan)
        batch = pd.Series(finite).bfill().ffill().to_numpy()
        table = _filled(rows | {"batch": batch}, seq_len)
        source = "logged"
    else:
        table = rows | {"batch": stepped}
        source = "tokens per step"
    if rounded is not None:
        _compare_rounded(table, rounded, run, source if source == given else "the batch")
    return table, source


def _numbers_batches(rows: Columns) -> bool:
    """Return whether the column `batch` is the number of the batch, which grows with the steps."""
    if not {"batch", "step"} <= {*rows} or (rows["batch"] == rows["batch"][0]).all():
        return False
    there = pd.DataFrame({name: rows[name] for name in ("batch", "step")})
    there = there.dropna().drop_duplicates()
    more = there.diff()[1:]
    if len(there) < 3 or not (more > 0).all(axis=None):
        return False
    slopes = more["batch"] / more["step"]
    slope = float(slopes.iloc[0])
    before_first = float((there["batch"] - slope * there["step"]).iloc[0])
    return bool((slopes == slope).all()) and abs(before_first) <= max(1.0, slope)


def _with_tokens(rows: Columns, tokens: np.ndarray) -> Columns:
    """Return the rows, with missing tokens replaced by these."""
    if "tokens" in rows:
        tokens = np.where(present(rows, "tokens"), rows["tokens"], tokens)
    return rows | {"tokens": tokens}


def _sequences(batch_tokens: np.ndarray, run: str, seq_len: int) -> np.ndarray:
    for value in batch_tokens[np.isfinite(batch_tokens) & (batch_tokens % seq_len != 0)][:1]:
        raise InputError(
            f"run {run}: a batch of {value:.0f} tokens is not a multiple of the sequence "
            f"length {seq_len}; correct --seq-len"
        )
    return batch_tokens / seq_len


def _scheduled(rows: Columns, run: str, schedule: BatchSchedule, seq_len: int) -> Columns:
    """Return the rows with batch and tokens of a schedule's plan; tokens of the log go first."""
    counted_by = "step" if _all_there(rows, "step") else "tokens"
    counts = rows[counted_by]
    size = max(schedule.batches) * seq_len
    most = counts.max() * (size if counted_by == "step" else 1)
    if not counts.min() >= 0 or most >= 2**62:
        given = f"{counted_by} from {counts.min():.0f} to {counts.max():.0f}"
        raise InputError(f"run {run}: {given}; expected counts from 0 on, below 2^62")
    plan = resolve(schedule, schedule.starts[-1] + int(most) + size, seq_len)
    segments = plan.segments
    if _all_there(rows, "tokens"):
        at = np.searchsorted([s.end_tokens for s in segments[:-1]], rows["tokens"])
    else:
        at = np.searchsorted([s.start_step for s in segments[1:]], counts)
    rows = rows | {"batch": np.array([s.batch for s in segments], float)[at]}
    if counted_by == "tokens":
        return rows
    return _with_tokens(rows, plan.tokens_at_each(counts))


def _compare(rows: Columns, expected: np.ndarray, run: str, given: str) -> None:
    logged = rows["batch"]
    for i in np.flatnonzero(np.isfinite(logged) & (logged != expected))[:1]:
        at = f" at step {rows['step'][i]:.0f}" if "step" in rows else ""
        raise InputError(
            f"run {run}: logs a batch of {logged[i]:.0f}{at}, but {given} gives {expected[i]:.0f}; "
            "leave the option out, or correct it"
        )


def _compare_rounded(rows: Columns, rounded: np.ndarray, run: str, given: str) -> None:
    """Refuse printed tokens, of three digits, that the exact ones do not round to."""
    digit = 10 ** (np.floor(np.log10(np.maximum(rounded, 1))) - 2)
    for i in np.flatnonzero(np.abs(rows["tokens"] - rounded) > ROUNDED * digit)[:1]:
        raise InputError(
            f"run {run}: prints {rounded[i]:.3g} tokens at step {rows['step'][i]:.0f}, but "
            f"{given} and --seq-len make {rows['tokens'][i]:.0f}; correct them"
        )


def _filled(rows: Columns, seq_len: int) -> Columns:
    """Return the rows with all tokens, from those that the log has, by steps and batches."""
    if "step" not in rows or "tokens" not in rows or _all_there(rows, "tokens"):
        return rows
    total = np.cumsum(np.diff(rows["step"], prepend=0) * rows["batch"] * seq_len)
    before = pd.Series(rows["tokens"] - total).ffill().bfill()
    return _with_tokens(rows, total + before.to_numpy())


def _tokens_per_step(rows: Columns, seq_len: int) -> np.ndarray | None:
    """Return the batch as tokens per step if it is whole in every row; else None."""
    if not (_all_there(rows, "step") and _all_there(rows, "tokens")):
        return None
    taken = {name: np.diff(rows[name], prepend=0) for name in ("step", "tokens")}
    batch = taken["tokens"] / (taken["step"] * seq_len)
    if len(batch) > 1 and rows["step"][0] == rows["tokens"][0] == 0:
        batch[0] = batch[1]
    whole = np.isfinite(batch).all() and (batch >= 1).all() and not (batch % 1).any()
    return batch if whole else None


def _all_there(rows: Columns, column: str) -> bool:
    return column in rows and bool(present(rows, column).all())
