"""The fitted law of final losses: expected losses, their uncertainty and draws of them.

The law is a mean of forms by their weights, with the residuals that the rows near by predict
(`bss.laws.final_loss.residual_gp`). Its covariance is that of the residuals and of the forms'
parameters, with the spread between the forms, scaled by what left-out rows require.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bss.laws.constraints import FREE, Constraints
from bss.laws.final_loss.forms import FORMS, Form, losses
from bss.laws.final_loss.points import LossPoints
from bss.laws.final_loss.residual_gp import covariance, noise_sd, residuals_on_grid
from bss.laws.minimum import parabola_vertex

STEP = 1e-5  # of a parameter, for central differences in float64
GRID = (61, 41)  # batches and learning rates: a tenth of an octave apart over seven octaves
CHUNK = 500  # points that are predicted at once, which bounds the memory


def slopes_of(form: Form, theta: np.ndarray, logs: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return [m, P], derivatives of the loss at logarithms [m, 3 or 4]; 0 if a parameter is fixed.

    By central differences.
    """
    step = np.where(free, STEP, 0.0)
    ahead = losses(form, theta + np.diag(step), logs) - losses(form, theta - np.diag(step), logs)
    return ahead.T / (2 * STEP)


@dataclass(frozen=True)
class LossLaw:
    """Batches are in tokens, learning rates per step, losses in nats.

    Attributes:
        thetas: per form its parameters [P], sizes as logarithms, at the middle of the rows.
        weights: of each form, by left-out cells; they sum to 1.
        cv_errors: of each form at left-out cells, in nats.
        widened: factors of standard deviations that left-out rows require, "inside" of the table's
            N and D and "outside".
        converged: whether all forms did.
        points: the rows.
        constraints: what a user fixed of the parameters.
        resamples, seed: number of draws of the losses, and their random seed.
    """

    thetas: dict[str, np.ndarray]
    weights: dict[str, float]
    cv_errors: dict[str, float]
    widened: dict[str, float]
    converged: bool
    points: LossPoints
    constraints: Constraints = FREE
    resamples: int = 200
    seed: int = 0

    def logs(self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike, lr: Any = None):
        """Return [m, 3 or 4], logarithms about the middle; without lr at the best one.

        The arguments broadcast, and are flattened.
        """
        if self.points.with_lr and lr is None:
            lr = self.best_lr(params, tokens, batch)
        given = (params, tokens, batch, *([lr] if self.points.with_lr else []))
        each = np.broadcast_arrays(*(np.asarray(x, float) for x in given))
        return np.log(np.stack([x.ravel() for x in each], axis=1)) - self.points.centres

    def text(self) -> str:
        """Return the forms with their weights, the heaviest first."""
        shown = sorted(self.weights.items(), key=lambda x: -x[1])
        if len(shown) == 1:
            return shown[0][0]
        return ", ".join(f"{name} {weight:.0%}" for name, weight in shown)

    @property
    def heaviest(self) -> str:
        """The form of the largest weight."""
        return max(self.weights, key=lambda name: self.weights[name])

    def losses(
        self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike, lr: ArrayLike | None = None
    ) -> np.ndarray:
        """Return expected losses; without lr at the best one. The arguments broadcast."""
        given = (params, tokens, batch, 1.0 if lr is None else lr)
        shape = np.broadcast_shapes(*(np.shape(x) for x in given))
        logs = self.logs(params, tokens, batch, lr)
        parts = np.array_split(logs, 1 + len(logs) // CHUNK)
        rows, expected = self.points.logs, self._expected_residuals
        means = [self._mean_of_forms(x) + covariance(x, rows) @ expected for x in parts]
        return np.concatenate(means).reshape(shape)

    def _mean_of_forms(self, logs: np.ndarray) -> np.ndarray:
        """[...] nats, without residuals, at logarithms [..., 3 or 4]."""
        shares = self.weights.items()
        return np.asarray(sum(w * losses(FORMS[n], self.thetas[n], logs) for n, w in shares))

    @cached_property
    def _expected_residuals(self) -> np.ndarray:
        """[n], the weights by which the rows' residuals predict those at other points."""
        points = self.points
        return points.gp.precision @ (points.loss - self._mean_of_forms(points.logs))

    @cached_property
    def linearized(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """By form, its slopes at the rows [n, P] and the covariance of its parameters [P, P]."""
        found = {}
        for name in self.weights:
            form = FORMS[name]
            slopes = slopes_of(form, self.thetas[name], self.points.logs, self._free(name))
            found[name] = slopes, self.points.gp.spread(slopes, form.usual[1] ** -2.0)
        return found

    def _free(self, name: str) -> np.ndarray:
        lower, upper = FORMS[name].bounds(self.points, self.constraints)
        return lower < upper

    def posterior(self, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return expected losses [m] at logarithms [m, 3 or 4], and their covariance [m, m]."""
        points = self.points
        gain, spread = points.gp.posterior(logs)
        weights, means = np.array([*self.weights.values()]), []
        for (name, weight), (rows, parameters) in zip(
            self.weights.items(), self.linearized.values(), strict=True
        ):
            form, theta = FORMS[name], self.thetas[name]
            residuals = points.loss - losses(form, theta, points.logs)
            means.append(losses(form, theta, logs) + gain @ residuals)
            slopes = slopes_of(form, theta, logs, self._free(name)) - gain @ rows
            spread += weight * slopes @ parameters @ slopes.T
        mean = weights @ np.array(means)
        apart = np.sqrt(weights)[:, None] * (means - mean)
        wider = self._widened(logs)
        return mean, (spread + apart.T @ apart) * np.outer(wider, wider)

    def _widened(self, logs: np.ndarray) -> np.ndarray:
        outside = self.points.outside(logs)
        return np.where(outside, self.widened["outside"], self.widened["inside"])

    def draws(
        self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike, lr: ArrayLike | None = None
    ) -> np.ndarray:
        """Return [1 + resamples, m], expected losses and draws of them; arguments broadcast."""
        mean, spread = self.posterior(self.logs(params, tokens, batch, lr))
        roots, axes = np.linalg.eigh(spread)
        normal = np.random.default_rng(self.seed).standard_normal((self.resamples, len(roots)))
        drawn = mean + normal @ (axes * np.sqrt(np.maximum(roots, 0.0))).T
        return np.concatenate([mean[None], drawn])

    def predictions(
        self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike, lr: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return [m], expected losses of single runs, and standard deviations with their noise."""
        logs = self.logs(params, tokens, batch, lr)
        found = []
        for part in np.array_split(logs, 1 + len(logs) // CHUNK):
            mean, spread = self.posterior(part)
            noise = noise_sd(mean - self._least(part)) * self._widened(part)
            found.append((mean, np.sqrt(np.diag(spread) + noise**2)))
        mean, deviation = (np.concatenate(one) for one in zip(*found, strict=True))
        return mean, deviation

    def _least(self, logs: np.ndarray) -> np.ndarray:
        """[m] nats, the least loss over batches and learning rates at the N and D of each point."""
        sizes = np.exp(logs[:, :2] + self.points.centres[:2])
        pairs, which = np.unique(sizes, axis=0, return_inverse=True)
        least = np.array([self.surface(*pair)[-1].min() for pair in pairs.tolist()])
        return least[which.ravel()]

    @cached_property
    def grid(self) -> tuple[np.ndarray, ...]:
        """Batches, and learning rates if they vary, an octave wider than those of the rows."""
        columns = self.points.uncentred[:, 2:].T
        ends = ((x.min() - np.log(2), x.max() + np.log(2)) for x in columns)
        return tuple(np.exp(np.linspace(*at, n)) for at, n in zip(ends, GRID, strict=False))

    @cached_property
    def _surfaces(self) -> dict[tuple[float, float], np.ndarray]:
        """Losses over the grid, by log N and log D."""
        return {}

    def surface(self, params: float, tokens: float) -> tuple[np.ndarray, ...]:
        """Return batches [b], learning rates [r] if they vary, and losses [b] or [b, r]."""
        key = round(np.log(params), 9), round(np.log(tokens), 9)
        if key not in self._surfaces:
            self._surfaces[key] = self.over(params, tokens, *self.grid)
        return *self.grid, self._surfaces[key]

    def over(self, params: float, tokens: float, *axes: np.ndarray) -> np.ndarray:
        """Return losses [b] of batches [b], or [b, r] of batches and learning rates [r]."""
        centres = self.points.centres
        size = np.log([params, tokens]) - centres[:2]
        logs = [np.log(x) - centre for x, centre in zip(axes, centres[2:], strict=True)]
        grid = np.meshgrid(*size[:, None], *logs, indexing="ij")
        every = np.stack([x[0, 0] for x in grid], axis=-1)
        rows, expected = self.points.logs, self._expected_residuals
        return self._mean_of_forms(every) + residuals_on_grid(size, logs, rows, expected)

    def curve(self, params: float, tokens: float) -> tuple[np.ndarray, np.ndarray, float]:
        """Return batches [b] in tokens, losses at the best learning rates, and the best batch."""
        batch, *_, loss = self.surface(params, tokens)
        tuned = loss.min(axis=1) if loss.ndim > 1 else loss
        return batch, tuned, float(np.exp(parabola_vertex(np.log(batch), tuned)))

    def excess_loss(self, params: float, tokens: float, batch: ArrayLike) -> np.ndarray:
        """Return losses of batches in tokens minus the least loss, in nats."""
        return self.losses(params, tokens, batch) - self.curve(params, tokens)[1].min()

    def best_lr(self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike) -> np.ndarray:
        """Return learning rates of the least loss, or an end of the grid; arguments broadcast."""
        sizes = np.broadcast_arrays(*(np.asarray(x, float) for x in (params, tokens, batch)))
        rows, rates = np.stack([x.ravel() for x in sizes]), self.grid[1]
        found = np.empty(rows.shape[1])
        for N, D in np.unique(rows[:2], axis=1).T.tolist():
            here = (rows[0] == N) & (rows[1] == D)
            found[here] = parabola_vertex(np.log(rates), self.over(N, D, rows[2, here], rates))
        return np.exp(found).reshape(sizes[0].shape)
