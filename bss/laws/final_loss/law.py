"""The fitted law of final losses, as a value: losses with their uncertainty, and best rates.

A mean of forms by their weights, each with the departure that the rows tell
(`bss.laws.final_loss.departure`). Standard deviations are those of the departure and of the forms'
parameters, with the spread between the forms, times what left-out rows ask for.
"""

from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bss.laws.base import Estimate
from bss.laws.constraints import FREE, Constraints
from bss.laws.final_loss.departure import Departure, Seen, precision_of, scatter, unseen
from bss.laws.final_loss.forms import FORMS, Form, losses
from bss.laws.final_loss.points import LossPoints, by_regime, regimes
from bss.laws.minimum import parabola_vertex

STEP = 1e-5  # of a parameter, over which slopes are taken
BATCHES, RATES = 61, 41  # of a grid over batch and rate
BEYOND = np.log(2.0)  # by which the grid is wider than what was tried
CHUNK, ASKED = 4000, 500  # points that are asked at once, of which intervals are


class Posterior(NamedTuple):
    """What one form says of points [m].

    Attributes:
        weight: of the form; those of all sum to 1.
        mean: [m] nats, the expected loss.
        covariance: [m, m] nats² of that expectation.
        noise: [m] nats, standard deviation of a single run about it.
    """

    weight: float
    mean: np.ndarray
    covariance: np.ndarray
    noise: np.ndarray


def slopes_of(form: Form, theta: np.ndarray, logs: np.ndarray, free: np.ndarray) -> np.ndarray:
    """[m, P], of the loss at logarithms [m, 3 or 4] by parameters; 0 by those that are not free."""
    step = np.where(free, STEP, 0.0)
    ahead = losses(form, theta + np.diag(step), logs) - losses(form, theta - np.diag(step), logs)
    return ahead.T / (2 * STEP)


@dataclass(frozen=True)
class LossLaw:
    """Batches in tokens, rates per step, losses in nats.

    Attributes:
        thetas: per form its parameters [P], sizes as logarithms, at the middle of the rows.
        weights: per regime of each form; they sum to 1.
        cv_errors: per regime of each form its error at left-out rows, in nats.
        departures: per regime, what the forms miss.
        widened: per regime, by how much standard deviations are wider than the constants say.
        converged: whether all forms did.
        points: the rows.
        constraints: what a user fixed of the parameters.
    """

    thetas: dict[str, np.ndarray]
    weights: dict[str, dict[str, float]]
    cv_errors: dict[str, dict[str, float]]
    departures: dict[str, Departure]
    widened: dict[str, float]
    converged: bool
    points: LossPoints
    constraints: Constraints = FREE

    def logs(self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike, lr: Any = None):
        """[m, 3 or 4], logarithms about the middle; the arguments broadcast."""
        given = (params, tokens, batch, *([lr] if self.points.with_lr else []))
        each = np.broadcast_arrays(*(np.asarray(x, float) for x in given))
        return np.log(np.stack([x.ravel() for x in each], axis=1)) - self.points.centres

    def regime(self, params: float, tokens: float) -> str:
        """That of a question at N and D."""
        return str(regimes(np.log([[params, tokens]]), self.points.uncentred[:, :2])[0])

    def text(self, regime: str = "inside") -> str:
        """The forms with their weights for a regime, the heaviest first."""
        shown = sorted(self._shares(regime).items(), key=lambda x: -x[1])
        if len(shown) == 1:
            return shown[0][0]
        return ", ".join(f"{name} {weight:.0%}" for name, weight in shown)

    @property
    def heaviest(self) -> str:
        """The form of the largest weight inside the table."""
        return max(self.weights["inside"], key=lambda name: self.weights["inside"][name])

    def losses(
        self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike, lr: ArrayLike | None = None
    ) -> np.ndarray:
        """Expected losses; without a rate at the best one. The arguments broadcast."""
        if self.points.with_lr and lr is None:
            lr = self.best_lr(params, tokens, batch)
        given = [params, tokens, batch, *([lr] if self.points.with_lr else [])]
        shape = np.broadcast_shapes(*(np.shape(x) for x in given))
        logs = self.logs(*given)
        found = np.zeros(len(logs))
        for regime, rows in by_regime(logs[:, :2], self.points.logs[:, :2]):
            for part in np.array_split(rows, 1 + len(logs) // CHUNK):
                found[part] = self._expected(regime, logs[part])
        return found.reshape(shape)

    def _expected(self, regime: str, logs: np.ndarray) -> np.ndarray:
        """[m] nats: the forms and their departures, whose kernel is one."""
        seen = self._seen(regime)
        missed = seen.departure.covariance(logs, seen.logs) @ self._told(regime)
        return self._mean_of_forms(regime, logs) + missed

    def _shares(self, regime: str) -> dict[str, float]:
        """The weights of the forms that have any."""
        return {name: weight for name, weight in self.weights[regime].items() if weight}

    def _mean_of_forms(self, regime: str, logs: np.ndarray) -> np.ndarray:
        """[...] nats, by their weights and without departures, at logarithms [..., 3 or 4]."""
        shares = self._shares(regime).items()
        return np.asarray(sum(w * losses(FORMS[n], self.thetas[n], logs) for n, w in shares))

    def posterior(
        self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike, lr: ArrayLike | None = None
    ) -> tuple[Posterior, ...]:
        """What each form says of points [m]; the regime is that of the first.

        Without a rate at the best one. The arguments broadcast, and are flattened.
        """
        if self.points.with_lr and lr is None:
            lr = self.best_lr(params, tokens, batch)
        logs = self.logs(params, tokens, batch, lr)
        regime = str(regimes(logs[:1, :2], self.points.logs[:, :2])[0])
        seen, means, told = self._seen(regime), [], []
        across = seen.across(logs)
        left = seen.left(logs, across)
        shares = self._shares(regime)
        for name in shares:
            form, theta = FORMS[name], self.thetas[name]
            means.append(losses(form, theta, logs) + across @ self._missed[name])
            rows, spread = self.parameters(name, regime)
            slopes = slopes_of(form, theta, logs, self._free(name)) - across @ rows
            told.append((left + slopes @ spread @ slopes.T) * self.widened[regime] ** 2)
        noise = self._noise(logs, np.tensordot([*shares.values()], np.array(means), 1))
        parts = zip(shares.values(), means, told, strict=True)
        return tuple(Posterior(*part, noise) for part in parts)

    def _noise(self, logs: np.ndarray, loss: np.ndarray) -> np.ndarray:
        """[m] nats, standard deviation of a single run at points of these expected losses [m]."""
        sizes = np.exp(logs[:, :2] + self.points.centres[:2])
        pairs, which = np.unique(sizes, axis=0, return_inverse=True)
        least = np.array([self.surface(*pair)[-1].min() for pair in pairs.tolist()])
        wider = np.array([self.widened[self.regime(*pair)] for pair in pairs.tolist()])
        return unseen(loss - least[which.ravel()]) * wider[which.ravel()]

    def predictions(
        self, params: Any, tokens: Any, batch: Any, lr: Any = None, *, level: float
    ) -> list[Estimate]:
        """Of single runs [m], each with its interval; arguments broadcast."""
        if lr is None:
            lr = self.best_lr(params, tokens, batch) if self.points.with_lr else np.nan
        given = [np.atleast_1d(np.asarray(x, float)) for x in (params, tokens, batch, lr)]
        params, tokens, batch, lr = np.broadcast_arrays(*given)
        found: list[Estimate | None] = [None] * len(params)
        sizes = np.stack([params, tokens])
        quantile = NormalDist().inv_cdf((1 + level) / 2)
        for size in np.unique(sizes, axis=1).T:
            every = np.flatnonzero((size == sizes.T).all(axis=1))
            for rows in np.array_split(every, 1 + len(every) // ASKED):
                each = self.posterior(params[rows], tokens[rows], batch[rows], lr[rows])
                weight = np.array([one.weight for one in each])[:, None]
                means = np.array([one.mean for one in each])
                mean = (weight * means).sum(axis=0)
                own = np.array([np.diag(one.covariance) + one.noise**2 for one in each])
                spread = np.sqrt((weight * (own + (means - mean) ** 2)).sum(axis=0)) * quantile
                for row, value, half in zip(rows, mean.tolist(), spread.tolist(), strict=True):
                    found[row] = Estimate(value, value - half, value + half, level)
        return [one for one in found if one is not None]

    @cached_property
    def _missed(self) -> dict[str, np.ndarray]:
        points = self.points
        return {n: points.loss - losses(FORMS[n], x, points.logs) for n, x in self.thetas.items()}

    def _free(self, name: str) -> np.ndarray:
        lower, upper = FORMS[name].bounds(self.points, self.constraints)
        return lower < upper

    def _seen(self, regime: str) -> Seen:
        """The rows, for a regime; made once something is asked, so that a fit is read fast."""
        departure, logs = self.departures[regime], self.points.logs
        if departure not in self._cache:
            noise = scatter(self.points.excess, self.points.count)
            self._cache[departure] = Seen(departure, logs, precision_of(departure, logs, noise))
        return self._cache[departure]

    def _told(self, regime: str) -> np.ndarray:
        """[n], what the rows' errors about the mean of the forms are worth elsewhere."""
        if ("told", regime) not in self._cache:
            missed = sum(w * self._missed[n] for n, w in self.weights[regime].items())
            self._cache["told", regime] = self._seen(regime).precision @ missed
        return self._cache["told", regime]

    def parameters(self, name: str, regime: str = "inside") -> tuple[np.ndarray, np.ndarray]:
        """A form's slopes at the rows [n, P], and the covariance of its parameters."""
        if (regime, name) not in self._cache:
            form, logs = FORMS[name], self.points.logs
            slopes = slopes_of(form, self.thetas[name], logs, self._free(name))
            spread = self._seen(regime).spread(slopes, form.usual[1] ** -2.0)
            self._cache[regime, name] = slopes, spread
        return self._cache[regime, name]

    @cached_property
    def _cache(self) -> dict[Any, Any]:
        return {}

    @cached_property
    def grid(self) -> tuple[np.ndarray, ...]:
        """Batches, and rates where they vary, from an octave below what was tried to one above."""
        columns = self.points.uncentred[:, 2:].T
        ends = ((x.min() - BEYOND, x.max() + BEYOND) for x in columns)
        return tuple(
            np.exp(np.linspace(*at, n)) for at, n in zip(ends, (BATCHES, RATES), strict=False)
        )

    def surface(self, params: float, tokens: float) -> tuple[np.ndarray, ...]:
        """Batches [b], rates [r] where they vary, and losses [b] or [b, r] over the grid."""
        key = round(np.log(params), 9), round(np.log(tokens), 9)
        if key not in self._cache:
            self._cache[key] = self.over(params, tokens, *self.grid)
        return *self.grid, self._cache[key]

    def over(self, params: float, tokens: float, *axes: np.ndarray) -> np.ndarray:
        """Losses [b] of batches [b], or [b, r] of batches and rates [r], at one N and D."""
        regime, centres = self.regime(params, tokens), self.points.centres
        size = np.log([params, tokens]) - centres[:2]
        logs = [np.log(x) - centre for x, centre in zip(axes, centres[2:], strict=True)]
        grid = np.meshgrid(*logs, indexing="ij")
        every = np.stack(
            [np.full(grid[0].shape, size[0]), np.full(grid[0].shape, size[1]), *grid], -1
        )
        seen = self._seen(regime)
        missed = seen.departure.along(size, logs, seen.logs, self._told(regime))
        return self._mean_of_forms(regime, every) + missed

    def curve(self, params: float, tokens: float) -> tuple[np.ndarray, np.ndarray, float]:
        """Batches [b] in tokens, their losses at the best rate, and the batch of the least one."""
        batch, *_, loss = self.surface(params, tokens)
        tuned = loss.min(axis=1) if loss.ndim > 1 else loss
        return batch, tuned, float(np.exp(parabola_vertex(np.log(batch), tuned)))

    def given_up(self, params: float, tokens: float, batch: ArrayLike) -> np.ndarray:
        """The loss of batches in tokens above that of the best, in nats."""
        return self.losses(params, tokens, batch) - self.curve(params, tokens)[1].min()

    def best_lr(self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike) -> np.ndarray:
        """The rates of least loss, an end of the grid where it falls on; arguments broadcast."""
        sizes = np.broadcast_arrays(*(np.asarray(x, float) for x in (params, tokens, batch)))
        rows, rates = np.stack([x.ravel() for x in sizes]), self.grid[1]
        found = np.empty(rows.shape[1])
        for N, D in np.unique(rows[:2], axis=1).T.tolist():
            here = (rows[0] == N) & (rows[1] == D)
            found[here] = parabola_vertex(np.log(rates), self.over(N, D, rows[2, here], rates))
        return np.exp(found).reshape(sizes[0].shape)


def mean_of(posterior: tuple[Posterior, ...]) -> np.ndarray:
    """[m] nats, the expected losses of the forms by their weights."""
    return np.tensordot([one.weight for one in posterior], [one.mean for one in posterior], 1)


def draw(posterior: tuple[Posterior, ...], count: int, seed: int = 0) -> np.ndarray:
    """[count, m] losses, of each form as many draws as its weight says."""
    generator, parts, left = np.random.default_rng(seed), [], count
    for i, one in enumerate(posterior):
        some = left if i == len(posterior) - 1 else min(round(one.weight * count), left)
        left -= some
        roots, axes = np.linalg.eigh(one.covariance)
        normal = generator.standard_normal((some, len(roots)))
        parts.append(one.mean + normal @ (axes * np.sqrt(np.maximum(roots, 0.0))).T)
    return np.concatenate(parts)
