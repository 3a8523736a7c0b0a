"""bss runs: what is there, finished, failed, diverged, to do."""

import argparse
from collections import Counter
from pathlib import Path

from bss.cli.output import Output, Table, add_output_arguments, number
from bss.sweeps.table import list_runs
from bss.units import format_tokens


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss runs`."""
    parser.add_argument("directory", type=Path, help="directory of run directories")
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output:
    """Lists the runs."""
    records = list_runs(options.directory)
    columns = ("run", "status", "tokens", "of", "batch", "rate", "peak lr", "seed", "held-out loss")
    rows = [
        (
            r["run"],
            r["status"],
            f"{r['tokens']:,}",
            format_tokens(r["stop"]),
            r["batch"],
            r["rate"] + (f" from {r['parent']}" if r["parent"] else ""),
            number(r["peak_lr"]),
            r["seed"],
            number(r["eval_loss"]),
        )
        for r in records
    ]
    counts = Counter(r["status"] for r in records)
    note = ", ".join(f"{n} {status}" for status, n in sorted(counts.items())) or "no runs"
    payload = {"runs": records, "counts": counts}
    return Output(payload, [Table(str(options.directory), columns, rows)], [note])
