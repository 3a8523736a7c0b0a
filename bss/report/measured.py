"""The results of a run table: points and laws, or the reason why one is missing.

Each is made as the commands make it (points, fit es, fit curve, fit table).
"""

import warnings as python_warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws import CurveFit, EsFit, TableFit, fit_curve, fit_es, fit_table
from bss.laws.base import Options
from bss.laws.final_loss.table import final_losses
from bss.points.batches import alike
from bss.points.curve import peak_rate
from bss.points.measuring import NEAR, measure_points, near_as_one
from bss.report.results import Results

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
    runs, notes = _with_rates(runs), [*warnings]
    varied, options = _varied(runs), Options(resamples)
    missing: dict[str, str] = {}

    def attempt(section: str, make: Callable[..., Any], *given: Any, **how: Any) -> Any:
        """Return what `make` returns, or None and note the reason."""
        with python_warnings.catch_warnings(record=True) as raised:
            python_warnings.simplefilter("always")
            try:
                return make(*given, **how)
            except InputError as error:
                missing[section] = str(error)
                return None
            finally:
                notes.extend(str(one.message) for one in raised)

    points, more = attempt("E(S)", _points, runs, measuring) or (None, ())
    notes.extend(more)
    fits: dict[str, dict[str, EsFit]] = {}
    if points is not None:
        drawn = replace(options, draws=resamples)
        if chosen := attempt("E(S) law", fit_es, points, options=drawn):
            fits = {"": {chosen.law_name: chosen}}
    how = {"options": options, "warmup": measuring.get("warmup", 0), "since": since}
    curve = attempt("The law of loss curves", _curve_fit, runs, varied, **how)
    table = attempt("The law of final losses", _table_fit, runs, options)
    return Results(
        experiment=experiment,
        runs=runs,
        points=points,
        fits=fits,
        curve_fit=curve,
        table_fit=table,
        varied=varied,
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


def _varied(runs: pd.DataFrame) -> pd.DataFrame | None:
    """Return the runs whose batch size changes or whose LR falls after its peak; else None."""
    batches = runs.groupby("run", sort=False)["batch"]
    changes = batches.transform("nunique") > 1
    if "lr" in runs:
        rate = pd.Series(pd.to_numeric(runs["lr"], errors="coerce"), dtype=float)
        rates_of = rate.groupby(runs["run"], sort=False)
        changes |= rates_of.transform("last") < (1 - NEAR) * rates_of.transform("max")
    return runs.loc[changes] if changes.any() else None


def _curve_fit(runs: pd.DataFrame, varied: pd.DataFrame | None, **how: Any) -> CurveFit:
    if varied is None:
        raise InputError("no run changes its batch, nor its rate after the peak")
    return fit_curve(runs, **how)


def _table_fit(runs: pd.DataFrame, options: Options) -> TableFit:
    """Return the law of the last losses of the runs of one batch size."""
    losses = final_losses(runs)
    budgets = losses["tokens"].to_numpy(float)
    one_budget = losses.empty or budgets.max() < SPREAD * budgets.min()
    if one_budget and len(set(losses["params"])) < 2:
        raise InputError("all runs of one batch end at one model size and one budget")
    return fit_table(losses, options=options)
