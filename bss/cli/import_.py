"""bss import: other trainers' logs into a run table."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bss.cells import Table
from bss.cli.options import Count, Repeated
from bss.cli.output import Output, OutputFile, Show
from bss.errors import InputError
from bss.importers import LogOptions, read_logs
from bss.importers.batches import Batches, LogReading
from bss.importers.imported import ImportReport, by_text, collect, importer_of
from bss.importers.runs import rows_of_files, total_rows
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
        columns: metrics that have other names, OURS=THEIRS: loss=train/ce,eval_loss=val/ce; of a
            table with a row per value run=NAME,metric=NAME,value=NAME,step=NAME
        train_line: format lines: a line of training, `step (?P<step>\d+) loss (?P<loss>\S+)`
        eval_line: format lines: a line of validation, `step (?P<step>\d+) val (?P<eval_loss>\S+)`
        skip_unread: accept files that look like logs of runs and are not read; the exit status is 1
            without it

    Examples:
        bss import auto LOGS -o RUNS.parquet --seq-len 2048 --batch 256
        bss import wandb LOGS/chart.csv -o RUNS.csv --seq-len 2048 --batch "*=256"
    """
    names = LogReading.parse(columns).columns
    given = LogOptions(Batches.parse([*batch]), seq_len, run_regex, names, out.resolve())
    logs, skipped = read_logs(paths, importer_of(kind, train_line, eval_line, names), given)
    if out.resolve() in {Path(log.source).resolve() for log in logs}:
        raise InputError(f"-o: {out} is one of the logs; write the table elsewhere")
    with appending(out) as append:
        report = collect(logs, skipped, given, append)
    output = _output(report, out)
    return replace(output, status=0) if skip_unread else output


def _output(report: ImportReport, out: Path) -> Output:
    reports = report.runs
    skipped = report.skipped
    runs = "1 run" if len(reports) == 1 else f"{len(reports)} runs"
    total = f"{runs}, {sum(imported.rows for imported in reports)} rows in {out}"
    rows = map(asdict, reports[:SHOWN])
    tables = [Table.of_records("imported", rows, SHOWN_COLUMNS, headers=HEADERS)]
    if damaged := [one for one in skipped if one.log or not one.unrecognized]:
        rows = map(asdict, damaged[:SHOWN])
        tables.append(Table.of_records("skipped", rows, ("file", "reason")))
    warnings = [*report.warnings, *by_text({one.run: one.warnings for one in reports})]
    notes = by_text({one.run: one.notes for one in reports})
    if others := len(skipped) - len(damaged):
        notes.append(f"{others} of {report.files} files are of no known format; --json names them")
    total_read = total_rows(rows_of_files(reports))
    if total_read.left_out:
        notes.append(f"rows: {total_read.line}")
    json = {"out": str(out), **report.to_dict()}
    return Output(json, total, tables, warnings, notes, status=1 if report.unread else 0)
