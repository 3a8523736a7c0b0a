"""Logs of runs into a run table: joined, merged, counted, checked, and what was done, told."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.importers.batches import Batches, LogOptions, Unknown, counted
from bss.importers.files import PassedBy, at_once
from bss.importers.log import COLUMNS, LOSSES, Log, Rows
from bss.importers.restarts import Merged, beside, merge, with_loss
from bss.tables import check_runs
from bss.units import parse_tokens

WANTED = ("loss", "eval_loss", "lr")
"""Columns that a run table may lack, told where it does."""


@dataclass(frozen=True)
class Report:
    """What was read of one run, and what became of it.

    Attributes:
        run, sources: its name and files.
        status: "diverged", "cut" where its log ends before the run did, or "finished".
        repeats: a run that has the same losses; nothing where none has.
        read: rows with a loss; rows: rows of the table.
        restarts, superseded, duplicates, diverged_at: as in `Merged`.
        batch, batch_from: its batches in turn, and where they are from.
        seq_len, steps, tokens: of the run.
        missing: columns that the log has not.
        notes: what is to be known besides.
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
    repeats: str = ""


class _BadRows(InputError):
    """Rows of a run that are refused whatever the options are."""


def import_runs(
    logs: Sequence[Log], options: LogOptions, passed_by: list[PassedBy] | None = None
) -> Iterator[tuple[pd.DataFrame, Report]]:
    """The runs one after another, each as a checked run table with its report.

    Args:
        logs: of all files.
        options: what the user says of them.
        passed_by: gets the files of runs whose rows are refused, where none of them was named.

    Raises:
        Unknown: a batch or a sequence length that neither logs nor options say, of all such runs
            at once, behind the others.
        InputError: a run is there twice, a pattern matches no run, or rows of runs are refused,
            behind the others and at once.
    """
    runs: dict[str, list[Log]] = {}
    for log in logs:
        runs.setdefault(options.named(log.run).get("run", log.run), []).append(log)
    if not runs:
        raise InputError("no run is logged in these files; event files may hold no scalars")
    options.batches.refuse_idle(list(runs))
    unknown: dict[str, list[str]] = {}
    known: dict[int, str] = {}
    refused: list[Exception] = []
    for run, parts in runs.items():
        try:
            table, report = _run(run, parts, options)
        except Unknown as told:
            for missing in told.fields:
                unknown.setdefault(missing, []).append(run)
        except InputError as error:
            below = isinstance(error, _BadRows) and not any(log.named for log in parts)
            if below and passed_by is not None:
                bad = (PassedBy(file, str(error)) for file in _files(parts))
                passed_by += [one for one in bad if one not in passed_by]
            else:
                refused.append(error)
        else:
            losses = hash((len(table), table["loss"].to_numpy(np.float32).tobytes()))
            if (same := known.setdefault(losses, run)) != run and len(table) > 1:
                note = f"has every loss of run {same}; leave one out if they are one run"
                report = replace(report, notes=(*report.notes, note), repeats=same)
            yield table, report
    lacking = [Unknown(missing, *those) for missing, those in unknown.items()]
    if refused:
        raise at_once([*refused, *lacking])
    if lacking:
        lacking[0].args = ("; ".join(map(str, lacking)),)
        raise lacking[0]


def _run(run: str, logs: list[Log], options: LogOptions) -> tuple[pd.DataFrame, Report]:
    """One run's table and report."""
    try:
        merged = _merged(run, logs)
    except InputError as error:
        raise _BadRows(str(error)) from None
    lengths = {log.seq_len for log in logs} | {options.seq_len}
    lengths.discard(None)
    if len(lengths) > 1:
        several = " and ".join(str(n) for n in sorted(filter(None, lengths)))
        raise InputError(f"run {run}: sequence lengths {several} contradict; correct --seq-len")
    seq_len = next(iter(lengths), None)
    named = options.named(logs[0].run)
    schedule = options.batches.of(run)
    if "batch" in named:
        own = Batches.parse([f"*={named['batch']}"]).of(run)
        if schedule not in (None, own):
            raise InputError(f"run {run}: --batch says {schedule}, its name {own}; correct one")
        schedule = own
    given = "--run-regex" if "batch" in named else "--batch"
    try:
        table, batch_from = counted(merged.rows, run, schedule, seq_len, given)
    except Unknown as unknown:
        schedule = options.otherwise.of(run)
        if unknown.field != "batch" or schedule is None:
            raise
        table, batch_from = counted(merged.rows, run, schedule, seq_len)
    constants = {"run": run, **_columns(named), "seq_len": seq_len}
    try:
        checked = check_runs(pd.DataFrame({**constants, **_whole(table)}), f"run {run}")
    except InputError as error:
        raise (InputError if batch_from.startswith("--") else _BadRows)(str(error)) from None
    order = [*constants, "step", "tokens", "batch", "lr", *LOSSES]
    checked = checked.loc[:, [column for column in order if column in checked]]
    status = _status(logs, merged)
    if status != "finished":
        checked = checked.assign(status=status)
    return checked, _report(run, status, logs, merged, checked, batch_from)


def _merged(run: str, logs: list[Log]) -> Merged:
    """The rows of a run's logs: attempts one after another, metrics of several files side by side.

    Logs of one place are attempts, and so are those whose names --run-regex joins. Logs of
    different places may have different losses; the same one twice is a run that is there twice.
    """
    groups: dict[str, list[Log]] = {}
    joined = len({log.run for log in logs}) > 1
    for log in logs:
        groups.setdefault("" if joined else log.place, []).append(log)
    parts = [_attempts(group) for group in groups.values()]
    firsts = [group[0].source for group in groups.values()]
    for i, part in enumerate(parts):
        for j in range(i):
            if set(part) & set(parts[j]) & set(LOSSES):
                raise InputError(
                    f"run {run} is there twice, in {firsts[j]} and {firsts[i]}; leave one out, or "
                    "rename it"
                )
    try:
        return beside([merge(part) for part in parts])
    except InputError as error:
        raise InputError(f"run {run}, {firsts[0]}: {error}") from None


def _status(logs: Sequence[Log], merged: Merged) -> str:
    """How a run ended: by its last log, or of logs side by side by those."""
    if merged.diverged_at is not None:
        return "diverged"
    joined = len({log.run for log in logs}) > 1
    last = {"" if joined else log.place: log for log in logs}
    return "cut" if any(log.cut for log in last.values()) else "finished"


def _files(logs: Sequence[Log]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(log.source for log in logs))


def _attempts(logs: Sequence[Log]) -> Rows:
    """The rows of logs one after another."""
    lengths = [len(next(iter(log.rows.values()), ())) for log in logs]
    return {
        column: np.concatenate(
            [log.rows.get(column, np.full(n, np.nan)) for log, n in zip(logs, lengths, strict=True)]
        )
        for column in COLUMNS
        if any(column in log.rows for log in logs)
    }


def _whole(rows: Rows) -> Rows:
    """Counts as integers where they are whole and all there; steps or tokens with gaps go."""
    whole = dict(rows)
    for column in ("step", "tokens", "batch"):
        values = whole.get(column)
        if values is None:
            continue
        if np.isnan(values).any():
            del whole[column]
        elif np.abs(values).max() < 2**62 and (values == (ints := values.astype(np.int64))).all():
            whole[column] = ints
    return whole


def _columns(named: Mapping[str, str]) -> dict[str, Any]:
    """Columns of what a run's name says."""
    columns: dict[str, Any] = {}
    for name, value in named.items():
        if name in ("size", "params"):
            columns["params"] = parse_tokens(value, field=f"--run-regex {name}")
        elif name in ("seed", "data_seed"):
            columns[name] = parse_tokens(value, field=f"--run-regex {name}")
        elif name in ("lr", "peak_lr"):
            try:
                columns["peak_lr"] = float(value)
            except ValueError:
                raise InputError(f"--run-regex {name}: {value!r} is no number") from None
        elif name not in ("run", "batch"):
            columns[name] = value
    return columns


def _report(
    run: str,
    status: str,
    logs: Sequence[Log],
    merged: Merged,
    table: pd.DataFrame,
    batch_from: str,
) -> Report:
    batches = table["batch"].unique().tolist()
    read = sum(int(with_loss(log.rows).sum()) for log in logs)
    shown = " ".join(str(batch) for batch in batches[:4]) + (" …" if len(batches) > 4 else "")
    return Report(
        run=run,
        sources=_files(logs),
        status=status,
        read=read,
        rows=len(table),
        restarts=merged.restarts,
        superseded=merged.superseded,
        duplicates=merged.duplicates,
        diverged_at=merged.diverged_at,
        batch=shown,
        batch_from=batch_from,
        seq_len=int(table["seq_len"].iloc[0]),
        steps=int(table["step"].iloc[-1]),
        tokens=int(table["tokens"].iloc[-1]),
        missing=tuple(column for column in WANTED if column not in merged.rows),
        notes=tuple(dict.fromkeys(note for log in logs for note in log.notes)),
    )
