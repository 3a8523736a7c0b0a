"""The problem of S = a + b/B for `bss.laws.inference`: each batch is a unit of replication."""

from dataclasses import dataclass

import numpy as np
from scipy import special

from bss.laws.critical.data import StepsCurve
from bss.laws.critical.law import Shape
from bss.laws.minimum import FEWEST
from bss.laws.problem import Problem, Solution
from bss.laws.resampling import RunEffects


@dataclass(frozen=True)
class StepsProblem(Problem):
    """One curve, whose fitted numbers are a and κ; solved by a search in κ alone.

    Attributes:
        curve: the measurements.
    """

    curve: StepsCurve

    @classmethod
    def of(cls, curve: StepsCurve) -> "StepsProblem":
        """Return the problem of a curve, of which every batch is used."""
        count = len(curve.batch)
        return cls(np.ones((1, count), bool), np.arange(count)[None], curve)

    @property
    def log_steps(self) -> np.ndarray:
        """Log steps measured [n]."""
        return np.log(self.curve.steps)

    def solve(self) -> Solution:
        """See `Problem.solve`."""
        shape = Shape.of(self.curve.batch, self.log_steps)
        theta = np.array([[shape.a, shape.kappa]])
        cost = np.sum((shape.log_steps(self.curve.batch) - self.log_steps) ** 2) / 2
        return Solution(theta, np.array([cost]), np.array([True]), np.zeros_like(theta, bool))

    def linearize(self, solution: Solution, index: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Problem.linearize`; the derivatives are by the logarithms of a and κ."""
        batch = self.curve.batch
        a, kappa = solution.parameters[index]
        errors = Shape(a, kappa).log_steps(batch) - self.log_steps
        return errors, np.stack([np.ones(len(batch)), special.expit(np.log(kappa / batch))], axis=1)

    def scatter(self, errors: np.ndarray, slopes: np.ndarray, index: int) -> RunEffects:
        """Return the noise of a batch, at least that of whole steps; both parameters are free."""
        freedom = max(len(errors) - slopes.shape[1], 1)
        noise = Shape.of(self.curve.batch, self.log_steps).noise
        return RunEffects(float(noise), 0.0, float(freedom), 1.0)

    def refit(self, solution: Solution, index: int, changes: np.ndarray) -> np.ndarray:
        """See `Problem.refit`."""
        return _solve_each(self.curve.batch, self.log_steps + changes)

    def without(self, solution: Solution, folds: np.ndarray) -> np.ndarray:
        """See `Problem.without`."""
        batch = self.curve.batch
        fits = [_solve_each(batch[~out], self.log_steps[~out]) for out in folds[:, 0]]
        return np.reshape(fits, (len(folds), 1, -1)) if fits else np.zeros((0, 1, 2))

    def missed(self, theta: np.ndarray, index: int) -> np.ndarray:
        """See `Problem.missed`."""
        return Shape(*theta).log_steps(self.curve.batch) - self.log_steps

    @property
    def folds(self) -> np.ndarray:
        """Each batch [n, 1, n], if the others identify the law; none otherwise [0, 1, n]."""
        count = len(self.curve.batch)
        every = np.eye(count, dtype=bool)[:, None]
        return every if count > FEWEST else every[:0]


def _solve_each(batch: np.ndarray, log_steps: np.ndarray) -> np.ndarray:
    """Return a and κ [..., 2] of log steps [..., n]."""
    shape = Shape.of(batch, log_steps)
    return np.stack([shape.a, shape.kappa], axis=-1)
