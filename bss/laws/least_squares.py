"""The problem of a law that `bss.laws.solver` solves: its fit, refits and folds."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax import tree

from bss.laws.problem import Problem, Residual, Search, Solution
from bss.laws.solver import linearize, repeated, solve


@dataclass(frozen=True)
class LeastSquares(Problem):
    """R problems of one law that `bss.laws.solver` solves.

    Attributes:
        residual: equal for members of a family, so that they share one compiled program.
        starts: [R, K, P].
        lower, upper: [R, P]; equal if a parameter is fixed.
        data: a tree of arrays by name, each with a leading axis R. `observed` is the measured
            value, and `weight` scales its error to a residual.
        errors: the residual without a robust transformation, if it has one.
        search: rounds and iterations.
    """

    residual: Residual
    starts: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    data: dict[str, Any]
    errors: Residual | None = field(default=None, kw_only=True)
    search: Search = field(default=Search(), kw_only=True)

    def one(self, index: int) -> dict[str, Any]:
        """Return the data of one problem."""
        return tree.map(lambda leaf: leaf[index], self.data)

    def solve(self) -> Solution:
        """See `Problem.solve`."""
        box = self.lower, self.upper
        return self._solved(self.starts, box, self.data, self.search.fit)

    def linearize(self, solution: Solution, index: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Problem.linearize`."""
        theta = solution.parameters[index]
        errors, slopes = linearize(self.errors or self.residual, theta, self.one(index))
        free = (self.lower[index] < self.upper[index]) & ~solution.at_bound[index]
        return errors, slopes[..., free]

    def refit(self, solution: Solution, index: int, changes: np.ndarray) -> np.ndarray:
        """See `Problem.refit`."""
        data = self.one(index)
        scale = np.where(self.used[index], data["weight"], np.inf)
        changed = repeated(data, len(changes), observed=data["observed"] + changes / scale)
        box = self.lower[index], self.upper[index]
        start = solution.parameters[index][None]
        return self._solved(start, box, changed, self.search.refit).parameters

    def without(self, solution: Solution, folds: np.ndarray) -> np.ndarray:
        """See `Problem.without`."""
        count = len(folds)

        def each(values: np.ndarray) -> np.ndarray:
            return np.concatenate([values] * count)

        data = tree.map(each, self.data)
        data["weight"] = np.where(folds.reshape(data["weight"].shape), 0.0, data["weight"])
        last = self.starts.shape[1] - 1
        some = np.linspace(0, last, self.search.fold_starts).astype(int)
        starts = np.concatenate([solution.parameters[:, None], self.starts[:, some]], axis=1)
        box = each(self.lower), each(self.upper)
        found = self._solved(each(starts), box, data, self.search.fold).parameters
        return found.reshape(count, *solution.parameters.shape)

    def missed(self, theta: np.ndarray, index: int) -> np.ndarray:
        """See `Problem.missed`."""
        return linearize(self.errors or self.residual, theta, self.one(index))[0]

    def _solved(
        self, starts: np.ndarray, box: tuple[np.ndarray, np.ndarray], data: Any, rounds: int
    ) -> Solution:
        lower, upper = box
        return solve(
            self.residual,
            starts,
            lower,
            upper,
            data,
            iterations=self.search.iterations,
            rounds=rounds,
            accelerated=self.search.accelerated,
        )
