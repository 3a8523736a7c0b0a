"""What a sweep is asked for, trained, measured, fitted and written: tables, E(S), a report."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from bss.errors import InputError
from bss.laws import EsFit, fit_es
from bss.laws.fitting.estimate import Options
from bss.points.measuring import measure_points
from bss.report.page import write_report
from bss.sweeps.engines import ENGINES
from bss.sweeps.results import Results
from bss.sweeps.sweep import Sweep, SweepConfig, tables, trained
from bss.training.devices.processes import first, together


class Answers(NamedTuple):
    """What was measured: two tables, the fit of E(S) or why there is none, and where all of it is.

    `remarks` is what must be said of the points.
    """

    swept: Sweep
    fit: EsFit | None
    remarks: list[str]
    report: Path


def run_sweep(config: SweepConfig, option: str = "--config.results") -> Answers | None:
    """Trains a sweep and writes its results directory; called again it trains what is left.

    Args:
        config: what is asked for.
        option: of the command line that names the directory.

    Returns:
        What was found; None in a process that leaves the writing to the first.

    Raises:
        InputError: a mistake, or a directory that holds another sweep, before anything is trained;
            no run finished.
    """
    axes = config.every_axis()
    results = together(lambda: Results(config, option=option))
    runs, trainer = trained(config.setup, axes, ENGINES[config.engine], config.title)
    if not first():
        return None
    swept = tables(runs, trainer)
    files, fit, remarks = _fitted(swept.runs, config)
    report = results.directory / "report.html"
    results.write(
        {"runs.parquet": swept.runs, "finals.csv": swept.finals, **files},
        trainer,
        conclusions=[] if fit else remarks,
    )
    write_report(results.directory, report)
    return Answers(swept, fit, remarks, report)


def _fitted(
    runs: pd.DataFrame, config: SweepConfig
) -> tuple[dict[str, Any], EsFit | None, list[str]]:
    """Points and the law E(S) as files, where the runs are enough for them; else why not."""
    files: dict[str, Any] = {}
    try:
        warmup = config.setup.schedule.warmup
        points, remarks = measure_points(runs, count=config.targets, warmup=warmup)
        files["points.csv"] = points
        fit = fit_es(points, options=Options(config.resamples))
    except InputError as error:
        return files, None, [f"no fit of E(S): {error}"]
    fit = replace(fit, warnings=(*fit.warnings, *remarks))
    files["fits.json"] = {fit.name: fit}
    if fit.comparison:
        files["comparison.json"] = fit.comparison
    return files, fit, remarks
