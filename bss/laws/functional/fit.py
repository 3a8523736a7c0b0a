"""The functional scaling law fitted to loss curves under any LR and batch schedule.

The law of Li et al. (arXiv 2509.19189) with batches (bss.laws.functional.law), fitted robustly
in log loss from many starts. Which parameters the runs identify is told by their design (constant
runs alone say nothing of how noise is forgotten) and by the width of the intervals; intervals
cluster by run (bss.laws.fitting.bootstrap).
"""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import suppress

import jax
import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.fitting.bootstrap import redraw, rms, robust_scale
from bss.laws.fitting.constraints import FREE, Constraints
from bss.laws.fitting.estimate import SPANS, WIDE, Estimate, Options, interval, tails, too_wide
from bss.laws.fitting.held_out import HeldOut, check_hold_out
from bss.laws.fitting.solve import Solution, linearize, solve_in_rounds
from bss.laws.functional import problem as law_problem
from bss.laws.functional.curves import Curves, curves_of
from bss.laws.functional.groups import GROUPS, horizons, levels, not_told_apart, peaks
from bss.laws.functional.groups import labels as groups_of
from bss.laws.functional.law import CurveLaw
from bss.laws.functional.problem import (
    CLOCKS,
    NAMES,
    POWERS,
    CurveProblem,
    clock_of,
    curve_errors,
    curve_residual,
)
from bss.laws.functional.values import CurveFit, OutlierCurve, Start

OUTLIER = 5.0
FEWEST = 4  # runs from which a clock is judged on those left out
SHARES = (0.1, 0.25, 0.5)  # of the shortest run, from which losses may count
CLEARLY = 0.8  # of the error at left-out runs with all losses, below which a later start is taken
HALF = 0.5  # of every left-out error, below which a power of the rate is
JUDGED = ("run", "horizon", "peak")  # what is left out together
TELLING = 8  # runs from which one is called an outlier
MOST = 3  # that are named
REFIT_ROUNDS = 20
UNFINISHED = 0.1  # share of bootstrap refits from which a reader is warned
ROUNDS = 200  # of ten iterations: the valley is long where parameters trade off
KEPT_DRAWS = 200
LIMIT = 2  # of the kernel's exponent, 2 − 1/β, whatever the capacity
HELD_BY_SGD = ("p", "m", "B_phi")  # p where the rates do not vary
Report = Callable[[str], None]


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
            `SHARES` of the shortest run, that predicts runs left out of the fit best.
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
    curves = curves_of(runs, warmup=warmup, since=since or 0)
    several = clock is None and len(curves.runs) >= FEWEST
    solved = _solved(curves, CLOCKS if several else (clock or "sgd",), held, report=report)
    tried = {since or 0: (curves, solved)}
    if since is None and len(curves.runs) >= FEWEST:
        for start in _starts(curves):
            later = curves_of(runs, warmup=warmup, since=start)
            report(f"losses since {start:,} tokens")
            with suppress(InputError):  # too few losses are left
                tried[start] = later, _solved(later, (*solved,), held, solved)
    start, clock_of_best = _best(tried)
    curves, solved = tried[start]
    if several and "p" not in solved[clock_of_best].problem.reasons:
        names = tuple(f"{clock_of_best}^{power}" for power in POWERS)
        others = _solved(curves, names, held, {name: solved[clock_of_best] for name in names})
        solved |= others
        least = _best_first(others)[0]
        if _is_clearly(others[least], solved[clock_of_best]):
            clock_of_best = least
    fit = _fitted(curves, solved, clock_of_best, start, options, report)
    told = tuple(_held_out(solved[clock_of_best], curves, by) for by in hold_out)
    starts = tuple(
        Start(at, one.left_out, one.law(one.theta))
        for at, (_, by_clock) in tried.items()
        if at != start and (one := by_clock[clock_of(clock_of_best)[0]]).left_out is not None
    )
    return dataclasses.replace(fit, starts=starts, held_out=told)


def _starts(curves: Curves) -> list[int]:
    """Tokens from which losses may count, as parts of the shortest run."""
    ends = np.nanmax(curves.tokens, axis=1).min()
    first = np.nanmin(curves.tokens, axis=1).max()
    return [int(share * ends) for share in SHARES if share * ends > first]


def _best(tried: dict[int, tuple[Curves, dict[str, "_Solved"]]]) -> tuple[int, str]:
    """The start and the clock of the least error at left-out runs, the first where none is told.

    All losses count unless a later start is clearly better.
    """
    each = {start: _best_first(solved)[0] for start, (_, solved) in tried.items()}
    errors = {start: tried[start][1][clock].left_out or 0.0 for start, clock in each.items()}
    start, first = min(errors, key=lambda start: errors[start]), min(errors)
    start = start if errors[start] < CLEARLY * errors[first] else first
    return start, each[start]


def _is_clearly(one: "_Solved", other: "_Solved") -> bool:
    """Whether a power of the rate halves the errors at whatever was left out together."""
    pairs = [(one.over(by), other.over(by)) for by in JUDGED]
    return all(mine < HALF * theirs for mine, theirs in pairs if mine and theirs)


def fit_clocks(
    runs: pd.DataFrame, *, warmup: int = 0, since: int = 0, options: Options | None = None
) -> list[CurveFit]:
    """The law with every clock that differs here, `fit_curve`'s choice first; else as there."""
    curves = curves_of(runs, warmup=warmup, since=since)
    solved = _solved(curves, CLOCKS)
    return [_fitted(curves, solved, clock, since, options) for clock in _best_first(solved)]


@dataclasses.dataclass(frozen=True)
class _Solved:
    """The problem of a clock, its solution, and by grouping its errors [R] at left-out ends."""

    problem: CurveProblem
    solution: Solution
    ends: dict[str, np.ndarray]

    @property
    def left_out(self) -> float | None:
        """Error of log loss at the ends of runs left out one by one."""
        return self.over("run")

    def over(self, by: str) -> float | None:
        """That at the ends of runs left out by groups; None where they were not."""
        errors = self.ends.get(by, np.array([]))
        return rms(errors) if np.isfinite(errors).any() else None

    @property
    def theta(self) -> np.ndarray:
        """[P], the fitted parameters."""
        return self.solution.parameters[0]

    def law(self, theta: np.ndarray) -> CurveLaw:
        """The law in the runs' units: floats for theta [P], arrays [Q] for theta [Q, P]."""
        with jax.enable_x64(True):
            power = float(self.problem.data["power"])
            law = law_problem.law_of(np.moveaxis(theta, -1, 0), power)
            law = law_problem.in_units(law, self.problem.units)
        return CurveLaw(*(np.asarray(value, np.float64)[()] for value in law))


def _solved(
    curves: Curves,
    clocks: tuple[str, ...],
    held: Constraints = FREE,
    near: dict[str, _Solved] | None = None,
    report: Report = lambda _: None,
) -> dict[str, _Solved]:
    """Each clock solved but those that free the same parameters; tested where runs are enough.

    From many starts, or from a solution near by, that of other losses of the runs or of a clock.
    """
    solved: dict[str, _Solved] = {}
    for clock in clocks:
        problem = law_problem.curve_problem(curves, clock, held)
        free = problem.lower < problem.upper
        if near is None and any(
            np.array_equal(free, x.problem.lower < x.problem.upper) for x in solved.values()
        ):
            continue
        report(f"{clock} clock: fit to {len(curves.runs)} runs")
        starts = near[clock].solution.parameters if near else law_problem.curve_starts(problem)
        solution = _solve(problem, starts, rounds=ROUNDS).best()
        report(f"{clock} clock: each run left out")
        groups = [by for by in JUDGED if len(curves.runs) >= FEWEST]
        labels = [np.array(groups_of(curves, by)) for by in groups]
        ends = _left_out(problem, solution.parameters, labels)
        solved[clock] = _Solved(problem, solution, dict(zip(groups, ends, strict=True)))
    return solved


def _solve(problem: CurveProblem, starts: np.ndarray, changed=None, *, rounds: int) -> Solution:
    box, data = (problem.lower, problem.upper), problem.data
    return solve_in_rounds(
        curve_residual, starts, box, data, changed, rounds=rounds, accelerated=True
    )


def _best_first(solved: dict[str, _Solved]) -> list[str]:
    """Clocks by their left-out errors; in their own order where there are none."""
    return sorted(solved, key=lambda clock: solved[clock].left_out or 0.0)


def _fitted(
    curves: Curves,
    solved: dict[str, _Solved],
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
    solved: _Solved, draws: np.ndarray, parameters: dict[str, Estimate], level: float
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


def _silent(solved: _Solved, draws: np.ndarray, level: float) -> bool:
    """Whether the size of the noise is unidentified.

    It is what A_0 and A_1 make together at the end; their shares may trade off.
    """
    size = NAMES.index("noise")
    noise = draws[:, size] + np.log1p(draws[:, NAMES.index("feedback")])
    low, high = np.quantile(noise, tails(level))
    return bool(solved.solution.at_bound[0, size] or high - low > np.log(WIDE))


def _bootstrap(
    solved: _Solved, errors: np.ndarray, slopes: np.ndarray, options: Options
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
    return _solve(problem, starts, {"observed": observed}, rounds=REFIT_ROUNDS)


def _left_out(
    problem: CurveProblem, whole: np.ndarray, groupings: Sequence[np.ndarray], rounds: int = 3
) -> list[np.ndarray]:
    """Errors of log loss [R] at the ends of runs, for each grouping, by labels of runs [R].

    By fits to what has another label, from that to all, [1, P]; NaN where all runs share a label.
    """
    folds = [(i, labels != one) for i, labels in enumerate(groupings) for one in np.unique(labels)]
    folds = [(i, stay) for i, stay in folds if stay.sum() > 1]
    told = [np.full(len(problem.data["weight"]), np.nan) for _ in groupings]
    if not folds:
        return told
    weight = problem.data["weight"] * np.array([stay for _, stay in folds])[..., None]
    starts = np.repeat(whole, len(folds), axis=0)
    fits = _solve(problem, starts, {"weight": weight}, rounds=rounds).parameters
    ends = (problem.data["weight"] > 0).sum(axis=1) - 1
    for (i, stay), theta in zip(folds, fits, strict=True):
        error = linearize(curve_errors, theta, problem.data)[0]
        told[i][~stay] = error[np.arange(len(ends)), ends][~stay]
    return told


def _held_out(one: _Solved, curves: Curves, by: str) -> HeldOut:
    """Errors at the ends of the runs of each group that a user leaves out in turn."""
    check_hold_out(by, GROUPS, len(curves.runs), FEWEST)
    labels = groups_of(curves, by)
    check_hold_out(by, GROUPS, len(set(labels)), 2)
    (errors,) = _left_out(one.problem, one.solution.parameters, [np.array(labels)], ROUNDS)
    return HeldOut.of(by, "log loss", labels, errors)


def _outliers(curves: Curves, one: _Solved) -> list[OutlierCurve]:
    """Runs whose end the others miss by far more than they miss each other's."""
    errors = one.ends.get("run", np.array([]))
    named = []
    for i, name in enumerate(curves.runs) if len(errors) >= TELLING else ():
        scatter = robust_scale(np.delete(errors, i))
        if abs(errors[i]) > OUTLIER * max(scatter, 1e-9):
            named.append(OutlierCurve(name, float(-errors[i]), float(abs(errors[i]) / scatter)))
    return sorted(named, key=lambda run: -run.times)[:MOST]


def _parameters(
    solved: _Solved, draws: np.ndarray, clock: str, level: float
) -> dict[str, Estimate]:
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
