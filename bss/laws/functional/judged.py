"""The law of loss curves solved by every clock and start of the losses, judged by what is left out.

Runs are left out one by one, and all of one horizon or of one peak rate together; what predicts the
ends of left-out runs best is chosen (derived here).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import jax
import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.constraints import FREE, Constraints
from bss.laws.functional import problem as law_problem
from bss.laws.functional.curves import Curves, curves_of
from bss.laws.functional.groups import labels as groups_of
from bss.laws.functional.law import CurveLaw
from bss.laws.functional.problem import (
    CLOCKS,
    POWERS,
    CurveProblem,
    curve_errors,
    curve_residual,
)
from bss.laws.resampling import rms
from bss.laws.solver import Solution, linearize, solve_in_rounds

FEWEST = 4  # runs from which a clock is judged on those left out
SHARES = (0.1, 0.25, 0.5)  # of the shortest run, from which losses may count
CLEARLY = 0.8  # of the error at left-out runs with all losses, below which a later start is taken
HALF = 0.5  # of every left-out error, below which a power of the rate is
JUDGED = ("run", "horizon", "peak")  # what is left out together
ROUNDS = 200  # of ten iterations: the valley is long where parameters trade off
Report = Callable[[str], None]


@dataclass(frozen=True)
class Solved:
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


Tried = dict[int, tuple[Curves, dict[str, Solved]]]
"""The curves of each start in tokens, and the law solved by clock."""


def choose(
    runs: pd.DataFrame,
    clock: str | None,
    warmup: int,
    since: int | None,
    held: Constraints,
    report: Report,
) -> tuple[Tried, int, str]:
    """What was tried, the start chosen and the clock; arguments as of `fit_curve`."""
    curves = curves_of(runs, warmup=warmup, since=since or 0)
    several = clock is None and len(curves.runs) >= FEWEST
    solved = solved_by_clock(curves, CLOCKS if several else (clock or "sgd",), held, report=report)
    tried = {since or 0: (curves, solved)}
    if since is None and len(curves.runs) >= FEWEST:
        for start in later_starts(curves):
            later = curves_of(runs, warmup=warmup, since=start)
            report(f"losses since {start:,} tokens")
            with suppress(InputError):  # too few losses are left
                tried[start] = later, solved_by_clock(later, (*solved,), held, solved)
    start, best = best_start(tried)
    curves, solved = tried[start]
    if several and "p" not in solved[best].problem.reasons:
        names = tuple(f"{best}^{power}" for power in POWERS)
        others = solved_by_clock(curves, names, held, {name: solved[best] for name in names})
        solved |= others
        least = best_first(others)[0]
        if is_clearly(others[least], solved[best]):
            best = least
    return tried, start, best


def solved_by_clock(
    curves: Curves,
    clocks: tuple[str, ...],
    held: Constraints = FREE,
    near: dict[str, Solved] | None = None,
    report: Report = lambda _: None,
) -> dict[str, Solved]:
    """Each clock solved but those that free the same parameters; tested where runs are enough.

    From many starts, or from a solution near by, that of other losses of the runs or of a clock.
    """
    solved: dict[str, Solved] = {}
    for clock in clocks:
        problem = law_problem.curve_problem(curves, clock, held)
        free = problem.lower < problem.upper
        if near is None and any(
            np.array_equal(free, x.problem.lower < x.problem.upper) for x in solved.values()
        ):
            continue
        report(f"{clock} clock: fit to {len(curves.runs)} runs")
        starts = near[clock].solution.parameters if near else law_problem.curve_starts(problem)
        solution = solve(problem, starts, rounds=ROUNDS).best()
        report(f"{clock} clock: each run left out")
        groups = [by for by in JUDGED if len(curves.runs) >= FEWEST]
        labels = [np.array(groups_of(curves, by)) for by in groups]
        ends = left_out(problem, solution.parameters, labels)
        solved[clock] = Solved(problem, solution, dict(zip(groups, ends, strict=True)))
    return solved


def solve(problem: CurveProblem, starts: np.ndarray, changed=None, *, rounds: int) -> Solution:
    """The problem solved from starts [K, P], one for each change of its data if there are some."""
    box, data = (problem.lower, problem.upper), problem.data
    return solve_in_rounds(
        curve_residual, starts, box, data, changed, rounds=rounds, accelerated=True
    )


def later_starts(curves: Curves) -> list[int]:
    """Tokens from which losses may count, as parts of the shortest run."""
    ends = np.nanmax(curves.tokens, axis=1).min()
    first = np.nanmin(curves.tokens, axis=1).max()
    return [int(share * ends) for share in SHARES if share * ends > first]


def best_start(tried: dict[int, tuple[Curves, dict[str, "Solved"]]]) -> tuple[int, str]:
    """The start and the clock of the least error at left-out runs, the first where none is told.

    All losses count unless a later start is clearly better.
    """
    each = {start: best_first(solved)[0] for start, (_, solved) in tried.items()}
    errors = {start: tried[start][1][clock].left_out or 0.0 for start, clock in each.items()}
    start, first = min(errors, key=lambda start: errors[start]), min(errors)
    start = start if errors[start] < CLEARLY * errors[first] else first
    return start, each[start]


def best_first(solved: dict[str, Solved]) -> list[str]:
    """Clocks by their left-out errors; in their own order where there are none."""
    return sorted(solved, key=lambda clock: solved[clock].left_out or 0.0)


def is_clearly(one: "Solved", other: "Solved") -> bool:
    """Whether a power of the rate halves the errors at whatever was left out together."""
    pairs = [(one.over(by), other.over(by)) for by in JUDGED]
    return all(mine < HALF * theirs for mine, theirs in pairs if mine and theirs)


def left_out(
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
    fits = solve(problem, starts, {"weight": weight}, rounds=rounds).parameters
    ends = (problem.data["weight"] > 0).sum(axis=1) - 1
    for (i, stay), theta in zip(folds, fits, strict=True):
        error = linearize(curve_errors, theta, problem.data)[0]
        told[i][~stay] = error[np.arange(len(ends)), ends][~stay]
    return told
