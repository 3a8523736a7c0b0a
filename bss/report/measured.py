"""The results of a run table: points and laws, or the reason why one is missing.

Each is made as the commands make it (points, fit es, fit curve, fit table).
"""

import warnings as python_warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws import CurveFit, TableFit, fit_curve, fit_es, fit_table
from bss.laws.base import Options
from bss.laws.final_loss.table import final_losses
from bss.points import rates
from bss.points.batches import alike
from bss.points.measuring import measure_points
from bss.report.results import Results

SPREAD = 1.2  # budgets nearer than this ratio are one
Value = TypeVar("Value")


@dataclass
class _Attempts:
    """Warnings so far, and why sections are missing."""

    warnings: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def attempt(self, section: str, make: Callable[[], Value]) -> Value | None:
        """Return what `make` returns, or None and note the reason."""
        with python_warnings.catch_warnings(record=True) as raised:
            python_warnings.simplefilter("always")
            try:
                return make()
            except InputError as error:
                self.missing[section] = str(error)
                return None
            finally:
                self.warnings += [str(one.message) for one in raised]


def measured_results(
    runs: pd.DataFrame,
    experiment: dict[str, Any],
    *,
    measuring: Mapping[str, Any],
    since: int = 0,
    resamples: int = 100,
    warnings: Sequence[str] = (),
) -> Results:
    """Results of a run table.

    Args:
        runs: as `bss.tables.check_runs` returns it.
        experiment: the title of the page, the command that makes it and versions.
        measuring: targets, warmup and smooth, as `bss.points.measuring.measure_points` takes them.
        since: tokens before which losses are left out of the law of loss curves.
        resamples: refits of a bootstrap.
        warnings: of the runs, before those of the fits.
    """
    runs, attempts = _with_rates(runs), _Attempts([*warnings])
    options = Options(resamples, draws=resamples)
    same, varied = alike(runs), _varied(runs)
    measured = attempts.attempt("E(S)", partial(_points, same, measuring))
    points, more = (None, []) if measured is None else measured
    attempts.warnings += more
    chosen = None
    if points is not None:
        attempts.warnings += _left_out(runs, same)
        chosen = attempts.attempt("E(S) law", partial(fit_es, points, options=options))
    bounds = {"warmup": measuring.get("warmup", 0), "since": since}
    how = partial(_curve_fit, runs, varied, options=Options(resamples), **bounds)
    curve = attempts.attempt("The law of loss curves", how)
    how = partial(_table_fit, runs, Options(resamples))
    table = attempts.attempt("The law of final losses", how)
    return Results(
        experiment=experiment,
        runs=runs,
        points=points,
        fits={"": {chosen.law_name: chosen}} if chosen else {},
        curve_fit=curve,
        table_fit=table,
        varied=varied,
        warnings=tuple(dict.fromkeys(attempts.warnings)),
        missing=attempts.missing,
    )


def _with_rates(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with the peak rate of each in every row, where one is known."""
    peaks = {str(name): rates.peak_rate(run) for name, run in runs.groupby("run", sort=False)}
    one = rates.near_as_one(peaks.values())
    if not one:
        return runs
    return runs.assign(peak_lr=[one.get(peaks[name], np.nan) for name in runs["run"]])


def _points(same: pd.DataFrame, measuring: Mapping[str, Any]) -> tuple[pd.DataFrame, Sequence[str]]:
    """Points of runs of one batch each, and what their rates mean."""
    if same.empty:
        raise InputError("no run keeps one batch throughout")
    return measure_points(same, **measuring)


def _left_out(runs: pd.DataFrame, same: pd.DataFrame) -> list[str]:
    """A warning where runs of one batch each are not comparable with the others."""
    constant = sum(runs.groupby("run")["batch"].nunique() == 1)
    used = same["run"].nunique()
    remark = (
        f"E(S) is of {used} of {constant} runs of one batch: those of one model, sequence length "
        "and peak rate with the most batches"
    )
    return [remark] if used < constant else []


def _varied(runs: pd.DataFrame) -> pd.DataFrame | None:
    """The runs whose batch changes, or whose rate does after its peak; None where there is none."""
    batches = runs.groupby("run", sort=False)["batch"]
    changes = batches.transform("nunique") > 1
    if "lr" in runs:
        rate = pd.Series(pd.to_numeric(runs["lr"], errors="coerce"), dtype=float)
        rates_of = rate.groupby(runs["run"], sort=False)
        changes |= rates_of.transform("last") < (1 - rates.NEAR) * rates_of.transform("max")
    return runs.loc[changes] if changes.any() else None


def _curve_fit(runs: pd.DataFrame, varied: pd.DataFrame | None, **how: Any) -> CurveFit:
    if varied is None:
        raise InputError("no run changes its batch, nor its rate after the peak")
    return fit_curve(runs, **how)


def _table_fit(runs: pd.DataFrame, options: Options) -> TableFit:
    """The law of the last losses of the runs of one batch."""
    losses = final_losses(runs)
    budgets = losses["tokens"].to_numpy(float)
    one_budget = losses.empty or budgets.max() < SPREAD * budgets.min()
    if one_budget and len(set(losses["params"])) < 2:
        raise InputError("all runs of one batch end at one model size and one budget")
    return fit_table(losses, options=options)
