"""Forms fitted to a table, and their mean: what it says at any model, budget and batch.

The best batch is found on a grid of log B, refined by the parabola through its least three values:
any form has one (derived here).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bss.laws.final_loss.forms import FORMS, Form
from bss.laws.fitting.estimate import Alike, Estimate, interval

GRID = 400
SEARCH = np.log(100.0)  # how far from the batches measured a best one is looked for
ALIKE = (0.003, 0.005)


@dataclass(frozen=True)
class FittedForm:
    """A form with its parameters, and what other tables of the kind would have given.

    Attributes:
        form: its name.
        reference: N, D and B in tokens, about which its logarithms are.
        theta: [P], its parameters, sizes as logarithms.
        draws: [R, P], of the bootstrap.
        scatter: standard deviation of the losses about it, in nats, lack of fit included.
        parameters: each with its interval, at the reference; those that no row tells have a note.
    """

    form: str
    reference: tuple[float, float, float]
    theta: np.ndarray
    draws: np.ndarray
    scatter: float
    parameters: dict[str, Estimate]

    @property
    def idea(self) -> Form:
        """The form itself."""
        return FORMS[self.form]

    def losses(self, theta: Any, params: Any, tokens: Any, batch: Any) -> np.ndarray:
        """Nats at N, D and B in tokens, by parameters [P, ...]; all broadcast."""
        sizes = zip((params, tokens, batch), self.reference, strict=True)
        logs = (np.log(np.asarray(size, float) / unit) for size, unit in sizes)
        return np.asarray(self.idea.loss(theta, *logs))


@dataclass(frozen=True)
class MeanLaw:
    """The mean of fitted forms, by weights that sum to 1, for one use.

    Attributes:
        forms: those with a weight.
        weights: theirs.
        batches: the smallest and largest measured, in tokens.
    """

    forms: tuple[FittedForm, ...]
    weights: tuple[float, ...]
    batches: tuple[float, float]

    @classmethod
    def of(
        cls, forms: Mapping[str, FittedForm], weights: Mapping[str, float], batches: Any
    ) -> "MeanLaw":
        """Of forms by name, those that have a weight."""
        some = {name: weight for name, weight in weights.items() if weight > 0}
        return cls(tuple(forms[name] for name in some), tuple(some.values()), batches)

    @property
    def text(self) -> str:
        """The forms with their weights, the heaviest first."""
        if len(self.forms) == 1:
            return self.forms[0].form
        parts = sorted(zip(self.weights, (one.form for one in self.forms), strict=True))[::-1]
        return ", ".join(f"{name} {weight:.0%}" for weight, name in parts)

    @property
    def heaviest(self) -> FittedForm:
        """The form of the largest weight."""
        return self.forms[int(np.argmax(self.weights))]

    @property
    def scatter(self) -> float:
        """Of the losses, in nats, by the forms' weights."""
        return float(np.dot(self.weights, [one.scatter for one in self.forms]))

    def losses(self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike) -> np.ndarray:
        """Nats at N, D and B in tokens, which broadcast."""
        each = [one.losses(one.theta, params, tokens, batch) for one in self.forms]
        return np.tensordot(self.weights, np.array(each), 1)

    @cached_property
    def _draws(self) -> list[np.ndarray]:
        """Of each form as many as its weight says."""
        count = max(len(one.draws) for one in self.forms)
        counts = [max(round(weight * count), 1) for weight in self.weights]
        return [one.draws[:some] for one, some in zip(self.forms, counts, strict=True)]

    def drawn(self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike) -> np.ndarray:
        """[R, ...], losses by draws of all forms, which hold the spread between the forms."""
        batch = np.asarray(batch, float)
        shape = (-1, *(1,) * batch.ndim)
        each = [
            one.losses(draws.T.reshape(draws.shape[1], *shape), params, tokens, batch)
            for one, draws in zip(self.forms, self._draws, strict=True)
        ]
        return np.concatenate(each)

    def loss(
        self, params: float, tokens: float, batch: float, scatter: float, level: float
    ) -> Estimate:
        """The loss with the interval of a new run: parameters, forms, and a scatter in nats."""
        noise = np.random.default_rng(0).standard_normal((50, 1)) * scatter
        value, spread = self.losses(params, tokens, batch), self.drawn(params, tokens, batch)
        return interval(float(value), (spread + noise).ravel(), level=level)

    def given_up(self, params: float, tokens: float, batch: np.ndarray) -> np.ndarray:
        """[n], the loss of batches [n] in tokens above that of the best, in nats."""
        return self.losses(params, tokens, batch) - self.valley(params, tokens)[1].min()

    def valley(self, params: float, tokens: float) -> tuple[np.ndarray, np.ndarray, float]:
        """Batches [G] in tokens, their losses, and the best batch; 0 or inf where it has no end."""
        loss = self.losses(params, tokens, self._grid)
        return self._grid, loss, float(_least(self._grid, loss))

    def best(self, params: float, tokens: float) -> tuple[float, np.ndarray]:
        """The best batch in tokens, and those of draws of all forms [R]."""
        drawn = self.drawn(params, tokens, self._grid)
        return self.valley(params, tokens)[2], _least(self._grid, drawn)

    def best_of_forms(self, params: float, tokens: float) -> np.ndarray:
        """[F], the best batch by each form."""
        each = [one.losses(one.theta, params, tokens, self._grid) for one in self.forms]
        return np.array([_least(self._grid, losses) for losses in each])

    def alike(self, params: float, tokens: float, at: float) -> tuple[Alike, ...]:
        """The batches as good as the best one `at`, by `ALIKE`; none by a law without a best."""
        batch, loss, best = self.valley(params, tokens)
        if not 0 < best < np.inf:
            return ()
        batch, spans = batch * (at / best), []
        for nats in ALIKE:
            above = loss - loss.min() - nats
            near = np.flatnonzero(above <= 0)
            low, high = _wall(batch, above, near[0], -1), _wall(batch, above, near[-1], 1)
            spans.append(Alike(low, high, nats))
        return tuple(spans)

    @cached_property
    def _grid(self) -> np.ndarray:
        low, high = np.log(self.batches)
        return np.exp(np.linspace(low - SEARCH, high + SEARCH, GRID))


def vertex(x: np.ndarray, loss: np.ndarray) -> np.ndarray:
    """[...], where losses [..., n] at ascending x [n] are least, by the parabola through three."""
    at = loss.argmin(axis=-1)
    inner = np.clip(at, 1, len(x) - 2)[..., None] + np.array([-1, 0, 1])
    left, middle, right = np.moveaxis(np.take_along_axis(loss, inner, -1), -1, 0)
    bend = left - 2 * middle + right
    shift = np.where(bend > 0, (left - right) / np.maximum(2 * bend, 1e-300), 0.0)
    found = x[inner[..., 1]] + np.clip(shift, -1, 1) * (x[1] - x[0])
    return np.where((at == 0) | (at == len(x) - 1), x[at], found)


def _least(batch: np.ndarray, loss: np.ndarray) -> np.ndarray:
    """The batch [...] where losses [..., G] are least; 0 or infinite at an end of the grid."""
    at, best = loss.argmin(axis=-1), np.exp(vertex(np.log(batch), loss))
    return np.where(at == 0, 0.0, np.where(at == len(batch) - 1, np.inf, best))


def _wall(batch: np.ndarray, above: np.ndarray, i: int, step: int) -> float | None:
    """The batch at which a valley's wall is crossed, from the last point below it."""
    j = i + step
    if not 0 <= j < len(batch):
        return None
    share = above[i] / (above[i] - above[j])
    return float(batch[i] * (batch[j] / batch[i]) ** share)
