"""bss import: other trainers' logs into a run table."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from bss.cli.output import Output, Table, add_output_arguments, measured_tokens, progress
from bss.errors import InputError
from bss.importers import ANY, IMPORTERS, Log, LogOptions, Report, import_runs
from bss.importers.batches import Batches, Unknown
from bss.importers.files import PassedBy, read_logs
from bss.tables import Reading
from bss.tables.storage import appending
from bss.units import parse_tokens

SHOWN = 20
"""Runs that the table for people lists, and notes, and files that were passed by."""

KINDS = 8
"""Endings of foreign files that are listed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss import`."""
    add = parser.add_argument
    add("format", help=f"auto, {', '.join(IMPORTERS)}, or package.module:ATTRIBUTE of your own")
    add("paths", type=Path, nargs="+", metavar="PATH", help="files, or directories of them")
    add("-o", "--out", type=Path, required=True, help="the run table (.parquet or .csv)")
    text = "batch in sequences of the runs of a name: 'big*=0:256 2B:512'; again for others"
    add("--batch", action="append", default=[], metavar="[RUN_GLOB=]SCHEDULE", help=text)
    add("--seq-len", type=int, help="tokens per sequence, where the log does not say it")
    text = "searched in run names; its groups size, batch, lr, seed, run, … become columns"
    add("--run-regex", metavar="REGEX", help=text)
    text = "metrics that have other names, OURS=THEIRS: loss=train/ce,eval_loss=val/ce,step=iter"
    add("--columns", metavar="NAMES", help=text)
    text = "refuse damaged logs, and what cannot be read below a directory"
    add("--strict", action="store_true", help=text)
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output:
    """Imports the runs.

    Examples:
        bss import auto LOGS -o RUNS.parquet --seq-len 2048 --batch 256
        bss import wandb LOGS/chart.csv -o RUNS.csv --seq-len 2048 --batch "*=256"
    """
    importer = ANY if options.format == "auto" else IMPORTERS[options.format]
    columns = Reading.parse(options.columns).columns
    batches = Batches.parse(options.batch)
    given = LogOptions(batches, options.seq_len, options.run_regex, columns)
    with progress() as report:
        logs, passed_by = read_logs(options.paths, importer, given, strict=options.strict)
        if options.out.resolve() in {Path(log.source).resolve() for log in logs}:
            raise InputError(f"-o: {options.out} is one of the logs; write the table elsewhere")
        bad = None if options.strict else passed_by
        reports = _written(logs, given, options.out, report, bad)
    return _output(reports, passed_by, options.out)


def _written(
    logs: Sequence[Log],
    options: LogOptions,
    out: Path,
    report: Callable[[str], None],
    bad: list[PassedBy] | None,
) -> list[Report]:
    """Writes the table; asks on a terminal for what neither logs nor options say, once each."""
    try:
        reports: list[Report] = []
        with appending(out) as append:
            for frame, read in import_runs(logs, options, bad):
                report(read.run)
                append(frame)
                reports.append(read)
        return reports
    except Unknown as unknown:
        if not sys.stdin.isatty() or unknown.field in options.answered:
            raise
        report("")
        return _written(logs, _answered(options, unknown), out, report, bad)


def _answered(options: LogOptions, unknown: Unknown) -> LogOptions:
    """The options with the answer to the question of what is unknown."""
    fields = (*options.answered, unknown.field)
    if unknown.field == "seq_len":
        answer = input("tokens per sequence of the runs that do not say it: ")
        seq_len = parse_tokens(answer, field="tokens per sequence")
        return replace(options, seq_len=seq_len, answered=fields)
    answer = input("batch in sequences of the runs that do not say it, as 512 or 0:256 2B:512: ")
    return replace(options, otherwise=Batches.parse([answer]), answered=fields)


def _output(reports: Sequence[Report], passed_by: Sequence[PassedBy], out: Path) -> Output:
    cells = {
        "run": lambda report: report.run,
        "status": lambda report: report.status + (", repeated" if report.repeats else ""),
        "rows": lambda report: report.rows,
        "of": lambda report: report.read,
        "restarts": lambda report: report.restarts,
        "merged": lambda report: report.superseded + report.duplicates,
        "batch": lambda report: f"{report.batch} ({report.batch_from})",
        "tokens": lambda report: measured_tokens(report.tokens),
        "missing": lambda report: ", ".join(report.missing) or "–",
    }
    noted: dict[str, list[str]] = {}
    for imported in reports:
        for note in imported.notes:
            noted.setdefault(note, []).append(imported.run)
    notes = [
        f"{runs[0] if len(runs) == 1 else f'{len(runs)} runs'}: {note}"
        for note, runs in noted.items()
    ]
    notes += [
        f"{imported.run}: diverged; rows from {imported.diverged_at} on are left out"
        for imported in reports
        if imported.diverged_at is not None
    ]
    if len(notes) > SHOWN:
        notes = [*notes[:SHOWN], f"and {len(notes) - SHOWN} more notes; --json tells all"]
    if 0 < sum("eval_loss" in imported.missing for imported in reports) < len(reports):
        notes.append("warning: some runs have no eval_loss; what reads the table wants one of all")
    runs = "1 run" if len(reports) == 1 else f"{len(reports)} runs"
    total = f"{runs}, {sum(imported.rows for imported in reports)} rows in {out}"
    read = {source for imported in reports for source in imported.sources}
    json = {
        "out": str(out),
        "runs": [asdict(imported) for imported in reports],
        "files": len(read | {one.file for one in passed_by}),
        "passed_by": [{"file": one.file, "why": one.why} for one in passed_by],
    }
    tables = [Table.of("imported", reports[:SHOWN], cells)]
    return Output(json, tables, [*notes, *_passed_by(passed_by, read), total])


def _passed_by(passed_by: Sequence[PassedBy], read: set[str]) -> list[str]:
    """How many files were read, those that were not and why, and the foreign ones in a line."""
    if not passed_by:
        return []
    foreign = [Path(one.file) for one in passed_by if one.foreign]
    lines = [f"  {one.file}: {one.why}" for one in passed_by if not one.foreign]
    if len(lines) > SHOWN:
        lines = [*lines[:SHOWN], f"  and {len(lines) - SHOWN} more; --json tells all"]
    if foreign:
        kinds = sorted({file.suffix or file.name for file in foreign})
        more = " …" if len(kinds) > KINDS else ""
        lines.append(f"  {len(foreign)} that are no logs ({', '.join(kinds[:KINDS])}{more})")
    files = len(read | {one.file for one in passed_by})
    return [f"{len(read)} of {files} files read; passed by:", *lines]
