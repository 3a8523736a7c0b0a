"""The functional scaling law fitted to loss curves under any LR and batch schedule.

The law of Li et al. (arXiv 2509.19189) with batches (bss.laws.functional.law), fitted robustly in
log loss from many starts. A parameter is unidentified by the design of the runs (constant runs
alone do not identify how noise is forgotten) or by the width of its interval. Bootstrap errors
cluster by run (bss.laws.resampling).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from bss.laws.base import (
    DRAWS,
    SPANS,
    WIDE,
    Estimate,
    Options,
    Outlier,
    interval,
    rounded,
    tails,
    too_wide,
)
from bss.laws.functional.curves import Curves, curves_of
from bss.laws.functional.law import CurveLaw, law_losses
from bss.laws.functional.problem import (
    CLOCKS,
    FEWEST,
    NAMES,
    ROUNDS,
    Solved,
    curve_errors,
    curve_problem,
    solved,
)
from bss.laws.functional.values import MAX_ROWS, CurveFit, FittedRun
from bss.laws.problem import parse_ranges
from bss.laws.resampling import redraw, rms, robust_scale, run_effects
from bss.laws.solver import Solution, linearize
from bss.points.conditions import independent_runs, refuse_conditions
from bss.points.copies import copied_rows
from bss.points.curve import loss_column
from bss.points.divergence import without_diverged
from bss.points.groups import SEED_NOISE, apart
from bss.tables import check_runs

OUTLIER = 5.0  # robust standard deviations: one in 2 million by a normal distribution


def fit_curve(
    runs: pd.DataFrame,
    *,
    clock: str | None = None,
    warmup: int = 0,
    since: int = 0,
    constraints: str = "",
    options: Options | None = None,
) -> CurveFit:
    """Fit the functional scaling law to loss curves of one model.

    Args:
        runs: a run table with LRs (lr): constant runs, and some that change batch or
            LR. A row may have the schedule alone. A run without a loss is left out.
        clock: time variable, "sgd" (m = 1, B_phi = 0) or "adam" (m and B_phi are fitted). The
            default is the time variable with the lower error at left-out runs, or "sgd" with fewer
            than four runs. Both fit p, the exponent of the noise in the LR, if LRs vary.
        warmup: tokens of linear warm-up, whose losses are left out.
        since: tokens before which losses are left out: the law is of late training, and early
            losses, which are many and steep, would decide the fit.
        constraints: of parameters, e.g. "L_0=1.69, s=.2:1".
        options: how intervals are made; by default 60 refits.

    Raises:
        InputError: If `curves_of` or `curve_problem` refuses the table, `clock` is unknown, runs
            are of several conditions, or too few runs are left.
    """
    checked = check_runs(runs, need_loss=False)
    healthy, diverged = without_diverged(checked, loss_column(checked))
    checked, copies = independent_curves(healthy)
    curves = curves_of(checked, warmup=warmup, since=since)
    independent = independent_runs(checked)[0]
    refuse_conditions(independent, schedules=True)
    several = clock is None and len(curves.runs) >= FEWEST
    every = _solved_by_clock(curves, CLOCKS if several else (clock or "sgd",), constraints)
    fit = _fitted(curves, every, since, warmup, options or Options(resamples=60))
    return replace(fit, warnings=(*diverged, *copies, *apart(independent), *fit.warnings))


def independent_curves(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the runs without copies, and a message if there were some.

    A fork is no copy, because it has losses after the fork.

    Args:
        runs: A run table as `bss.tables.check_runs` returns it.
    """
    column = loss_column(runs)
    cell = ["model", "params", "seq_len", "tokens", "batch", "lr"]
    copied, messages = copied_rows(runs, cell, column, SEED_NOISE / runs[column].to_numpy(float))
    return runs.loc[~copied], messages


def _solved_by_clock(curves: Curves, clocks: Sequence[str], constraints: str) -> dict[str, Solved]:
    """Return the solution per time variable, the lowest cross-validated error first.

    A time variable with the same free parameters as an earlier one is skipped.
    """
    every: dict[str, Solved] = {}
    for clock in clocks:
        problem = curve_problem(curves, clock, constraints)
        known = [one.problem.lower < one.problem.upper for one in every.values()]
        if not any(np.array_equal(problem.lower < problem.upper, free) for free in known):
            every[clock] = solved(curves, problem)
    return dict(sorted(every.items(), key=lambda entry: entry[1].cv_error or 0.0))


def _fitted(
    curves: Curves, every: dict[str, Solved], since: int, warmup: int, options: Options
) -> CurveFit:
    """Return the fit with the first time variable, with its intervals."""
    clock, one = next(iter(every.items()))
    errors, slopes = linearize(curve_errors, one.theta, one.problem.data)
    refits, level, law = _bootstrap(one, errors, slopes, options), options.level, one.problem.law
    parameters = _parameters(one, refits.parameters, clock, level)
    status = one.problem.reasons.get("c_K", "converged")
    status = status if one.solution.converged[0] else "not converged"
    known = _noise_is_known(one, refits.parameters, level)
    rows = np.stack(law(refits.parameters), axis=-1)[:DRAWS]
    return CurveFit(
        clock=clock,
        law=law(one.theta),
        parameters=parameters,
        status=status,
        identified=status == "converged" and known,
        rmse=rms(errors[curves.weight > 0]),
        cv_errors={name: x.cv_error for name, x in every.items() if x.cv_error is not None},
        seq_len=curves.seq_len,
        **_ranges(curves),
        since=since,
        warmup=warmup,
        losses=int(curves.weight.sum()),
        measured=curves.measured,
        runs=len(curves.runs),
        draws=tuple(tuple(rounded(row)) for row in rows),
        outliers=tuple(_outliers(curves, one)),
        curves=fitted_runs(curves, law(one.theta)),
        level=level,
        resamples=options.resamples,
        warnings=tuple(_warnings(curves, parameters, known)),
        constraints=one.problem.constraints,
    )


def _ranges(curves: Curves) -> dict[str, Any]:
    """Return the fields of `CurveFit` with the schedules that were measured."""
    steps, lr, batch = curves.segments
    used = steps > 0
    peaks = np.maximum.accumulate(np.where(used, lr, 0.0), axis=1)
    spans = [rounded(x[[0, -1]], 12) for x in (np.sort(batch[used]), np.sort(lr[used & (lr > 0)]))]
    return {
        "batches": (spans[0][0], spans[0][1]),
        "rates": (spans[1][0], spans[1][1]),
        "tokens": int(np.nanmax(curves.tokens)),
        "min_lr_over_peak": float(np.min(np.where(used, lr, np.inf) / peaks)),
        "max_lr_over_batch": float(np.where(used, lr / batch, 0.0).max()),
        "budgets": tuple(sorted({*rounded(curves.budgets, 3)})),
        "peak_lrs": tuple(sorted({*rounded(curves.peak_lrs, 3)})),
    }


def fitted_runs(curves: Curves, law: CurveLaw) -> tuple[FittedRun, ...]:
    """Return the losses fitted, of every k-th row if there are more than MAX_ROWS."""
    used, (_, lr, batch) = curves.weight > 0, curves.segments
    kept = used & ((np.cumsum(used) - 1).reshape(used.shape) % (1 + used.sum() // MAX_ROWS) == 0)
    segment = curves.points.segment.astype(int)
    batch, lr = (np.take_along_axis(x, segment, axis=1) for x in (batch, lr))
    columns = curves.tokens, batch, lr, curves.loss, law_losses(law, curves)
    return tuple(
        FittedRun(run, *(tuple(rounded(x[i, kept[i]])) for x in columns))
        for i, run in enumerate(curves.runs)
        if kept[i].any()
    )


def _warnings(curves: Curves, parameters: dict[str, Estimate], known: bool) -> list[str]:
    texts = [f"{name}: {e.note}" for name, e in parameters.items() if e.note]
    if not known:
        texts.append("noise: its size is unidentified; add smaller batches")
    if curves.without_loss:
        texts.append(f"left out, without a loss to read: {', '.join(curves.without_loss)}")
    return texts


def _noise_is_known(one: Solved, draws: np.ndarray, level: float) -> bool:
    """Return whether the size of the noise is identified: A_0 and A_1 together, at the end."""
    size = NAMES.index("noise")
    noise = draws[:, size] + np.log1p(draws[:, NAMES.index("feedback")])
    low, high = np.quantile(noise, tails(level))
    return not one.solution.at_bound[0, size] and bool(high - low <= np.log(WIDE))


def _bootstrap(one: Solved, errors: np.ndarray, slopes: np.ndarray, options: Options) -> Solution:
    """Return refits of the parameters to losses with a run offset and noise sampled anew."""
    problem = one.problem
    used = problem.data["weight"] > 0
    runs = np.broadcast_to(np.arange(len(used))[:, None], used.shape)
    free = (problem.lower < problem.upper) & ~one.solution.at_bound[0]
    limit = OUTLIER * max(robust_scale(errors[used]), 1e-9)
    clipped, generator = np.clip(errors, -limit, limit), np.random.default_rng(options.seed)
    effects = run_effects(clipped[used], slopes[..., free][used], runs[used])
    sampled = redraw(effects, used, runs, options.resamples, generator)
    observed = (problem.data["observed"] + errors)[None] + sampled
    starts = np.tile(one.theta, (options.resamples, 1, 1))
    return problem.solve(starts, ROUNDS["refit"], observed=observed)


def _outliers(curves: Curves, one: Solved) -> list[Outlier]:
    """Return runs whose end differs by far more from the other runs' law than other ends do."""
    errors, found = one.ends, []
    for i, name in enumerate(curves.runs) if len(errors) >= 2 * FEWEST else ():
        scale = max(robust_scale(np.delete(errors, i)), 1e-9)
        if abs(errors[i]) > OUTLIER * scale:
            off = float(-errors[i]), float(abs(errors[i]) / scale)
            found.append(Outlier({"run": name}, f"run={name}", *off, "log loss at the end"))
    return sorted(found, key=lambda run: -run.times)


def _parameters(one: Solved, draws: np.ndarray, clock: str, level: float) -> dict[str, Estimate]:
    """Return each parameter with its interval, or with the reason why it has no value."""
    problem = one.problem
    law, spread, fixed = problem.law(one.theta), problem.law(draws), problem.lower == problem.upper
    estimates, ranges = {}, parse_ranges(problem.constraints)
    for i, name in enumerate(CurveLaw._fields):
        value = float(law[i])
        estimate, note = interval(value, spread[i], level=level), ""
        if name in ranges:
            pass  # its value, or its bounds, are the user's
        elif fixed[i] and clock == "sgd" and name in ("p", "m", "B_phi"):
            estimate = Estimate(value, value, value, level, "fixed at the value for SGD")
        elif fixed[i]:
            note = problem.reasons[name]
            estimate = Estimate(None, level=level)
        elif name in ("L_0", "A_1", "B_phi"):
            pass  # may be 0
        elif one.solution.at_bound[0, i]:
            note = "unidentified: ended at a bound of the fit"
        elif name != "p" and too_wide(estimate):
            note = f"unidentified: {SPANS}"
        estimates[name] = replace(estimate, value=None, note=note) if note else estimate
    return estimates
