"""The results of a run table: points, laws and a schedule, or the reason why one is missing.

Each is made as the commands make it (points, fit es, fit curve, fit table, schedule).
"""

import warnings as python_warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws import CurveFit, EsFit, TableFit, fit_curve, fit_es, fit_table
from bss.laws.base import Options
from bss.laws.final_loss.table import final_losses
from bss.points.batches import alike
from bss.points.curve import peak_rate
from bss.points.measuring import NEAR, measure_points, near_as_one, one_rate
from bss.policies.functional_best import FunctionalBest, assumed_rate
from bss.policies.measured import derive_schedule
from bss.policies.policy import Basis, Limits
from bss.report.results import Results
from bss.schedules.batch import BatchSchedule

SPREAD = 1.2  # budgets nearer than this ratio are one
STAGES = 4
SHOWN = ["run", "batch", "target_loss", "steps", "tokens_to_target", "reached"]
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
    comparison = chosen.comparison if chosen else None
    bounds = {"warmup": measuring.get("warmup", 0), "since": since}
    how = partial(_curve_fit, runs, varied, options=Options(resamples), **bounds)
    curve = attempts.attempt("The law of loss curves", how)
    how = partial(_table_fit, runs, Options(resamples))
    table = attempts.attempt("The law of final losses", how)
    make = partial(_schedule, same, points, chosen, curve)
    return Results(
        experiment=experiment,
        runs=runs,
        points=points,
        fits={"": {chosen.law_name: chosen}} if chosen else {},
        comparisons={"": asdict(comparison)} if comparison else {},
        curve_fit=curve,
        schedule=attempts.attempt("The schedule", make),
        tables={} if points is None else {"points": points.loc[:, SHOWN]},
        table_fit=table,
        varied=varied,
        warnings=tuple(dict.fromkeys(attempts.warnings)),
        missing=attempts.missing,
    )


def _with_rates(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with the peak rate of each in every row, where one is known."""
    peaks = {str(name): peak_rate(run) for name, run in runs.groupby("run", sort=False)}
    one = near_as_one(peaks.values())
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
        changes |= rates_of.transform("last") < (1 - NEAR) * rates_of.transform("max")
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


def _schedule(
    same: pd.DataFrame,
    measured: pd.DataFrame | None,
    fit: EsFit | None,
    curve: CurveFit | None,
) -> dict[str, Any]:
    """The schedule that the points call for, or else the law of loss curves, and its rate."""
    limits = Limits(STAGES)
    if measured is not None:
        seq_len, tokens = int(same["seq_len"].iloc[0]), max(int(n) for n in same["tokens"])
        derived = derive_schedule(fit, measured, tokens, limits)
        return _entry(*derived, tokens, seq_len, one_rate(measured))
    if curve is None:
        raise InputError("no points and no law of loss curves to make one of")
    rate = assumed_rate(curve, curve.tokens)
    basis = Basis(curve.seq_len, curve, rate=rate)
    schedule, rate = FunctionalBest().search(basis, curve.tokens, limits)
    note = "the lowest loss that the law of loss curves predicts at equal tokens"
    return _entry(schedule, "functional", note, curve.tokens, curve.seq_len, rate.peak)


def _entry(
    schedule: BatchSchedule, law: str, note: str, tokens: int, seq_len: int, lr: float | None
) -> dict[str, Any]:
    entry = {"batch": str(schedule), "law": law, "note": note}
    return entry | {"tokens": tokens, "seq_len": seq_len, "lr": lr, "warmup": 0}
