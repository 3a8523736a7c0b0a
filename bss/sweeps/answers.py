"""What a sweep is asked for, trained, measured, fitted and written: tables, E(S), a report."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from bss.errors import InputError
from bss.files import locked
from bss.laws import EsFit, fit_es
from bss.laws.base import Options
from bss.points.measuring import by_condition, measure_points
from bss.report.page import write_report
from bss.sweeps.engines import ENGINES
from bss.sweeps.grid import Axis
from bss.sweeps.results import Results
from bss.sweeps.sweep import Sweep, SweepConfig, planned, tables, trained
from bss.training.distributed import is_primary, on_all_hosts


class Answers(NamedTuple):
    """What was measured: two tables, the fits of E(S) by condition, and where all of it is.

    The only condition is "". `remarks` is what must be said of the points, or why there is no fit;
    `failed` the number of runs that are in no table because they failed or were interrupted.
    """

    swept: Sweep
    fits: dict[str, EsFit]
    remarks: list[str]
    report: Path
    failed: int


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
    results = on_all_hosts(lambda: Results(config, option=option))
    planned(config.setup, axes)  # before the directory is made
    with locked(results.directory / ".lock") if is_primary() else nullcontext():
        return _answers(config, results, axes)


def _answers(config: SweepConfig, results: Results, axes: list[Axis]) -> Answers | None:
    """Train what is left, measure and write it."""
    runs, trainer = trained(config.setup, axes, ENGINES[config.engine], config.title)
    if not is_primary():
        return None
    failed = sum(one.status in ("failed", "interrupted") for one in trainer.statuses.values())
    swept = tables(runs, trainer)
    files, fits, remarks = _fitted(swept.runs, config)
    report = results.directory / "report.html"
    results.write(
        {"runs.parquet": swept.runs, "finals.csv": swept.finals, **files},
        trainer,
        conclusions=[] if fits else remarks,
    )
    write_report(results.directory, report)
    return Answers(swept, fits, remarks, report, failed)


def _fitted(
    runs: pd.DataFrame, config: SweepConfig
) -> tuple[dict[str, Any], dict[str, EsFit], list[str]]:
    """Return points and laws E(S) as files, a fit for each condition, and what was said of them.

    A condition without enough runs for a fit has a remark.
    """
    tables, fits, remarks, comparisons = [], {}, [], []
    for name, some in by_condition(runs).items():
        try:
            warmup = config.setup.schedule.warmup
            points, said = measure_points(some, count=config.targets, warmup=warmup)
            tables.append(points.assign(condition=name) if name else points)
            fit = fit_es(points, options=Options(config.resamples))
        except InputError as error:
            remarks.append(f"{name and f'{name}: '}no fit of E(S): {error}")
            continue
        fits[name] = replace(fit, warnings=(*fit.warnings, *said))
        comparisons += [fit.comparison] if fit.comparison else []
        remarks += [f"{name and f'{name}: '}{text}" for text in said]
    files: dict[str, Any] = {"points.csv": pd.concat(tables)} if tables else {}
    entries = {name: {fit.law_name: fit} for name, fit in fits.items()}
    files |= {"fits.json": entries.get("", entries)} if fits else {}
    files |= {"comparison.json": comparisons[0]} if comparisons and "" in fits else {}
    return files, fits, remarks
