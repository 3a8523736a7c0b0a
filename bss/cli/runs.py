"""bss runs: the runs of a directory."""

from collections import Counter
from pathlib import Path

from bss.cells import Table, number, with_error
from bss.cli.output import Output, Show
from bss.units import format_tokens


def runs(directory: Path, /, *, show: Show = Show()) -> Output:
    """List the runs of a directory: finished, failed, diverged, to do.

    Args:
        directory: directory of run directories

    Examples:
        bss runs runs/mine
        bss runs runs/mine --json
    """
    from bss.sweeps.table import list_runs

    records = list_runs(directory)
    cells = {
        "run": lambda r: r["run"],
        "status": lambda r: r["status"],
        "tokens": lambda r: f"{r['tokens']:,}",
        "target tokens": lambda r: format_tokens(r["stop"]),
        "batch": lambda r: r["batch"],
        "schedule": lambda r: r["rate"] + (f" from {r['parent']}" if r["parent"] else ""),
        "peak lr": lambda r: number(r["peak_lr"]),
        "seed": lambda r: r["seed"],
        "held-out loss": lambda r: with_error(r["eval_loss"], r["eval_loss_se"]),
    }
    counts = Counter(r["status"] for r in records)
    answer = ", ".join(f"{n} {status}" for status, n in sorted(counts.items())) or "no runs"
    payload = {"runs": records, "counts": counts}
    return Output(payload, answer, [Table.of(str(directory), records, cells)])
