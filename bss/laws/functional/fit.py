"""The functional scaling law fitted to loss curves under any LR and batch schedule.

The law of Li et al. (arXiv 2509.19189) with batches (bss.laws.functional.law), fitted robustly
in log loss from many starts. Which parameters the runs identify is told by their design (constant
runs alone say nothing of how noise is forgotten) and by the width of the intervals; intervals
cluster by run (bss.laws.resampling).
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd

from bss.laws.base import SPANS, WIDE, Estimate, Options, interval, tails, too_wide
from bss.laws.constraints import FREE, Constraints
from bss.laws.functional.curves import Curves, curves_of
from bss.laws.functional.groups import GROUPS, horizons, levels, not_told_apart, peaks
from bss.laws.functional.groups import labels as groups_of
from bss.laws.functional.judged import (
    FEWEST,
    JUDGED,
    ROUNDS,
    Report,
    Solved,
    best_first,
    choose,
    left_out,
    solve,
    solved_by_clock,
)
from bss.laws.functional.law import CurveLaw
from bss.laws.functional.problem import CLOCKS, NAMES, clock_of, curve_errors
from bss.laws.functional.values import CurveFit, OutlierCurve, Start
from bss.laws.held_out import HeldOut, check_hold_out
from bss.laws.resampling import redraw, rms, robust_scale
from bss.laws.solver import Solution, linearize

OUTLIER = 5.0
TELLING = 8  # runs from which one is called an outlier
MOST = 3  # that are named
REFIT_ROUNDS = 20
UNFINISHED = 0.1  # share of bootstrap refits from which a reader is warned
KEPT_DRAWS = 200
LIMIT = 2  # of the kernel's exponent, 2 − 1/β, whatever the capacity
HELD_BY_SGD = ("p", "m", "B_phi")  # p where the rates do not vary


def fit_curve(
    runs: pd.DataFrame,
    *,
    clock: str | None = None,
    warmup: int = 0,
    since: int | None = None,
    constraints: Constraints | str = FREE,
    hold_out: Sequence[str] = (),
    options: Options | None = None,
    report: Report = lambda _: None,
) -> CurveFit:
    """Fit the functional scaling law to loss curves of one model.

    Args:
        runs: a run table with rates (lr); constant runs, and some that change batch or rate. A row
            may have the schedule alone, and a run one loss; one that has none is left out.
        clock: "sgd" (m = 1, B_phi = 0) or "adam" (fitted), whose time is Σ η, or Σ η^a as
            "adam^0.5"; by default the one that predicts runs left out of its fit better, "sgd"
            where there are fewer than four runs. A power of the rate must be clearly better. The
            noise's exponent in the rate, p, is fitted by all where rates vary.
        warmup: tokens of linear warm-up, whose losses are left out.
        since: tokens before which losses are left out: the law is of late training, and early
            losses, which are many and steep, would decide the fit. By default the start, of
            `judged.SHARES` of the shortest run, that predicts runs left out of the fit best.
        constraints: parameters that are held, as "L_0=1.69, s=.2:1".
        hold_out: also left out in turn: run, batch, horizon, peak or cell (both of these), for the
            errors at the ends of their runs.
        options: how intervals are made.
        report: is told what is done next, in a line.

    Raises:
        InputError: `curves_of` or `curve_problem` refuses the table, the clock is unknown, or too
            few runs are left.
    """
    held = Constraints.parse(constraints)
    tried, start, best = choose(runs, clock, warmup, since, held, report)
    curves, solved = tried[start]
    fit = _fitted(curves, solved, best, start, options, report)
    told = tuple(_held_out(solved[best], curves, by) for by in hold_out)
    starts = tuple(
        Start(at, one.left_out, one.law(one.theta))
        for at, (_, by_clock) in tried.items()
        if at != start and (one := by_clock[clock_of(best)[0]]).left_out is not None
    )
    return dataclasses.replace(fit, starts=starts, held_out=told)


def fit_clocks(
    runs: pd.DataFrame, *, warmup: int = 0, since: int = 0, options: Options | None = None
) -> list[CurveFit]:
    """The law with every clock that differs here, `fit_curve`'s choice first; else as there."""
    curves = curves_of(runs, warmup=warmup, since=since)
    solved = solved_by_clock(curves, CLOCKS)
    return [_fitted(curves, solved, clock, since, options) for clock in best_first(solved)]


def _fitted(
    curves: Curves,
    solved: dict[str, Solved],
    clock: str,
    since: int,
    options: Options | None,
    report: Report = lambda _: None,
) -> CurveFit:
    """The fit of one clock, with its intervals."""
    options, one = options or Options(resamples=100), solved[clock]
    report(f"{clock} clock: {options.resamples} refits")
    errors, slopes = linearize(curve_errors, one.theta, one.problem.data)
    refits, level = _bootstrap(one, errors, slopes, options), options.level
    parameters = _parameters(one, refits.parameters, clock, level)
    converged = bool(one.solution.converged[0])
    status = one.problem.reasons.get("c_K", "converged") if converged else "not converged"
    silent = _silent(one, refits.parameters, level)
    steps, lr, batch = curves.pieces
    used, pairs = curves.weight > 0, zip(curves.runs, errors, curves.weight > 0, strict=True)
    return CurveFit(
        clock=clock,
        law=one.law(one.theta),
        parameters=parameters,
        easy_by=_easy_by(one, refits.parameters, parameters, level),
        status=status,
        identified=status == "converged" and not silent,
        rmse=rms(errors[used]),
        run_rmse={name: rms(error[here]) for name, error, here in pairs},
        left_out_rmse={n: x.left_out for n, x in solved.items() if x.left_out is not None},
        left_out_by={
            n: {by: error for by in JUDGED[1:] if (error := x.over(by)) is not None}
            for n, x in solved.items()
            if x.over("horizon") or x.over("peak")
        },
        horizons=tuple(levels(horizons(curves))),
        peaks=tuple(levels(peaks(curves))),
        noisiest=float(np.where(steps > 0, lr / batch, 0.0).max()),
        outliers=tuple(_outliers(curves, one)),
        seq_len=curves.seq_len,
        batches=_range(batch[steps > 0]),
        rates=_range(lr[(steps > 0) & (lr > 0)]),
        tokens=int(np.nanmax(curves.tokens)),
        since=since,
        losses=int(used.sum()),
        measured=curves.measured,
        runs=len(curves.runs),
        lowest=_lowest(lr, steps > 0),
        draws=_drawn(one.law(refits.parameters)),
        level=level,
        resamples=options.resamples,
        warnings=tuple(_warnings(curves, parameters, refits, silent)),
        constraints=one.problem.held,
    )


def _warnings(
    curves: Curves, parameters: dict[str, Estimate], refits: Solution, silent: bool
) -> list[str]:
    texts, q = [f"{name}: {e.note}" for name, e in parameters.items() if e.note], parameters["q"]
    if (q.value or 0) > LIMIT:
        surely = "its interval too" if (q.low or 0) > LIMIT else "its interval is not"
        texts.append(f"q: above {LIMIT}, the limit of the regression theory; {surely}")
    unfinished = float(np.mean(~refits.converged))
    if unfinished > UNFINISHED:
        texts.append(
            f"{unfinished:.0%} of the bootstrap refits did not converge; intervals are too narrow"
        )
    if silent:
        texts.append("noise: its size is unidentified; add smaller batches")
    unidentified = [name for name, e in parameters.items() if e.value is None]
    texts += not_told_apart(curves, unidentified)
    if curves.silent:
        texts.append(f"left out, without a loss to read: {', '.join(curves.silent)}")
    return texts


def _easy_by(
    solved: Solved, draws: np.ndarray, parameters: dict[str, Estimate], level: float
) -> Estimate:
    """s − (q − 1), as `CurveFit.easy_by`."""
    for name in ("s", "q"):
        if parameters[name].value is None:
            return Estimate(None, level=level, note=f"{name} is {parameters[name].note}")
    law, spread = solved.law(solved.theta), solved.law(draws)
    return interval(float(law.s - law.q + 1), spread.s - spread.q + 1, level=level)


def _range(values: np.ndarray) -> tuple[float, float]:
    low, high = (float(f"{value:.12g}") for value in (values.min(), values.max()))
    return low, high


def _lowest(lr: np.ndarray, used: np.ndarray) -> float:
    """The lowest rate of a run after its peak, as a part of that, in the run that falls most."""
    rates = np.where(used, lr, np.inf)
    peaks = np.maximum.accumulate(np.where(used, lr, 0.0), axis=1)
    return float(np.min(rates / peaks))


def _drawn(law: CurveLaw) -> tuple[tuple[float, ...], ...]:
    """At most KEPT_DRAWS laws of the bootstrap, to 6 digits."""
    rows = np.stack(law[: len(NAMES)], axis=-1)[:KEPT_DRAWS]
    return tuple(tuple(float(f"{value:.6g}") for value in row) for row in rows)


def _silent(solved: Solved, draws: np.ndarray, level: float) -> bool:
    """Whether the size of the noise is unidentified.

    It is what A_0 and A_1 make together at the end; their shares may trade off.
    """
    size = NAMES.index("noise")
    noise = draws[:, size] + np.log1p(draws[:, NAMES.index("feedback")])
    low, high = np.quantile(noise, tails(level))
    return bool(solved.solution.at_bound[0, size] or high - low > np.log(WIDE))


def _bootstrap(
    solved: Solved, errors: np.ndarray, slopes: np.ndarray, options: Options
) -> Solution:
    """Refits of the parameters, with a run offset and noise drawn anew."""
    problem = solved.problem
    used = problem.data["weight"] > 0
    runs = np.broadcast_to(np.arange(len(used))[:, None], used.shape)
    free = (problem.lower < problem.upper) & ~solved.solution.at_bound[0]
    limit = OUTLIER * max(robust_scale(errors[used]), 1e-9)
    clipped, generator = np.clip(errors, -limit, limit), np.random.default_rng(options.seed)
    drawn, _ = redraw(clipped, slopes[..., free], used, runs, options.resamples, generator)
    observed = (problem.data["observed"] + errors)[None] + drawn
    starts = np.tile(solved.theta, (options.resamples, 1))
    return solve(problem, starts, {"observed": observed}, rounds=REFIT_ROUNDS)


def _held_out(one: Solved, curves: Curves, by: str) -> HeldOut:
    """Errors at the ends of the runs of each group that a user leaves out in turn."""
    check_hold_out(by, GROUPS, len(curves.runs), FEWEST)
    labels = groups_of(curves, by)
    check_hold_out(by, GROUPS, len(set(labels)), 2)
    (errors,) = left_out(one.problem, one.solution.parameters, [np.array(labels)], ROUNDS)
    return HeldOut.of(by, "log loss", labels, errors)


def _outliers(curves: Curves, one: Solved) -> list[OutlierCurve]:
    """Runs whose end the others miss by far more than they miss each other's."""
    errors = one.ends.get("run", np.array([]))
    named = []
    for i, name in enumerate(curves.runs) if len(errors) >= TELLING else ():
        scatter = robust_scale(np.delete(errors, i))
        if abs(errors[i]) > OUTLIER * max(scatter, 1e-9):
            named.append(OutlierCurve(name, float(-errors[i]), float(abs(errors[i]) / scatter)))
    return sorted(named, key=lambda run: -run.times)[:MOST]


def _parameters(solved: Solved, draws: np.ndarray, clock: str, level: float) -> dict[str, Estimate]:
    """Each parameter with its interval, or with the reason why it has no value."""
    law, spread = solved.law(solved.theta), solved.law(draws)
    held = solved.problem.lower == solved.problem.upper
    estimates = {}
    for i, name in enumerate(CurveLaw._fields[: len(NAMES)]):
        value = float(law[i])
        estimate, note = interval(value, spread[i], level=level), ""
        if name in solved.problem.held.ranges:
            pass  # its value, or its bounds, are the user's
        elif held[i] and clock_of(clock)[0] == "sgd" and name in HELD_BY_SGD:
            estimate = Estimate(value, value, value, level, "held by the clock")
        elif held[i]:
            estimate = Estimate(None, level=level, note=solved.problem.reasons[name])
        elif name in ("L_0", "A_1", "B_phi"):
            pass  # may be 0
        elif solved.solution.at_bound[0, i]:
            note = "unidentified: ended at a bound of the fit"
        elif name != "p" and too_wide(estimate):
            note = f"unidentified: {SPANS}"
        estimates[name] = dataclasses.replace(estimate, value=None, note=note) if note else estimate
    return estimates
