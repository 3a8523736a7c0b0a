"""bss report: any runs, or a results directory, as one HTML page."""

import shlex
from importlib import metadata
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bss.cli.options import Resamples, Trust
from bss.cli.output import Output, Show
from bss.cli.reading import TableOptions, TargetOptions, read_curves
from bss.installation import version
from bss.report.measured import measured_results
from bss.report.page import write_results
from bss.report.results import Results, read_results


def report(
    source: Path,
    /,
    *,
    file: Annotated[Path | None, Parameter(name=("--out", "-o"))] = None,
    table: TableOptions = TableOptions(),
    targets: TargetOptions = TargetOptions(),
    resamples: Resamples = 100,
    files: Trust = Trust(),
    show: Show = Show(),
) -> Output:
    """Write one HTML page.

    Args:
        source: a run table (CSV or Parquet), a directory of runs, or the results directory of an
            experiment
        file: the page; by default report.html in the directory, or next to the table
        resamples: bootstrap refits

    Examples:
        bss report RUNS.parquet
        bss report RUNS.parquet -o page.html --targets 1.9,1.8 --resamples 50
    """
    if file is None:
        file = source / "report.html" if source.is_dir() else source.with_suffix(".html")
    if (source / "experiment.json").is_file():
        results = read_results(source)
    else:
        results = _measured(source, table, targets, resamples)
    write_results(results, file, str(source))
    return Output({"report": str(file)}, text=f"report: {file}")


def _measured(source: Path, table: TableOptions, targets: TargetOptions, resamples: int) -> Results:
    """Measure and fit what the runs allow."""
    runs, warnings = read_curves(source, table, targets)
    experiment = {
        "title": f"Runs of {source.name}",
        "command": f"bss report {shlex.quote(str(source))}",
        "versions": {"bss": version(), **{n: metadata.version(n) for n in ("jax", "numpy")}},
    }
    how = targets.measuring()
    return measured_results(runs, experiment, measuring=how, resamples=resamples, warnings=warnings)
