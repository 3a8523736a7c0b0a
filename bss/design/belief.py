"""What a fit says of a goal and of the runs that may be done, and what it would say after them.

Forms are put together by their weights into one normal distribution of the goal and of all runs:
covariances within the forms, and between them. Conditioning it on a run needs no outcome and is
exact where the forms are normal and alike; between forms it is the best linear predictor, so that
a run where they differ settles some of their spread (Gaussian conditioning; derived here).
"""

from dataclasses import dataclass, field

import numpy as np

from bss.design.goals import PLACES, SHARES, Goal, Runs
from bss.design.law import Law

LEVEL, NORMAL = 0.90, 1.645
"""Of intervals, and standard deviations from the middle to their ends."""


@dataclass
class Belief:
    """A goal at R places and m runs, conditioned on those that were `added`.

    Attributes:
        value: of the goal, a logarithm where it is a batch.
        covariance: [R + m, R + m] before anything is added.
        apart: [K, R + m], the forms from their mean, times the root of their weights.
        noise: [m], standard deviation of one run in nats.
        added: runs, in their order.
        goal: [R, m], covariances of the goal and of runs, after those.
    """

    value: float
    covariance: np.ndarray
    apart: np.ndarray
    noise: np.ndarray
    added: list[int] = field(default_factory=list)
    goal: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        R = len(PLACES)
        self._factors = np.zeros((0, len(self.covariance)))
        self._variance = np.diag(self.covariance).copy()
        self.goal = self.covariance[:R, R:].copy()
        self._differ = self.apart[:, R:].copy()

    @classmethod
    def of(cls, law: Law, goal: Goal, runs: Runs) -> "Belief":
        """By the forms of a law, of a goal and runs."""
        grid, shape = goal.grid(law.space)
        G, R = len(grid.params), len(PLACES)
        lr = None if grid.lr is None or runs.lr is None else np.concatenate([grid.lr, runs.lr])
        both = [np.concatenate(pair) for pair in zip(grid[:3], runs[:3], strict=True)]
        forms = law.posterior(*both, lr)
        weights = np.array([form.weight for form in forms])
        means = np.array([form.mean for form in forms])
        mean = weights @ means
        apart = np.sqrt(weights)[:, None] * (means - mean)
        losses = apart.T @ apart
        for form in forms:
            losses += form.weight * form.covariance
        value, rows = goal.linear(grid.batch_tokens, mean[:G], losses[:G, :G], shape)
        joint = np.zeros((R + len(mean) - G,) * 2)
        joint[:R, :R] = rows @ losses[:G, :G] @ rows.T
        joint[:R, R:] = rows @ losses[:G, G:]
        joint[R:, :R], joint[R:, R:] = joint[:R, R:].T, losses[G:, G:]
        noise = np.sqrt(weights @ [form.noise[G:] ** 2 for form in forms])
        return cls(value, joint, np.concatenate([apart[:, :G] @ rows.T, apart[:, G:]], 1), noise)

    @property
    def variance(self) -> float:
        """Of the goal, over the places where the optimum may lie."""
        return float(SHARES @ np.maximum(self._variance[: len(PLACES)], 1e-18))

    @property
    def interval(self) -> tuple[float, float]:
        """The goal's, of 90%."""
        half = NORMAL * float(np.sqrt(self.variance))
        return self.value - half, self.value + half

    def narrowing(self, seeds: np.ndarray) -> np.ndarray:
        """[m], log of the interval's width before over after each run, in so many seeds [m]."""
        gain = SHARES @ self.goal**2 / self._single(seeds)
        return -0.5 * np.log1p(-np.minimum(gain / self.variance, 1 - 1e-9))

    def information(self, seeds: np.ndarray) -> np.ndarray:
        """[m], what each run tells of the law, whatever the goal (D-optimality), in nats."""
        return 0.5 * np.log(self._single(seeds) * seeds / self.noise**2)

    def doubt(self, seeds: np.ndarray) -> np.ndarray:
        """[m], how many standard deviations of each run's outcome the forms lie apart."""
        between = (self._differ**2).sum(axis=0)
        return np.sqrt(between / np.maximum(self._single(seeds) - between, 1e-18))

    def outcomes(self, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Variances [m] of the runs' outcomes before any was added, and covariances [m, m]."""
        across = self.covariance[len(PLACES) :, len(PLACES) :]
        return np.diag(across) + self.noise**2 / seeds, across

    def _single(self, seeds: np.ndarray) -> np.ndarray:
        return np.maximum(self._variance[len(PLACES) :], 0.0) + self.noise**2 / seeds

    def add(self, run: int, seeds: float = 1.0) -> None:
        """Conditions on one run, of the mean of its seeds."""
        R = len(PLACES)
        column = self.covariance[R + run] - self._factors[:, R + run] @ self._factors
        column /= np.sqrt(max(column[R + run], 0.0) + self.noise[run] ** 2 / seeds)
        share = self._differ[:, run] / np.sqrt(self._single(np.full(len(self.noise), seeds))[run])
        self._differ = self._differ - np.outer(share, column[R:])
        self._factors = np.concatenate([self._factors, column[None]])
        self._variance -= column**2
        self.goal -= np.outer(column[:R], column[R:])
        self.added.append(run)

    def after(self, runs: list[int], seeds: np.ndarray) -> "Belief":
        """A new one, from before anything was added, on these runs."""
        other = Belief(self.value, self.covariance, self.apart, self.noise)
        for run in runs:
            other.add(run, float(seeds[run]))
        return other
