"""Logs of runs into a run table: joined, merged, counted, checked, with a report of each run."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.importers.batches import Batches, LogOptions, counted
from bss.importers.files import at_once
from bss.importers.log import LOSSES, Log, Rows
from bss.importers.restarts import Merged, merge, with_loss
from bss.tables import check_runs
from bss.tables.likeness import unread_notes
from bss.units import parse_tokens

WANTED = ("loss", "eval_loss", "lr")
"""Columns that a run table may lack; the report lists those that are missing."""

VOCABULARY = 2**18
"""A vocabulary larger than those in use: the loss of any trained model is below its logarithm."""

FEW = 0.05
"""Share of rows up to which missing ones are noted."""

SCALING = 0.7
"""Exponent of first losses in the batch from which on losses scale with accumulation."""


@dataclass(frozen=True)
class Report:
    """Counts of the rows that were read of one run, and remarks.

    Attributes:
        run, sources: Its name and files.
        status: "diverged", "cut" if its log ends before the run did, or "finished".
        repeats: A run that has the same losses; empty if none has.
        read: Rows with a loss; rows: rows of the table.
        restarts, superseded, duplicates, diverged_at: As in `Merged`.
        batch, batch_from: Its batch sizes in order, and their source.
        seq_len, steps, tokens: Of the run.
        missing: Columns that the log lacks.
        notes: Remarks.
        unread: Names in the log that look like a loss, a learning rate, a step or a time.
        warnings: Reasons to doubt the losses.
    """

    run: str
    sources: tuple[str, ...]
    status: str
    read: int
    rows: int
    restarts: int
    superseded: int
    duplicates: int
    diverged_at: int | None
    batch: str
    batch_from: str
    seq_len: int
    steps: int
    tokens: int
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    repeats: str = ""
    unread: tuple[str, ...] = ()


def import_runs(logs: Sequence[Log], options: LogOptions) -> Iterator[tuple[pd.DataFrame, Report]]:
    """Yield the runs one after another, each as a checked run table with its report.

    Args:
        logs: Logs of all files.
        options: Facts that the user gives about them.

    Raises:
        InputError: If a run occurs twice, a pattern matches no run, or rows of runs are refused;
            after the other runs and all at once.
    """
    runs: dict[str, list[Log]] = {}
    for log in logs:
        runs.setdefault(options.named(log.run).get("run", log.run), []).append(log)
    if not runs:
        raise InputError("no run is logged in these files; event files may hold no scalars")
    options.batches.refuse_idle(list(runs))
    known: dict[int, str] = {}
    refused: list[Exception] = []
    for run, parts in runs.items():
        try:
            table, report = _run(run, parts, options)
        except InputError as error:
            refused.append(error)
        else:
            with np.errstate(over="ignore"):
                losses = hash((len(table), table["loss"].to_numpy(np.float32).tobytes()))
            if (same := known.setdefault(losses, run)) != run and len(table) > 1:
                note = f"has every loss of run {same}; leave one out if they are one run"
                report = replace(report, notes=(*report.notes, note), repeats=same)
            yield table, report
    if refused:
        raise at_once(refused)


def scaling_with_batch(first: pd.DataFrame) -> str:
    """Return a warning if the first losses of runs grow with their batches; else nothing.

    Losses that are summed over micro-batches do, if a larger batch accumulates more of them.

    Args:
        first: batch and loss of the first row of each run.
    """
    if len(first) < 2 or first["batch"].max() < 2 * first["batch"].min():
        return ""
    exponent = float(np.polyfit(np.log(first["batch"]), np.log(first["loss"]), 1)[0])
    if exponent < SCALING:
        return ""
    return (
        f"losses grow as batch^{exponent:.2f} between runs, as sums over accumulated micro-batches "
        "do; divide them by the accumulation steps"
    )


def _run(run: str, logs: list[Log], options: LogOptions) -> tuple[pd.DataFrame, Report]:
    """Return one run's table and report."""
    joined = len({log.run for log in logs}) > 1  # attempts, whose names --run-regex joins
    places: dict[str, list[Log]] = {}
    for log in logs:
        places.setdefault("" if joined else log.place, []).append(log)
    groups = [*places.values()]
    merged = _merged(run, groups)
    lengths = {log.seq_len for log in logs} | {options.seq_len}
    lengths.discard(None)
    if len(lengths) > 1:
        several = " and ".join(str(n) for n in sorted(filter(None, lengths)))
        raise InputError(f"run {run}: sequence lengths {several} contradict; correct --seq-len")
    seq_len = next(iter(lengths), None) or _length(merged.rows)
    named = options.named(logs[0].run)
    schedule = options.batches.of(run)
    if "batch" in named:
        own = Batches.parse([f"*={named['batch']}"]).of(run)
        if schedule not in (None, own):
            raise InputError(f"run {run}: --batch says {schedule}, its name {own}; correct one")
        schedule = own
    given = "--run-regex" if "batch" in named else "--batch"
    table, batch_from = counted(merged.rows, run, schedule, seq_len, given)
    gaps = [c for c in ("step", "tokens") if c in table and table[c].isna().any()]
    constants = {"run": run, **(logs[0].labels or {}), **_columns(named), "seq_len": seq_len}
    checked = check_runs(table.drop(columns=gaps).assign(**constants), f"run {run}")
    order = [*constants, "step", "tokens", "batch", "lr", *LOSSES, "step_time"]
    checked = checked.loc[:, [column for column in order if column in checked]]
    status = "cut" if any(group[-1].cut for group in groups) else "finished"
    status = status if merged.diverged_at is None else "diverged"
    if status != "finished":
        checked = checked.assign(status=status)
    told = {"run": run, "status": status, "batch_from": batch_from}
    return checked, _report(logs, merged, checked, told)


def _length(rows: Rows) -> int | None:
    """Return tokens per sequence, if the log has its batch in sequences and in tokens."""
    if not {"batch", "batch_tokens"} <= {*rows}:
        return None
    lengths = (rows["batch_tokens"] / rows["batch"]).unique()
    lengths = lengths[np.isfinite(lengths)]
    return int(lengths[0]) if len(lengths) == 1 and lengths[0] % 1 == 0 else None


def _merged(run: str, groups: Sequence[Sequence[Log]]) -> Merged:
    """Return the rows of a run's logs: attempts in order, metrics of several places side by side.

    Logs of different places may have different losses; the same one twice is a run that occurs
    twice.
    """
    parts = [pd.concat([log.rows for log in group], ignore_index=True) for group in groups]
    losses = [column for part in parts for column in part if column in LOSSES]
    if len(losses) > len(set(losses)):
        files = " and ".join(group[0].source for group in groups)
        raise InputError(f"run {run} occurs twice, in {files}; leave one out, or rename it")
    try:
        return merge(*parts)
    except InputError as error:
        raise InputError(f"run {run}, {groups[0][0].source}: {error}") from None


def _columns(named: Mapping[str, str]) -> dict[str, Any]:
    """Return the columns that a run's name gives."""
    columns: dict[str, Any] = {}
    for name, value in named.items():
        column = {"size": "params", "lr": "peak_lr"}.get(name, name)
        if column in ("params", "seed", "data_seed"):
            columns[column] = parse_tokens(value, field=f"--run-regex {name}")
        elif column == "peak_lr":
            try:
                columns[column] = float(value)
            except ValueError:
                raise InputError(f"--run-regex {name}: {value!r} is not a number") from None
        elif name not in ("run", "batch"):
            columns[name] = value
    return columns


def _warnings(logs: Sequence[Log], table: pd.DataFrame) -> Iterator[str]:
    """Yield a warning if most losses are above the loss of a uniform guess."""
    size = max((log.vocabulary or 0 for log in logs), default=0)
    uniform = math.log(size or VOCABULARY)
    for column in LOSSES:
        if column in table and (median := float(table[column].median())) > uniform:
            above = f"ln({size or VOCABULARY:,}) = {uniform:.2f}, of a uniform guess"
            why = "it may be a sum over micro-batches, or in other units than nats per token"
            yield f"the median of {column}, {median:.4g}, is above {above}; {why}"


def _gaps(table: pd.DataFrame) -> Iterator[str]:
    """Yield a note if a loss that is logged at equal distances lacks a few rows."""
    for column in LOSSES:
        steps = table["step"][table[column].notna()].to_numpy() if column in table else np.zeros(0)
        if len(steps) > 3:
            apart = np.diff(steps)
            usual = int(np.median(apart))
            gaps = np.flatnonzero((apart > usual) & (apart % max(usual, 1) == 0))
            if 0 < len(gaps) <= max(1, FEW * len(apart)):
                at = f"between steps {steps[gaps[0]]:.0f} and {steps[gaps[0] + 1]:.0f}"
                yield f"{column} has no row {at}, and elsewhere one every {usual} steps"


def _report(
    logs: Sequence[Log], merged: Merged, table: pd.DataFrame, told: Mapping[str, Any]
) -> Report:
    batches = table["batch"].unique().tolist()
    counts: dict[str, Any] = {name: n for name, n in vars(merged).items() if name != "rows"}
    shown = " ".join(str(batch) for batch in batches[:4]) + (" …" if len(batches) > 4 else "")
    notes = [note for log in logs for note in (log.cut, *log.notes)]
    unread = tuple(dict.fromkeys(name for log in logs for name in log.unread))
    return Report(
        **told,
        sources=tuple(dict.fromkeys(log.source for log in logs)),
        read=sum(int(with_loss(log.rows).sum()) for log in logs),
        rows=len(table),
        batch=shown,
        seq_len=int(table["seq_len"].iloc[0]),
        steps=int(table["step"].iloc[-1]),
        tokens=int(table["tokens"].iloc[-1]),
        missing=tuple(column for column in WANTED if column not in merged.rows),
        notes=tuple(dict.fromkeys([*filter(None, notes), *_gaps(table), *unread_notes(unread)])),
        unread=unread,
        warnings=tuple(_warnings(logs, table)),
        **counts,
    )
