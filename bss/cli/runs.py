"""bss runs: what is there, finished, failed, diverged, to do."""

import argparse
from collections import Counter
from pathlib import Path

from bss.cli.output import Output, Table, add_output_arguments, number, with_error
from bss.sweeps.table import list_runs
from bss.units import format_tokens


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss runs`."""
    parser.add_argument("directory", type=Path, help="directory of run directories")
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output:
    """Lists the runs.

    Examples:
        bss runs runs/mine
        bss runs runs/mine --json
    """
    records = list_runs(options.directory)
    cells = {
        "run": lambda r: r["run"],
        "status": lambda r: r["status"],
        "tokens": lambda r: f"{r['tokens']:,}",
        "of": lambda r: format_tokens(r["stop"]),
        "batch": lambda r: r["batch"],
        "rate": lambda r: r["rate"] + (f" from {r['parent']}" if r["parent"] else ""),
        "peak lr": lambda r: number(r["peak_lr"]),
        "seed": lambda r: r["seed"],
        "held-out loss": lambda r: with_error(r["eval_loss"], r["eval_loss_se"]),
    }
    counts = Counter(r["status"] for r in records)
    note = ", ".join(f"{n} {status}" for status, n in sorted(counts.items())) or "no runs"
    payload = {"runs": records, "counts": counts}
    return Output(payload, [Table.of(str(options.directory), records, cells)], [note])
