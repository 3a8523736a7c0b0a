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
    WIDE,
    Estimate,
    Options,
    Outlier,
    rounded,
    tails,
)
from bss.laws.functional.data import VARIED, Curves, curves_of
from bss.laws.functional.law import CurveLaw, law_losses, noise_share
from bss.laws.functional.problem import (
    CLOCKS,
    FEWEST,
    NAMES,
    OUTLIER,
    Solved,
    curve_problem,
)
from bss.laws.functional.values import MAX_ROWS, CurveFit, FittedRun
from bss.laws.inference import (
    Candidate,
    OutlierRule,
    choose,
    identified,
    percentiles,
    refuse_constant,
    resample,
    times_of_others,
)
from bss.laws.resampling import rms
from bss.points.conditions import independent_runs, refuse_conditions
from bss.points.copies import copied_rows
from bss.points.curve import loss_column
from bss.points.divergence import without_diverged
from bss.points.groups import SEED_NOISE, apart
from bss.tables import check_runs

FAR = OutlierRule(OUTLIER, fewest=2 * FEWEST)
MAY_BE_0 = ("L_0", "A_1", "B_phi")


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
            are of several conditions, too few runs are left, or a constant fits as well.
    """
    checked = check_runs(runs, need_loss=False)
    healthy, diverged = without_diverged(checked, loss_column(checked))
    checked, copies = independent_curves(healthy)
    curves = curves_of(checked, warmup=warmup, since=since)
    independent = independent_runs(checked)[0]
    refuse_conditions(independent, schedules=True)
    several = clock is None and len(curves.runs) >= FEWEST
    every = _solved_by_clock(curves, CLOCKS if several else (clock or "sgd",), constraints)
    how = options or Options(resamples=60)  # dear ones, of which an interval has six at each end
    fit = _fitted(curves, every, since, warmup, constraints, how)
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
    """Return the solution per time variable, that of the lowest cross-validated error first.

    A time variable with the same free parameters as an earlier one is skipped.
    """
    every: dict[str, Solved] = {}
    for clock in clocks:
        problem = curve_problem(curves, clock, constraints)
        known = [one.problem.is_fixed for one in every.values()]
        if not any(np.array_equal(problem.is_fixed, fixed) for fixed in known):
            every[clock] = Solved.of(problem)
    candidates = {clock: Candidate(one.cv_error or 0.0) for clock, one in every.items()}
    best = choose(candidates)
    return {best: every[best]} | every


def _fitted(
    curves: Curves,
    every: dict[str, Solved],
    since: int,
    warmup: int,
    constraints: str,
    options: Options,
) -> CurveFit:
    """Return the fit with the first time variable, with its intervals."""
    clock, one = next(iter(every.items()))
    used = curves.weight > 0
    refuse_constant(
        one.problem.missed(one.theta, 0)[used],
        np.log(curves.loss[used]),
        int((~one.problem.is_fixed).sum()),
        "loss",
        "the law of curves",
        "add runs whose losses fall",
    )
    generator = np.random.default_rng(options.seed)
    refits = resample(one.problem, one.solution, 0, options.resamples, generator)
    level = options.level
    law = one.problem.law
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
        rmse=rms(refits.errors[used]),
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
        warnings=tuple(_warnings(curves, parameters, known, law(one.theta))),
        constraints=constraints,
    )


def _ranges(curves: Curves) -> dict[str, Any]:
    """Return the fields of `CurveFit` with the schedules that were measured."""
    steps, lr, batch = curves.segments
    used = steps > 0
    peaks = np.maximum.accumulate(np.where(used, lr, 0.0), axis=1)
    risen = used & (peaks > 0)  # before the first LR above 0 there is no peak
    exact = 12  # digits
    coarse = 3  # digits: budgets that differ by a step are one
    return {
        "batches": tuple(rounded(np.sort(batch[used])[[0, -1]], exact)),
        "rates": tuple(rounded(np.sort(lr[used & (lr > 0)])[[0, -1]], exact)),
        "tokens": int(np.nanmax(curves.tokens)),
        "min_lr_over_peak": float((lr[risen] / peaks[risen]).min()),
        "max_lr_over_batch": float(np.where(used, lr / batch, 0.0).max()),
        "budgets": tuple(sorted({*rounded(curves.budgets, coarse)})),
        "peak_lrs": tuple(sorted({*rounded(curves.peak_lrs, coarse)})),
    }


def fitted_runs(curves: Curves, law: CurveLaw) -> tuple[FittedRun, ...]:
    """Return the losses fitted, of every k-th row if there are more than MAX_ROWS."""
    used = curves.weight > 0
    kept = used & ((np.cumsum(used) - 1).reshape(used.shape) % (1 + used.sum() // MAX_ROWS) == 0)
    segment = curves.points.segment.astype(int)
    batch = np.take_along_axis(curves.segments.batch, segment, axis=1)
    lr = np.take_along_axis(curves.segments.lr, segment, axis=1)
    columns = curves.tokens, batch, lr, curves.loss, law_losses(law, curves)
    return tuple(
        FittedRun(run, *(tuple(rounded(x[i, kept[i]])) for x in columns))
        for i, run in enumerate(curves.runs)
        if kept[i].any()
    )


def _warnings(
    curves: Curves, parameters: dict[str, Estimate], known: bool, law: CurveLaw
) -> list[str]:
    texts = [f"{name}: {e.note}" for name, e in parameters.items() if e.note]
    if not known:
        texts.append("noise: its size is unidentified; add smaller batches")
    if curves.without_loss:
        texts.append(f"left out, without a loss to read: {', '.join(curves.without_loss)}")
    one = np.ptp(np.log(curves.peak_lrs)) < np.log(VARIED)
    if one or parameters["p"].value is None:
        rows = np.arange(len(curves.runs))
        noisiest = int(noise_share(law, curves)[rows, curves.last].argmax())
        why = "one peak LR" if one else "p is unidentified"
        texts.append(
            f"{why}: predictions at another peak LR assume how noise grows with it; one more run, "
            f"{curves.runs[noisiest]} at half its peak LR ({curves.peak_lrs[noisiest] / 2:.3g}), "
            "would narrow them most"
        )
    return texts


def _noise_is_known(one: Solved, draws: np.ndarray, level: float) -> bool:
    """Return whether the size of the noise is identified: A_0 and A_1 together, at the end."""
    size = NAMES.index("noise")
    noise = draws[:, size] + np.log1p(draws[:, NAMES.index("feedback")])
    low, high = np.quantile(noise, tails(level))
    return not one.solution.at_bound[0, size] and bool(high - low <= np.log(WIDE))


def _outliers(curves: Curves, one: Solved) -> list[Outlier]:
    """Return runs whose end differs by far more from the other runs' law than other ends do."""
    errors = one.ends
    if len(errors) < FAR.fewest:
        return []
    times = times_of_others(errors)
    found = []
    for i in FAR.of(times):
        run = curves.runs[i]
        numbers = (float(-errors[i]), float(times[i]))
        found.append(Outlier({"run": run}, f"run={run}", *numbers, "log loss at the end"))
    return found


def _parameters(one: Solved, draws: np.ndarray, clock: str, level: float) -> dict[str, Estimate]:
    """Return each parameter with its interval, or with the reason why it has no value."""
    problem = one.problem
    law = problem.law(one.theta)
    estimates = percentiles(CurveLaw._fields, law, problem.law(draws), level)
    for i, name in enumerate(CurveLaw._fields):
        if name in problem.ranges:
            continue  # its value, or its bounds, are the user's
        if problem.is_fixed[i]:
            estimates[name] = _fixed(name, float(law[i]), problem.reasons, clock, level)
        elif name not in MAY_BE_0:
            at_bound = bool(one.solution.at_bound[0, i])
            known = identified(estimates[name], at_bound=at_bound, positive=name != "p")
            estimates[name] = known
    return estimates


def _fixed(name: str, value: float, reasons: dict[str, str], clock: str, level: float) -> Estimate:
    """Return a parameter that is not fitted: that of the clock of SGD, or why it has no value."""
    if clock == "sgd" and name in ("p", "m", "B_phi"):
        return Estimate(value, value, value, level, "fixed at the value for SGD")
    return Estimate(None, level=level, note=reasons[name])
