"""bss runs: the runs of a directory."""

from collections import Counter
from pathlib import Path

from bss.cells import Table
from bss.cli.options import Trust
from bss.cli.output import Output, Show


def runs(directory: Path, /, *, files: Trust = Trust(), show: Show = Show()) -> Output:
    """List the runs of a directory: finished, failed, diverged, to do.

    Args:
        directory: directory of run directories

    Examples:
        bss runs runs/mine/runs
        bss runs runs/mine/runs --json
    """
    from bss.sweeps.table import list_runs

    records = list_runs(directory)
    counts = Counter(r["status"] for r in records)
    answer = ", ".join(f"{n} {status}" for status, n in sorted(counts.items())) or "no runs"
    payload = {"runs": records, "counts": counts}
    return Output(payload, answer, [Table.of_records(str(directory), records)])
