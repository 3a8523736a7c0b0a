"""Logs of runs into a run table: joined, merged, counted, checked, and what was done, told."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.importers.batches import Batches, LogOptions, Unknown, counted
from bss.importers.log import COLUMNS, LOSSES, Importer, Log, Rows, head_of
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
        read: rows with a loss; rows: rows of the table.
        restarts, superseded, duplicates, diverged_at: as in `Merged`.
        batch, batch_from: its batches in turn, and where they are from.
        seq_len, steps, tokens: of the run.
        missing: columns that the log has not.
        notes: what is to be known besides.
    """

    run: str
    sources: tuple[str, ...]
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


def import_runs(logs: Sequence[Log], options: LogOptions) -> Iterator[tuple[pd.DataFrame, Report]]:
    """The runs one after another, each as a checked run table with its report.

    Args:
        logs: of all files.
        options: what the user says of them.

    Raises:
        Unknown: a batch or a sequence length that neither logs nor options say, of all such runs
            at once, behind the others.
        InputError: a run is there twice, a pattern matches no run, or the run's rows are refused.
    """
    runs: dict[str, list[Log]] = {}
    for log in logs:
        runs.setdefault(options.named(log.run).get("run", log.run), []).append(log)
    if not runs:
        raise InputError("no run is logged in these files; event files may hold no scalars")
    options.batches.refuse_idle(list(runs))
    unknown: dict[str, list[str]] = {}
    known: dict[int, str] = {}
    for run, parts in runs.items():
        try:
            table, report = _run(run, parts, options)
        except Unknown as told:
            unknown.setdefault(told.field, []).append(run)
        else:
            losses = hash((len(table), table["loss"].to_numpy(np.float32).tobytes()))
            if (same := known.setdefault(losses, run)) != run and len(table) > 1:
                note = f"has every loss of run {same}; leave one out if they are one run"
                report = replace(report, notes=(*report.notes, note))
            yield table, report
    for field_, those in unknown.items():
        raise Unknown(field_, *those)


def read_logs(paths: Sequence[Path], importer: Importer, options: LogOptions) -> Iterator[Log]:
    """The logs of files, and of the files below directories that the importer recognises.

    Raises:
        InputError: a file is given twice, or not recognised; nothing was found; a file is refused.
    """
    seen: set[Path] = set()
    for path in paths:
        recognised = False
        for file in _below(path) if path.is_dir() else [path]:
            if file.resolve() in seen:
                raise InputError(f"{file}: is given twice; name it once")
            if reader := _reader(file, importer, passed_by=file is not path):
                seen.add(file.resolve())
                recognised = True
                yield from reader.read(file, options.columns)
        if not recognised:
            raise InputError(
                f"{path}: is not recognised ({importer.about}); name its format, or make a table "
                "of run, batch, seq_len, step and loss of it"
            )


def _below(folder: Path) -> list[Path]:
    """The files of a directory in natural order, checkpoint-1000 after checkpoint-200."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return sorted(files, key=lambda file: [_natural(part) for part in file.parts])


def _natural(text: str) -> list[tuple[int, int | str]]:
    return [(0, int(p)) if p.isdigit() else (1, p) for p in re.split(r"(\d+)", text) if p]


def _reader(file: Path, importer: Importer, *, passed_by: bool) -> Importer | None:
    """What reads a file; in directories those that cannot be looked into are passed by."""
    try:
        head = head_of(file)
    except (InputError, OSError):
        if passed_by:  # as pickles and models are
            return None
        raise
    return importer.reader(file, head)


def _run(run: str, logs: list[Log], options: LogOptions) -> tuple[pd.DataFrame, Report]:
    """One run's table and report."""
    merged = _merged(run, logs)
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
    checked = check_runs(pd.DataFrame({**constants, **_whole(table)}), f"run {run}")
    order = [*constants, "step", "tokens", "batch", "lr", *LOSSES]
    checked = checked.loc[:, [column for column in order if column in checked]]
    return checked, _report(run, logs, merged, checked, batch_from)


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
        sources=tuple(dict.fromkeys(log.source for log in logs)),
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
