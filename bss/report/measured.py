"""The results of a run table: points and laws, or the reason why one is missing."""

import warnings as python_warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws import TableFit, fit_curve, fit_es, fit_table
from bss.laws.base import Fit, Options
from bss.laws.final_loss.table import final_losses
from bss.points.batches import alike
from bss.points.curve import peak_rate
from bss.points.measuring import measure_points, near_as_one
from bss.report.results import Results
from bss.report.sections import TITLES, varied

SPREAD = 1.2  # budgets nearer than this ratio are one


def measured_results(
    runs: pd.DataFrame,
    experiment: dict[str, Any],
    *,
    measuring: Mapping[str, Any],
    since: int = 0,
    resamples: int = 100,
    warnings: Sequence[str] = (),
) -> Results:
    """Return the results of a run table.

    Args:
        runs: as `bss.tables.check_runs` returns it.
        experiment: the title of the page, the command that makes it and versions.
        measuring: targets, warmup and smooth, as `bss.points.measuring.measure_points` takes them.
        since: tokens before which losses are left out of the law of loss curves.
        resamples: refits of a bootstrap.
        warnings: about the runs.
    """
    runs, notes, options = _with_rates(runs), [*warnings], Options(resamples)
    missing, fits = dict[str, str](), list[Fit]()
    points = None

    def es() -> Fit:
        nonlocal points
        points, more = _points(runs, measuring)
        notes.extend(more)
        return fit_es(points, options=replace(options, draws=resamples))

    def curve() -> Fit:
        if varied(runs).empty:
            raise InputError("no run changes its batch, nor its rate after the peak")
        warmup = measuring.get("warmup", 0)
        return fit_curve(runs, options=options, warmup=warmup, since=since)

    makers: dict[str, Callable[[], Fit]] = {
        "es": es, "curve": curve, "table": lambda: _table_fit(runs, options),
    }  # fmt: skip
    with python_warnings.catch_warnings(record=True) as raised:
        python_warnings.simplefilter("always")
        for kind, make in makers.items():
            try:
                fits.append(make())
            except InputError as error:
                missing[TITLES[kind]] = str(error)
    notes.extend(str(one.message) for one in raised)
    return Results(
        experiment=experiment,
        runs=runs,
        points=points,
        fits=tuple(("", fit) for fit in fits),
        warnings=tuple(dict.fromkeys(notes)),
        missing=missing,
    )


def _with_rates(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with a column of their peak LR, if it is known."""
    peaks = {str(name): peak_rate(run) for name, run in runs.groupby("run", sort=False)}
    one = near_as_one(peaks.values())
    if not one:
        return runs
    return runs.assign(peak_lr=[one.get(peaks[name], np.nan) for name in runs["run"]])


def _points(runs: pd.DataFrame, measuring: Mapping[str, Any]) -> tuple[pd.DataFrame, Sequence[str]]:
    """Return the points of the largest group of comparable runs, with warnings."""
    same = alike(runs)
    if same.empty:
        raise InputError("no run keeps one batch size")
    points, notes = measure_points(same, **measuring)
    used, constant = same["run"].nunique(), sum(runs.groupby("run")["batch"].nunique() == 1)
    if used < constant:
        notes = [*notes, f"E(S) uses {used} of {constant} runs of one batch size: those that share "
                 "model, sequence length and peak LR, and have the most batch sizes"]  # fmt: skip
    return points, notes


def _table_fit(runs: pd.DataFrame, options: Options) -> TableFit:
    """Return the law of the last losses of the runs of one batch size."""
    losses = final_losses(runs)
    budgets = losses["tokens"].to_numpy(float)
    one_budget = losses.empty or budgets.max() < SPREAD * budgets.min()
    if one_budget and len(set(losses["params"])) < 2:
        raise InputError("all runs of one batch end at one model size and one budget")
    return fit_table(losses, options=options)
