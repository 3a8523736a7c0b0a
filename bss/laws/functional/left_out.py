"""The law of loss curves solved, and its errors at the ends of runs left out one at a time."""

from dataclasses import dataclass

import numpy as np

from bss.laws.functional.curves import Curves
from bss.laws.functional.problem import CurveProblem, curve_errors, curve_residual, curve_starts
from bss.laws.resampling import rms
from bss.laws.solver import Solution, linearize, solve_in_rounds

FEWEST = 4  # runs from which each is left out: the rest must identify the law
# Rounds of ten iterations: many where parameters trade off, few from the solution of all runs.
ROUNDS = {"fit": 200, "refit": 20, "fold": 3}


@dataclass(frozen=True)
class Solved:
    """The problem of a clock, its solution, and its errors [R] at left-out ends, or none."""

    problem: CurveProblem
    solution: Solution
    ends: np.ndarray

    @property
    def theta(self) -> np.ndarray:
        """The fitted parameters [P]."""
        return self.solution.parameters[0]

    @property
    def cv_error(self) -> float | None:
        """Root mean square error of log loss at left-out ends."""
        return rms(self.ends) if len(self.ends) else None


def solved(curves: Curves, problem: CurveProblem) -> Solved:
    """Return the solution from many starts; cross-validated if there are enough runs."""
    solution = solve(problem, curve_starts(problem), rounds=ROUNDS["fit"]).best()
    enough = len(curves.runs) >= FEWEST
    return Solved(problem, solution, left_out(problem, solution) if enough else np.array([]))


def solve(problem: CurveProblem, starts: np.ndarray, changed=None, *, rounds: int) -> Solution:
    """Solve from starts [K, P]; `changed` has data of each start by name."""
    box, data = (problem.lower, problem.upper), problem.data
    return solve_in_rounds(
        curve_residual, starts, box, data, changed, rounds=rounds, accelerated=True
    )


def left_out(problem: CurveProblem, solution: Solution) -> np.ndarray:
    """Return errors of log loss [R] at the end of each run, by a fit to the others.

    Args:
        problem: of all runs.
        solution: of it, from which the fits start.
    """
    weight = problem.data["weight"]
    folds = weight * ~np.eye(len(weight), dtype=bool)[..., None]
    starts = np.repeat(solution.parameters, len(weight), axis=0)
    fits = solve(problem, starts, {"weight": folds}, rounds=ROUNDS["fold"]).parameters
    last = (weight > 0).sum(axis=1) - 1
    errors = [linearize(curve_errors, theta, problem.data)[0] for theta in fits]
    return np.array([error[i, last[i]] for i, error in enumerate(errors)])
