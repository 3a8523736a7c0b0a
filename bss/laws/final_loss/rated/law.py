"""The fitted law of (N, D, B, rate), as a value: losses, best rates, and how sure they are.

A mean of forms by their weights, each with the departure that the rows tell
(`bss.laws.final_loss.rated.departure`). Standard deviations are those of the departure and of the
forms' parameters, with the spread between the forms, times what left-out rows ask for.
"""

from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bss.laws.final_loss.fitted import vertex
from bss.laws.final_loss.forms.form import CentredPoints, losses
from bss.laws.final_loss.points import USES, uses
from bss.laws.final_loss.rated.departure import Departure, Seen, precision_of, scatter, unseen
from bss.laws.final_loss.rated.forms import RATED, RatedForm
from bss.laws.final_loss.rated.points import RatedPoints
from bss.laws.fitting.estimate import Estimate

STEP = 1e-5  # of a parameter, over which slopes are taken
BATCHES, RATES = 29, 41  # of a grid over batch and rate
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


def slopes_of(
    form: RatedForm, theta: np.ndarray, logs: np.ndarray, design: CentredPoints
) -> np.ndarray:
    """[m, P], of the loss at logarithms [m, 4] by parameters; 0 by those that are held."""
    lower, upper = form.box(design)
    step = np.where(lower < upper, STEP, 0.0)
    ahead = losses(form, theta + np.diag(step), logs) - losses(form, theta - np.diag(step), logs)
    return ahead.T / (2 * STEP)


def prior_of(form: RatedForm) -> np.ndarray:
    """[P], precisions of the parameters before any row."""
    return form.usual[1] ** -2.0


@dataclass(frozen=True)
class RatedLaw:
    """Batches in tokens, rates per step, losses in nats.

    Attributes:
        thetas: per form its parameters [P], sizes as logarithms, at the middle of the rows.
        weights: per use of each form; they sum to 1.
        judged: per use of each form its left-out error in nats.
        departures: per use, what the forms miss.
        widened: per use, by how much standard deviations are wider than the constants say.
        left_out: root mean square error near the best of left-out cells, the largest model, the
            largest budgets; None where the table has too few cells.
        converged: whether all forms did.
        points: the rows.
    """

    thetas: dict[str, np.ndarray]
    weights: dict[str, dict[str, float]]
    judged: dict[str, dict[str, float]]
    departures: dict[str, Departure]
    widened: dict[str, float]
    left_out: dict[str, float | None]
    converged: bool
    points: RatedPoints

    def logs(self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike, lr: ArrayLike):
        """[m, 4], logarithms about the middle; the arguments broadcast."""
        each = np.broadcast_arrays(*(np.asarray(x, float) for x in (params, tokens, batch, lr)))
        return np.log(np.stack([x.ravel() for x in each], axis=1)) - self.points.centres

    def use(self, params: float, tokens: float) -> str:
        """For which use a question at N and D is."""
        return uses(np.log([[params, tokens]]), self.points.logs[:, :2])[0]

    def text(self, use: str) -> str:
        """The forms with their weights for a use, the heaviest first."""
        ordered = sorted(self.weights[use].items(), key=lambda x: -x[1])
        return ", ".join(f"{name} {weight:.0%}" for name, weight in ordered if weight)

    def losses(
        self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike, lr: ArrayLike
    ) -> np.ndarray:
        """Expected losses; the arguments broadcast."""
        shape = np.broadcast_shapes(*(np.shape(x) for x in (params, tokens, batch, lr)))
        logs = self.logs(params, tokens, batch, lr)
        kinds = np.array(uses(logs[:, :2], self.points.design.logs[:, :2]))
        found = np.zeros(len(logs))
        for use in (use for use in USES if (kinds == use).any()):
            for part in np.array_split(np.flatnonzero(kinds == use), 1 + len(logs) // CHUNK):
                found[part] = self._expected(use, logs[part])
        return found.reshape(shape)

    def _expected(self, use: str, logs: np.ndarray) -> np.ndarray:
        """[m] nats: the forms and their departures, whose kernel is one."""
        shares = [(name, weight) for name, weight in self.weights[use].items() if weight]
        law = sum(weight * losses(RATED[n], self.thetas[n], logs) for n, weight in shares)
        seen = self._seen(use)
        return law + seen.departure.covariance(logs, seen.logs) @ self._told(use)

    def posterior(
        self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike, lr: ArrayLike
    ) -> tuple[Posterior, ...]:
        """What each form says of points of one use [m]; of the use of the first where they differ.

        The arguments broadcast, and are flattened.
        """
        logs = self.logs(params, tokens, batch, lr)
        use = uses(logs[:1, :2], self.points.design.logs[:, :2])[0]
        seen, wider, means, told = self._seen(use), self.widened[use], [], []
        across = seen.across(logs)
        left = seen.left(logs, across)
        shares = {name: weight for name, weight in self.weights[use].items() if weight}
        for name in shares:
            form, theta = RATED[name], self.thetas[name]
            means.append(losses(form, theta, logs) + across @ self._missed[name])
            rows, spread = self._parameters(use, name)
            slopes = slopes_of(form, theta, logs, self.points.design) - across @ rows
            told.append((left + slopes @ spread @ slopes.T) * wider**2)
        weights = [*shares.values()]
        noise = self._noise(logs, np.tensordot(weights, np.array(means), 1))
        parts = zip(weights, means, told, strict=True)
        return tuple(Posterior(*part, noise) for part in parts)

    def _noise(self, logs: np.ndarray, loss: np.ndarray) -> np.ndarray:
        """[m] nats, standard deviation of a single run at points of these expected losses [m]."""
        sizes = np.exp(logs[:, :2] + self.points.centres[:2])
        pairs, which = np.unique(sizes, axis=0, return_inverse=True)
        least = np.array([self.valley(*pair)[2].min() for pair in pairs.tolist()])
        wider = np.array([self.widened[self.use(*pair)] for pair in pairs.tolist()])
        return unseen(loss - least[which.ravel()]) * wider[which.ravel()]

    def predictions(
        self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike, lr: ArrayLike, level: float
    ) -> list[Estimate]:
        """Of single runs [m], each with its interval; arguments broadcast."""
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
        design = self.points.design
        return {n: design.loss - losses(RATED[n], x, design.logs) for n, x in self.thetas.items()}

    def _seen(self, use: str) -> Seen:
        """The rows, for a use; made once something is asked, so that a fit is read fast."""
        departure, logs = self.departures[use], self.points.design.logs
        if departure not in self._kept:
            noise = scatter(self.points.excess, self.points.count)
            self._kept[departure] = Seen(departure, logs, precision_of(departure, logs, noise))
        return self._kept[departure]

    def _told(self, use: str) -> np.ndarray:
        """[n], what the rows' errors about the mean of the forms are worth elsewhere."""
        if ("told", use) not in self._kept:
            missed = sum(w * self._missed[n] for n, w in self.weights[use].items())
            self._kept["told", use] = self._seen(use).precision @ missed
        return self._kept["told", use]

    def _parameters(self, use: str, name: str) -> tuple[np.ndarray, np.ndarray]:
        """A form's slopes at the rows [n, P], and the covariance of its parameters."""
        if (use, name) not in self._kept:
            design = self.points.design
            slopes = slopes_of(RATED[name], self.thetas[name], design.logs, design)
            spread = self._seen(use).spread(slopes, prior_of(RATED[name]))
            self._kept[use, name] = slopes, spread
        return self._kept[use, name]

    @cached_property
    def _kept(self) -> dict[Any, Any]:
        return {}

    @cached_property
    def grid(self) -> tuple[np.ndarray, np.ndarray]:
        """Batches and rates, from an octave below what was tried to one above."""
        b, e = self.points.logs[:, 2], self.points.logs[:, 3]
        ends = ((x.min() - BEYOND, x.max() + BEYOND) for x in (b, e))
        batch, lr = (np.linspace(*at, n) for at, n in zip(ends, (BATCHES, RATES), strict=True))
        return np.exp(batch), np.exp(lr)

    def valley(self, params: float, tokens: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Batches [b], rates [r] and losses [b, r] over a grid of what was tried, at N and D."""
        key = round(np.log(params), 9), round(np.log(tokens), 9)
        if key not in self._kept:
            batch, lr = self.grid
            self._kept[key] = self.losses(params, tokens, batch[:, None], lr)
        return *self.grid, self._kept[key]

    def best_lr(self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike) -> np.ndarray:
        """The rates of least loss, an end of the grid where it falls on; arguments broadcast."""
        sizes = np.broadcast_arrays(*(np.asarray(x, float) for x in (params, tokens, batch)))
        N, D, B = (x.ravel()[:, None] for x in sizes)
        e = np.log(self.grid[1])
        loss = self.losses(N, D, B, np.exp(e))
        return np.exp(vertex(e, loss)).reshape(sizes[0].shape)

    def tuned(self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike) -> np.ndarray:
        """Losses at the best rate of each; the arguments broadcast."""
        return self.losses(params, tokens, batch, self.best_lr(params, tokens, batch))

    def best(self, params: float, tokens: float) -> tuple[float, float]:
        """The batch in tokens and the rate of least loss at N and D."""
        batch, _, loss = self.valley(params, tokens)
        tuned = loss.min(axis=1)
        b = float(np.exp(vertex(np.log(batch), tuned)))
        return b, float(self.best_lr(params, tokens, b))
