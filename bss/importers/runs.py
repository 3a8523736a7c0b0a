"""Logs of runs into a run table: joined, merged, counted, checked, with a report of each run."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError, printable
from bss.importers.attempts import SETTING, Attempts, finished, runs_of
from bss.importers.batches import Batches, LogOptions, counted
from bss.importers.counts import CLAIM, contradictions, larger_batches, token_factors
from bss.importers.files import at_once
from bss.importers.log import LOSSES, Columns, Log, present
from bss.importers.naming import distinguished
from bss.importers.restarts import KEPT, NO_LOSS, SUPERSEDED, Merged, merge, with_loss
from bss.tables.columns import Origin
from bss.tables.likeness import adds_nothing, unread_notes
from bss.tables.schema import check_columns
from bss.units import parse_tokens

WANTED = ("loss", "eval_loss", "lr")
"""Columns that a run table may lack; the report lists those that are missing."""

VOCABULARY = 2**18
"""A vocabulary larger than those in use: the loss of any trained model is below its logarithm."""

FEW = 0.05
"""Share of rows up to which missing ones are noted."""

MOST_TOKENS = 2**28
"""More tokens per step than any published run has: such a batch may be in tokens."""

SCALING = 0.7
"""Exponent of first losses in the batch from which on losses scale with accumulation."""


@dataclass(frozen=True)
class FileRows:
    """A count of the rows of one run in a file: read = kept + left out.

    Attributes:
        file: Path of the file.
        read: Rows that were read, and lines that are damaged rows.
        kept: Rows whose losses are in the table.
        left_out: Number of the others by reason.
    """

    file: str
    read: int
    kept: int
    left_out: Mapping[str, int]

    @property
    def line(self) -> str:
        """The numbers as one line."""
        parts = [f"{self.kept} kept", *(f"{n} {reason}" for reason, n in self.left_out.items())]
        return f"{self.read} read = {' + '.join(parts)}"


@dataclass(frozen=True)
class Report:
    """Counts of the rows that were read of one run, and remarks.

    Attributes:
        run, sources: Its name and files.
        status: "diverged", "cut" if its log ends before the run did, or "finished".
        repeats: A run that has the same losses; empty if none has.
        read: Rows with a loss; rows: rows of the table, one for each step.
        restarts, superseded, duplicates, diverged_at: As in `Merged`.
        files: What became of the rows of each file.
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
    files: tuple[FileRows, ...]
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
    if not logs:
        raise InputError("no run is logged in these files; event files may hold no scalars")
    refused: list[Exception] = []
    runs = _assembled([_printable(log) for log in logs], options, refused)
    if not refused:
        options.batches.refuse_idle([run.name for run in runs])
    known: dict[int, str] = {}
    for one in runs:
        run = one.name
        try:
            table, report = _run(one, options)
        except InputError as error:
            refused.append(error)
        else:
            with np.errstate(over="ignore"):
                values = [table[name].to_numpy(np.float32) for name in LOSSES if name in table]
                losses = hash((len(table), np.stack(values, axis=1).tobytes()))
            if (same := known.setdefault(losses, run)) != run and len(table) > 1:
                note = f"has every loss of run {same}; leave one out if they are one run"
                report = replace(report, notes=(*report.notes, note), repeats=same)
            yield table, report
    if refused:
        raise at_once(refused)


def _printable(log: Log) -> Log:
    """Return a log whose names are one line of text, as a CSV file has them."""
    labels = {
        name: printable(value) if isinstance(value, str) else value
        for name, value in (log.labels or {}).items()
    }
    return replace(log, run=printable(log.run), labels=labels)


def rows_of_files(reports: Iterable[Report]) -> list[FileRows]:
    """Return what became of the rows of each file, of all its runs."""
    by_file: dict[str, list[FileRows]] = {}
    for report in reports:
        for rows in report.files:
            by_file.setdefault(rows.file, []).append(rows)
    return [total_rows(parts, file) for file, parts in by_file.items()]


def total_rows(parts: Sequence[FileRows], file: str = "") -> FileRows:
    """Return the sum of the rows of files, or of runs of one file."""
    left_out: Counter[str] = Counter()
    for part in parts:
        left_out.update(part.left_out)
    read = sum(part.read for part in parts)
    return FileRows(file, read, sum(part.kept for part in parts), dict(left_out))


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


@dataclass(frozen=True)
class _Run:
    """One run: its name, and its attempts in each place."""

    name: str
    places: tuple[Attempts, ...]

    @property
    def logs(self) -> list[Log]:
        """The logs of its last attempt."""
        return [log for place in self.places for log in place.logs]


def _assembled(logs: Sequence[Log], options: LogOptions, refused: list[Exception]) -> list[_Run]:
    """Return the runs of logs; the second one of a name is NAME#2.

    Args:
        logs: Logs of all files.
        options: Facts that the user gives about them.
        refused: Gets what refuses a run.
    """
    named: dict[str, list[Log]] = {}
    for log in distinguished(logs):
        named.setdefault(options.named(log.run).get("run", log.run), []).append(log)
    runs: dict[str, _Run] = {}
    for name, parts in named.items():
        joined = len({log.run for log in parts}) > 1  # attempts, whose names --run-regex joins
        places: dict[str, list[Log]] = {}
        for log in parts:
            places.setdefault("" if joined else log.place, []).append(log)
        try:
            found = _side_by_side(name, [*places.values()])
        except InputError as error:
            refused.append(error)
            continue
        number = 1
        for attempts in found:
            new = name if number == 1 else f"{name}#{number}"
            while new in runs or (new != name and new in named):
                number += 1
                new = f"{name}#{number}"
            runs[new] = _Run(new, attempts)
            number += 1
    return [*runs.values()]


def _side_by_side(name: str, places: Sequence[Sequence[Log]]) -> list[tuple[Attempts, ...]]:
    """Return the attempts of each run, of which every place has some losses.

    Raises:
        InputError: If two places have the same loss, or not the same number of runs.
    """
    losses = [{c for log in logs for c in log.rows if c in LOSSES} for logs in places]
    if sum(map(len, losses)) > len(set().union(*losses)):
        files = " and ".join(logs[0].source for logs in places)
        raise InputError(f"run {name} occurs twice, in {files}; leave one out, or rename it")
    found = [runs_of(logs) for logs in places]
    if len(set(map(len, found))) > 1:
        each = " and ".join(
            f"{len(runs)} in {logs[0].source}" for runs, logs in zip(found, places, strict=True)
        )
        raise InputError(
            f"run {name}: the log begins anew, and holds runs: {each}; split the files"
        )
    return [*zip(*found, strict=True)]


def _run(found: _Run, options: LogOptions) -> tuple[pd.DataFrame, Report]:
    """Return one run's table and report."""
    run = found.name
    logs = found.logs
    merged = _merged(found)
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
    compared = {name: v for name, v in merged.rows.items() if name.startswith((CLAIM, SETTING))}
    claims = {name: values for name, values in compared.items() if name.startswith(CLAIM)}
    rows = {name: values for name, values in merged.rows.items() if name not in compared}
    table, batch_from = counted(rows, run, schedule, seq_len, given)
    gaps = [c for c in ("step", "tokens") if c in table and not present(table, c).all()]
    table = {name: values for name, values in table.items() if name not in gaps}
    count = len(table["batch"])
    table["seq_len"] = np.full(count, seq_len)
    checked = check_columns(table, {run: np.arange(count)}, Origin(f"run {run}"))
    for name in {*LOSSES} - {*merged.rows}:  # the held-out loss was put in its place
        checked.pop(name, None)
    constants = {"run": run, **(logs[0].labels or {}), **_columns(named), "seq_len": seq_len}
    columns = checked | constants
    order = [*constants, "step", "tokens", "batch", "lr", *LOSSES, "step_time", *checked]
    ordered = {name: columns[name] for name in order if name in columns}
    frame = pd.DataFrame(ordered, range(count))
    status = "cut" if any(place.logs[-1].cut for place in found.places) else "finished"
    status = status if merged.diverged_at is None else "diverged"
    status = constants.get("status", status)
    if status != "finished":
        frame = frame.assign(status=status)
    told = {"run": run, "status": status, "batch_from": batch_from}
    report = _report(found, merged, checked, told)
    report = _with_counts(report, logs, claims, checked)
    sizes = [*larger_batches(compared, checked)]
    return frame, replace(report, warnings=(*report.warnings, *sizes))


def _with_counts(report: Report, logs: Sequence[Log], claims: Columns, table: Columns) -> Report:
    """Return the report with what other counts and accumulation say about the tokens."""
    accumulated = {name: n for log in logs for name, n in log.accumulated.items()}
    factors = token_factors(claims, table)
    warnings = [*contradictions(factors, accumulated)]
    if accumulated and not warnings and 1 not in factors.values():
        named = " and ".join(f"{name} is {n}" for name, n in accumulated.items())
        told = f"{named} and not read; a step is taken as one update, and its batch as of all of it"
        if report.batch_from == "tokens per step":
            warnings.append(told)
        else:
            return replace(report, notes=(*report.notes, told))
    return replace(report, warnings=(*report.warnings, *warnings))


@np.errstate(divide="ignore", invalid="ignore")
def _length(rows: Columns) -> int | None:
    """Return tokens per sequence, if the log has its batch in sequences and in tokens."""
    if not {"batch", "batch_tokens"} <= {*rows}:
        return None
    lengths = np.unique(rows["batch_tokens"] / rows["batch"])
    lengths = lengths[np.isfinite(lengths)]
    return int(lengths[0]) if len(lengths) == 1 and lengths[0] % 1 == 0 else None


def _merged(run: _Run) -> Merged:
    """Return the rows of a run's last attempt, metrics of several places side by side."""
    try:
        return merge(*(place.rows for place in run.places))
    except InputError as error:
        raise InputError(f"run {run.name}, {run.logs[0].source}: {error}") from None


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


def _warnings(logs: Sequence[Log], table: Columns) -> Iterator[str]:
    """Yield a warning for losses above the loss of a uniform guess, and for too large a batch."""
    size = max((log.vocabulary or 0 for log in logs), default=0)
    uniform = math.log(size or VOCABULARY)
    for column in LOSSES:
        losses = table[column][present(table, column)] if column in table else ()
        if len(losses) and (median := float(np.median(losses))) > uniform:
            above = f"ln({size or VOCABULARY:,}) = {uniform:.2f}, of a uniform guess"
            why = "it may be a sum over micro-batches, or in other units than nats per token"
            yield f"the median of {column}, {median:.4g}, is above {above}; {why}"
    tokens = table["batch"] * table["seq_len"]
    if (largest := int(tokens.max())) > MOST_TOKENS:
        batch = table["batch"][int(tokens.argmax())]
        yield (
            f"a batch of {batch:,} sequences has {largest:,} tokens; if its column counts tokens, "
            "read it with --columns batch_tokens=NAME"
        )


def _gaps(table: Columns) -> Iterator[str]:
    """Yield a note if a loss that is logged at equal distances lacks a few rows."""
    for column in LOSSES:
        steps = table["step"][present(table, column)] if column in table else ()
        if len(steps) > 3:
            apart = np.diff(steps)
            usual = int(np.median(apart))
            gaps = np.flatnonzero((apart > usual) & (apart % max(usual, 1) == 0))
            if 0 < len(gaps) <= max(1, FEW * len(apart)):
                at = f"between steps {steps[gaps[0]]:.0f} and {steps[gaps[0] + 1]:.0f}"
                yield f"{column} has no row {at}, and elsewhere one every {usual} steps"


def _early_end(merged: Merged) -> Iterator[str]:
    """Yield a note if a log ends before the step at which its run is to end."""
    rows = merged.rows
    if not {"step", "planned_steps"} <= {*rows} or merged.diverged_at is not None:
        return
    planned = rows["planned_steps"][present(rows, "planned_steps")]
    if len(planned) and not finished(rows, float(planned[-1])):
        yield f"its log ends at step {np.nanmax(rows['step']):,.0f} of {planned[-1]:,.0f}"


def _report(run: _Run, merged: Merged, table: Columns, told: Mapping[str, Any]) -> Report:
    logs = run.logs
    abandoned = [log for place in run.places for logs in place.abandoned for log in logs]
    batches = pd.unique(table["batch"]).tolist()
    shown = " ".join(str(batch) for batch in batches[:4]) + (" …" if len(batches) > 4 else "")
    notes = [note for log in logs for note in (log.cut, *log.notes)]
    early = () if any(log.cut for log in logs) else _early_end(merged)
    unread = tuple(dict.fromkeys(name for log in logs for name in log.unread))
    unread = tuple(name for name in unread if not adds_nothing(name, merged.rows))
    return Report(
        **told,
        sources=tuple(dict.fromkeys(log.source for log in logs)),
        read=sum(int(with_loss(log.rows).sum()) for log in [*abandoned, *logs]),
        rows=len(table["batch"]),
        restarts=merged.restarts + max(len(place.abandoned) for place in run.places),
        superseded=merged.superseded + sum(int(with_loss(log.rows).sum()) for log in abandoned),
        duplicates=merged.duplicates,
        diverged_at=merged.diverged_at,
        files=_files(logs, abandoned, merged.fates),
        batch=shown,
        seq_len=int(table["seq_len"][0]),
        steps=int(table["step"][-1]),
        tokens=int(table["tokens"][-1]),
        missing=tuple(column for column in WANTED if column not in merged.rows),
        notes=tuple(
            dict.fromkeys([*filter(None, notes), *early, *_gaps(table), *unread_notes(unread)])
        ),
        unread=unread,
        warnings=tuple(_warnings(logs, table)),
    )


def _files(
    logs: Sequence[Log], abandoned: Sequence[Log], fates: np.ndarray
) -> tuple[FileRows, ...]:
    """Return what became of the rows of each file."""
    files: dict[str, Counter[str]] = {}
    at = 0
    for log in logs:
        count = files.setdefault(log.source, Counter())
        count.update(fates[at : at + len(log.rows)].tolist())
        at += len(log.rows)
    for log in abandoned:
        lost = int((~with_loss(log.rows)).sum())
        count = files.setdefault(log.source, Counter())
        count.update({NO_LOSS: lost, SUPERSEDED: len(log.rows) - lost})
    for log in [*logs, *abandoned]:
        files[log.source].update(log.left_out)
    return tuple(
        FileRows(
            file, count.total(), count[KEPT], {w: n for w, n in count.items() if n and w != KEPT}
        )
        for file, count in files.items()
    )
