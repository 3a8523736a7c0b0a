"""The results of a run table: points and laws, or the reason why one is missing."""

import warnings as python_warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws import CurveFit, EsFit, LossFit, fit_curve, fit_es, fit_loss
from bss.laws.base import Options
from bss.laws.final_loss.table import final_losses
from bss.points.batches import varied
from bss.points.conditions import by_condition
from bss.points.curve import peak_rates
from bss.points.measuring import measure_points
from bss.report.results import Results
from bss.report.sections import TITLES

SPREAD = 1.2  # budgets nearer than this ratio are one
# Runs of a fit to loss curves, whose time grows with the square of their number: each is left out
# once. 24 take about as long as 12, half a minute.
MOST_CURVES = 24


class MeasuredFits(NamedTuple):
    """Points and fits of E(S) by condition, "" if there is one; warnings; why a fit is missing."""

    points: dict[str, pd.DataFrame]
    fits: dict[str, EsFit]
    warnings: list[str]
    missing: list[str]


def fit_conditions(runs: pd.DataFrame, options: Options, **measuring: Any) -> MeasuredFits:
    """Measure the runs of each condition and fit E(S) if there are enough runs.

    Args:
        runs: as `bss.tables.check_runs` returns it.
        options: of the intervals.
        **measuring: as `bss.points.measuring.measure_points` takes them.
    """
    found = MeasuredFits({}, {}, [], [])
    for name, some in by_condition(runs).items():
        start = f"{name}: " if name else ""
        try:
            found.points[name], said = measure_points(some, **measuring)
            found.warnings.extend(f"{start}{text}" for text in said)
            fit = fit_es(found.points[name], options=options)
            found.fits[name] = replace(fit, warnings=(*fit.warnings, *said))
        except InputError as error:
            found.missing.append(f"{start}no fit of E(S): {error}")
    return found


def measured_results(
    runs: pd.DataFrame,
    experiment: dict[str, Any],
    *,
    measuring: Mapping[str, Any],
    resamples: int = 100,
    warnings: Sequence[str] = (),
) -> Results:
    """Return the results of a run table.

    Args:
        runs: as `bss.tables.check_runs` returns it.
        experiment: the title of the page, the command that makes it and versions.
        measuring: targets, warmup and smooth, as `bss.points.measuring.measure_points` takes them.
        resamples: refits of a bootstrap.
        warnings: about the runs.
    """
    options = Options(resamples)
    missing = dict[str, str]()
    curve_fit = partial(_curve_fit, warmup=measuring.get("warmup", 0))
    with python_warnings.catch_warnings(record=True) as raised:
        python_warnings.simplefilter("always")
        found = fit_conditions(runs, replace(options, draws=resamples), **measuring)
        if found.missing:
            missing[TITLES["es"]] = "; ".join(found.missing)
        fits: list[tuple[str, Any]] = [*found.fits.items()]
        for kind, make in (("curve", curve_fit), ("loss", _loss_fit)):
            try:
                fits.append(("", make(runs, options=options)))
            except InputError as error:
                missing[TITLES[kind]] = str(error)
    notes = [*warnings, *found.warnings, *(str(one.message) for one in raised)]
    known = {"points": found.points.get(""), "fits": tuple(fits), "missing": missing}
    return Results(experiment, runs, warnings=tuple(dict.fromkeys(notes)), **known)


def _curve_fit(runs: pd.DataFrame, **how: Any) -> CurveFit:
    if varied(runs).empty:
        raise InputError("no run changes its batch, nor its rate after the peak")
    some = spread_runs(runs, MOST_CURVES)
    fit = fit_curve(some, **how)
    number = runs["run"].nunique()
    if number <= MOST_CURVES:
        return fit
    text = (
        f"fitted to {MOST_CURVES} of {number} runs, spread evenly over their schedules; "
        "`bss fit curve` fits all"
    )
    return replace(fit, warnings=(text, *fit.warnings))


def spread_runs(runs: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return the rows of at most `most` runs, spread evenly over the runs sorted by schedule.

    Runs are sorted by their batch sizes in order, the tokens at which these begin, the peak LR and
    the name, so that seeds of one schedule are neighbours.
    """
    peaks = peak_rates(runs)
    order = []
    for name, run in runs.groupby("run", sort=False):
        batch = run["batch"].to_numpy()
        starts = np.flatnonzero(np.diff(batch, prepend=0))
        tokens = run["tokens"].to_numpy()[starts]
        order.append((batch[starts].tolist(), tokens.tolist(), float(peaks[name]), str(name)))
    names = [name for *_, name in sorted(order)]
    places = np.unique(np.linspace(0, len(names) - 1, most).astype(int))
    return runs.loc[runs["run"].isin([names[i] for i in places])]


def _loss_fit(runs: pd.DataFrame, options: Options) -> LossFit:
    """Return the law of the last losses of the runs of one batch size."""
    losses = final_losses(runs)
    budgets = losses["tokens"].to_numpy(float)
    one_budget = losses.empty or budgets.max() < SPREAD * budgets.min()
    if one_budget and len(set(losses["params"])) < 2:
        raise InputError("all runs of one batch end at one model size and one budget")
    return fit_loss(losses, options=options)
