"""bss report: any runs, or a results directory, as one HTML page."""

import shlex
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from bss.cli.options import NamedLaw, Resamples, Trust
from bss.cli.output import Output, Show
from bss.cli.reading import TableOptions, TargetOptions
from bss.errors import InputError
from bss.installation import version
from bss.laws import GroupFits
from bss.reading import read_curves
from bss.report.measured import measured_results
from bss.report.page import write_results
from bss.report.results import Results, read_results


def report(
    sources: Annotated[list[Path], Parameter(name="SOURCE")],
    /,
    *,
    file: Annotated[Path | None, Parameter(name=("--out", "-o"))] = None,
    table: TableOptions = TableOptions(),
    targets: TargetOptions = TargetOptions(),
    resamples: Resamples = 100,
    named_law: NamedLaw = NamedLaw(),
    files: Trust = Trust(),
    show: Show = Show(),
) -> Output:
    """Write one HTML page.

    Args:
        sources: run tables (CSV or Parquet), directories of runs, fits (JSON of `bss fit --json`),
            or the results directory of an experiment
        file: the page; by default report.html in the directory, or next to the table
        resamples: bootstrap refits

    Examples:
        bss report RUNS.parquet
        bss report RUNS.parquet -o page.html --targets 1.9,1.8 --resamples 50
    """
    source = sources[0]
    if file is None:
        file = source / "report.html" if source.is_dir() else source.with_suffix(".html")
    results = _results(sources, table, targets, resamples, named_law)
    write_results(results, file, str(source))
    return Output({"report": str(file)}, text=f"report: {file}")


def _results(
    sources: Sequence[Path],
    table: TableOptions,
    targets: TargetOptions,
    resamples: int,
    named_law: NamedLaw,
) -> Results:
    """Read fits or the results of an experiment, or measure and fit what runs allow."""
    if all(path.suffix == ".json" for path in sources):
        return _fitted(sources, named_law)
    experiments = [path for path in sources if (path / "experiment.json").is_file()]
    if not experiments:
        return _measured(sources, table, targets, resamples)
    if len(sources) > 1:
        raise InputError(f"{experiments[0]}: holds the results of an experiment; name it alone")
    named_law.load()
    return read_results(experiments[0])


def _fitted(sources: Sequence[Path], named_law: NamedLaw) -> Results:
    """Read fits; the answer of one fit is the summary of the page."""
    fits: list[tuple[str, Any]] = []
    for source in sources:
        name = source.stem if len(sources) > 1 else ""
        read = named_law.read(source)
        of_groups = isinstance(read, GroupFits)
        labelled = zip(read.labels, read.fits.values(), strict=True) if of_groups else [("", read)]
        fits += [(": ".join(filter(None, (name, label))), fit) for label, fit in labelled]
    several = ", ".join(label for label, _ in fits)
    title = f"Fits {several}" if len(fits) > 1 else f"The law {fits[0][1].law_name}"
    named = ["--law", named_law.law] if named_law.law else []
    return Results(_described(title, [*sources, *named]), fits=tuple(fits))


def _described(title: str, arguments: Sequence[Path | str]) -> dict[str, Any]:
    """Return the title of a page, the command that makes it, and versions."""
    return {
        "title": title,
        "command": f"bss report {shlex.join(map(str, arguments))}",
        "versions": {"bss": version(), **{n: metadata.version(n) for n in ("jax", "numpy")}},
    }


def _measured(
    sources: Sequence[Path], table: TableOptions, targets: TargetOptions, resamples: int
) -> Results:
    """Measure and fit what the runs allow."""
    runs, warnings = read_curves(sources, table.reading(), training_loss=targets.training_loss)
    experiment = _described(f"Runs of {', '.join(source.name for source in sources)}", sources)
    how = targets.measuring()
    return measured_results(runs, experiment, measuring=how, resamples=resamples, warnings=warnings)
