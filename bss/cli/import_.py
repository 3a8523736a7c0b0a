"""bss import: other trainers' logs into a run table."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bss.cli.output import Output, Table, add_output_arguments, measured_tokens, progress
from bss.errors import InputError
from bss.importers import ANY, IMPORTERS, Importer, LogOptions, Report, import_runs
from bss.importers.batches import Batches
from bss.importers.files import SkippedFile, read_logs
from bss.importers.own import own_lines
from bss.importers.runs import scaling_with_batch
from bss.tables import Reading
from bss.tables.storage import appending

SHOWN = 20
"""Number of runs that the table for people lists, and of notes and skipped files."""

KINDS = 8
"""Number of endings of unrecognized files that are listed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command line of `bss import`."""
    add = parser.add_argument
    add("format", help=f"auto, lines, {', '.join(IMPORTERS)}, or package.module:ATTRIBUTE")
    add("paths", type=Path, nargs="+", metavar="PATH", help="files, or directories of them")
    add("-o", "--out", type=Path, required=True, help="the run table (.parquet or .csv)")
    text = "batch in sequences of the runs of a name: 'big*=0:256 2B:512'; again for others"
    add("--batch", action="append", default=[], metavar="[RUN_GLOB=]SCHEDULE", help=text)
    add("--seq-len", type=int, help="tokens per sequence, if the log does not have it")
    text = "searched in run names; its groups size, batch, lr, seed, run, … become columns"
    add("--run-regex", metavar="REGEX", help=text)
    text = "metrics that have other names, OURS=THEIRS: loss=train/ce,eval_loss=val/ce,step=iter"
    add("--columns", metavar="NAMES", help=text)
    text = r"format lines: a line of training, 'step (?P<step>\d+) loss (?P<loss>\S+)'"
    add("--train-line", metavar="REGEX", help=text)
    text = r"format lines: a line of validation, 'step (?P<step>\d+) val (?P<eval_loss>\S+)'"
    add("--eval-line", metavar="REGEX", help=text)
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output:
    """Import the runs.

    Examples:
        bss import auto LOGS -o RUNS.parquet --seq-len 2048 --batch 256
        bss import wandb LOGS/chart.csv -o RUNS.csv --seq-len 2048 --batch "*=256"
    """
    columns = Reading.parse(options.columns).columns
    batches = Batches.parse(options.batch)
    given = LogOptions(batches, options.seq_len, options.run_regex, columns)
    reports: list[Report] = []
    with progress() as report:
        logs, skipped = read_logs(options.paths, _importer(options), given)
        if options.out.resolve() in {Path(log.source).resolve() for log in logs}:
            raise InputError(f"-o: {options.out} is one of the logs; write the table elsewhere")
        with appending(options.out) as append:
            for frame, read in import_runs(logs, given):
                report(read.run)
                append(frame)
                reports.append(read)
    return _output(reports, skipped, options.out)


def _importer(options: argparse.Namespace) -> Importer:
    """Return the importer of a format."""
    if options.format == "lines":
        return own_lines(options.train_line or "", options.eval_line or "")
    for name in ("train_line", "eval_line"):
        if getattr(options, name) is not None:
            raise InputError(f"--{name.replace('_', '-')}: is for the format lines; name it first")
    return ANY if options.format == "auto" else IMPORTERS[options.format]


def _output(reports: Sequence[Report], skipped: Sequence[SkippedFile], out: Path) -> Output:
    cells = {
        "run": lambda report: report.run,
        "status": lambda report: report.status + (", repeated" if report.repeats else ""),
        "rows": lambda report: report.rows,
        "rows read": lambda report: report.read,
        "restarts": lambda report: report.restarts,
        "merged": lambda report: report.superseded + report.duplicates,
        "batch": lambda report: f"{report.batch} ({report.batch_from})",
        "tokens": lambda report: measured_tokens(report.tokens),
        "missing": lambda report: ", ".join(report.missing) or "–",
    }
    warnings = list(filter(None, [scaling_with_batch(reports)]))
    if 0 < sum("eval_loss" in imported.missing for imported in reports) < len(reports):
        warnings.append("some runs have no eval_loss; fits of the table need one of all runs")
    notes = [f"warning: {text}" for text in warnings]
    notes += _by_text({report.run: report.warnings for report in reports}, "warning: ")
    notes += _by_text({report.run: report.notes for report in reports}, "")
    notes += [
        f"{imported.run}: diverged; rows from {imported.diverged_at} on are left out"
        for imported in reports
        if imported.diverged_at is not None
    ]
    if len(notes) > SHOWN:
        notes = [*notes[:SHOWN], f"and {len(notes) - SHOWN} more notes; --json has all"]
    runs = "1 run" if len(reports) == 1 else f"{len(reports)} runs"
    total = f"{runs}, {sum(imported.rows for imported in reports)} rows in {out}"
    read = {source for imported in reports for source in imported.sources}
    json = {
        "out": str(out),
        "runs": [asdict(imported) for imported in reports],
        "warnings": warnings,
        "files": len(read | {one.file for one in skipped}),
        "skipped": [asdict(one) for one in skipped],
    }
    tables = [Table.of("imported", reports[:SHOWN], cells)]
    return Output(json, tables, [*notes, *_skipped(skipped, read), total])


def _by_text(texts: dict[str, tuple[str, ...]], prefix: str) -> list[str]:
    """Return the texts of runs, each once with its run or the number of its runs."""
    runs: dict[str, list[str]] = {}
    for run, notes in texts.items():
        for note in notes:
            runs.setdefault(note, []).append(run)
    who = {note: r[0] if len(r) == 1 else f"{len(r)} runs" for note, r in runs.items()}
    return [f"{prefix}{name}: {note}" for note, name in who.items()]


def _skipped(skipped: Sequence[SkippedFile], read: set[str]) -> list[str]:
    """Return how many files were read, and those that were not with the reason."""
    if not skipped:
        return []
    unrecognized = [Path(one.file) for one in skipped if one.unrecognized]
    lines = [f"  {one.file}: {one.reason}" for one in skipped if not one.unrecognized]
    if len(lines) > SHOWN:
        lines = [*lines[:SHOWN], f"  and {len(lines) - SHOWN} more; --json has all"]
    if unrecognized:
        kinds = sorted({file.suffix or file.name for file in unrecognized})
        more = " …" if len(kinds) > KINDS else ""
        lines.append(f"  {len(unrecognized)} that are no logs ({', '.join(kinds[:KINDS])}{more})")
    files = len(read | {one.file for one in skipped})
    return [f"{len(read)} of {files} files read; skipped:", *lines]
