"""bss import: other trainers' logs into a run table."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import pandas as pd
from cyclopts import Parameter

from bss.cells import Table
from bss.cli.options import Count, Repeated
from bss.cli.output import Output, OutputFile, Show
from bss.errors import InputError
from bss.importers import ANY, IMPORTERS, Importer, LogOptions, Report, import_runs
from bss.importers.batches import Batches
from bss.importers.files import SkippedFile, read_logs
from bss.importers.formats import own_lines
from bss.importers.runs import rows_of_files, scaling_with_batch, total_rows
from bss.tables import Reading
from bss.tables.storage import appending

SHOWN = 20  # runs, notes and skipped files that are printed
SHOWN_COLUMNS = ("run", "status", "repeats", "rows", "read", "restarts", "diverged_at", "batch",
                 "batch_from", "tokens", "missing")  # fmt: skip
HEADERS = {"repeats": "repeats run", "read": "rows read", "batch_from": "source of batch"}


def import_(
    kind: Annotated[str, Parameter(name="FORMAT")],
    paths: Annotated[list[Path], Parameter(name="PATH")],
    /,
    *,
    out: Annotated[OutputFile, Parameter(name=("--out", "-o"))],
    batch: Repeated = (),
    seq_len: Count | None = None,
    run_regex: str | None = None,
    columns: str | None = None,
    train_line: str | None = None,
    eval_line: str | None = None,
    skip_unread: bool = False,
    show: Show = Show(),
) -> Output:
    r"""Import the runs of logs.

    Args:
        kind: auto, lines, a named format, or package.module:ATTRIBUTE
        paths: files, or directories of them
        out: the run table (.parquet or .csv)
        batch: [RUN_GLOB=]SCHEDULE, batch in sequences of the runs of a name: "big*=0:256 2B:512";
            may be repeated
        seq_len: tokens per sequence, if the log does not have it
        run_regex: searched in run names; its groups size, batch, lr, seed, run, ... become columns
        columns: metrics that have other names, OURS=THEIRS: loss=train/ce,eval_loss=val/ce
        train_line: format lines: a line of training, `step (?P<step>\d+) loss (?P<loss>\S+)`
        eval_line: format lines: a line of validation, `step (?P<step>\d+) val (?P<eval_loss>\S+)`
        skip_unread: accept files that look like logs of runs and are not read; the exit status is 1
            without it

    Examples:
        bss import auto LOGS -o RUNS.parquet --seq-len 2048 --batch 256
        bss import wandb LOGS/chart.csv -o RUNS.csv --seq-len 2048 --batch "*=256"
    """
    names = Reading.parse(columns).columns
    given = LogOptions(Batches.parse([*batch]), seq_len, run_regex, names, out.resolve())
    reports: list[Report] = []
    first: list[pd.DataFrame] = []
    logs, skipped = read_logs(paths, _importer(kind, train_line, eval_line), given)
    if out.resolve() in {Path(log.source).resolve() for log in logs}:
        raise InputError(f"-o: {out} is one of the logs; write the table elsewhere")
    with appending(out) as append:
        for frame, read in import_runs(logs, given):
            append(frame)
            reports.append(read)
            first.append(_first_loss(frame))
    output = _output(reports, skipped, out, scaling_with_batch(pd.concat(first)))
    return replace(output, status=0) if skip_unread else output


def _first_loss(run: pd.DataFrame) -> pd.DataFrame:
    """Return the batch and the loss of a run's first row; the held-out one if it has no other."""
    losses = run["loss"] if "loss" in run else run["eval_loss"]
    return pd.DataFrame({"batch": run["batch"], "loss": losses})[losses > 0].head(1)


def _importer(kind: str, train_line: str | None, eval_line: str | None) -> Importer:
    """Return the importer of a format."""
    if kind == "lines":
        return own_lines(train_line or "", eval_line or "")
    for option, given in (("--train-line", train_line), ("--eval-line", eval_line)):
        if given is not None:
            raise InputError(f"{option}: is for the format lines; name it first")
    return ANY if kind == "auto" else IMPORTERS.load(kind)


def _output(
    reports: Sequence[Report], skipped: Sequence[SkippedFile], out: Path, scaling: str
) -> Output:
    warnings = [scaling] if scaling else []
    if 0 < sum("eval_loss" in imported.missing for imported in reports) < len(reports):
        warnings.append("some runs have no eval_loss; fits of the table need one of all runs")
    runs = "1 run" if len(reports) == 1 else f"{len(reports)} runs"
    total = f"{runs}, {sum(imported.rows for imported in reports)} rows in {out}"
    read = {source for imported in reports for source in imported.sources}
    files = rows_of_files(reports)
    total_read = total_rows(files)
    unread = [one.file for one in skipped if one.log]
    if unread:
        names = ", ".join(Path(name).name for name in unread[:SHOWN])
        count = "1 file looks like the log of a run and is"
        if len(unread) > 1:
            count = f"{len(unread)} files look like logs of runs and are"
        warnings.append(f"{count} not read: {names}; --skip-unread accepts that")
    json = {
        "out": str(out),
        "runs": [asdict(imported) for imported in reports],
        "warnings": warnings,
        "files": len(read | {one.file for one in skipped}),
        "skipped": [asdict(one) for one in skipped],
        "unread": unread,
        "rows": {name: n for name, n in asdict(total_read).items() if name != "file"},
        "rows_by_file": [asdict(one) for one in files],
    }
    rows = map(asdict, reports[:SHOWN])
    tables = [Table.of_records("imported", rows, SHOWN_COLUMNS, headers=HEADERS)]
    if damaged := [one for one in skipped if one.log or not one.unrecognized]:
        rows = map(asdict, damaged[:SHOWN])
        tables.append(Table.of_records("skipped", rows, ("file", "reason")))
    shown = [*warnings, *_by_text({report.run: report.warnings for report in reports})]
    notes = _by_text({report.run: report.notes for report in reports})
    if others := len(skipped) - len(damaged):
        notes.append(f"{others} of {json['files']} files are of no known format; --json names them")
    if total_read.left_out:
        notes.append(f"rows: {total_read.line}")
    return Output(json, total, tables, shown, notes, status=1 if unread else 0)


def _by_text(texts: dict[str, tuple[str, ...]]) -> list[str]:
    """Return the texts of runs, each once with the number of its runs, or its run."""
    runs: dict[str, list[str]] = {}
    for run, notes in texts.items():
        for note in notes:
            runs.setdefault(note, []).append(run)
    return [f"{r[0] if len(r) == 1 else f'{len(r)} runs'}: {note}" for note, r in runs.items()]
