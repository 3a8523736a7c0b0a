"""A form fitted to a table: what it says at any model, budget and batch, and how surely.

The best batch is found on a grid of log B, refined by the parabola through its least three values:
any form has one (derived here).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bss.laws.final_loss.forms import FORMS, Form
from bss.laws.fitting.estimate import Estimate, interval

GRID = 400
SEARCH = np.log(100.0)  # how far from the batches measured a best one is looked for
ALIKE = (0.003, 0.005)


@dataclass(frozen=True)
class Indifference:
    """Batches in tokens whose loss is within so many nats of the best; None where it has no end."""

    low: float | None
    high: float | None
    nats: float


@dataclass(frozen=True)
class FittedForm:
    """A form with its parameters, and what other tables of the kind would have given.

    Attributes:
        form: its name.
        width: of the rows' weights.
        reference: N, D and B in tokens, about which its logarithms are.
        batches: the smallest and largest measured, in tokens.
        theta: [P], its parameters, sizes as logarithms.
        draws: [R, P], of the bootstrap.
        scatter: standard deviation of the losses about it, in nats, lack of fit included.
        parameters: each with its interval, at the reference; those that no row tells have a note.
    """

    form: str
    width: float
    reference: tuple[float, float, float]
    batches: tuple[float, float]
    theta: np.ndarray
    draws: np.ndarray
    scatter: float
    parameters: dict[str, Estimate]

    @property
    def idea(self) -> Form:
        """The form itself."""
        return FORMS[self.form]

    def losses(self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike) -> np.ndarray:
        """Nats at N, D and B in tokens, which broadcast."""
        return np.asarray(self._losses(self.theta, params, tokens, batch))

    def loss(
        self, params: float, tokens: float, batch: float, scatter: float, level: float
    ) -> Estimate:
        """The loss with the interval of a new run: parameters, and a scatter in nats."""
        spread = self._losses(self.draws.T, params, tokens, batch)
        noise = np.random.default_rng(0).standard_normal((50, 1)) * scatter
        value = float(self.losses(params, tokens, batch))
        return interval(value, (spread + noise).ravel(), level=level)

    def best_batch(
        self, params: float, tokens: float, level: float
    ) -> tuple[Estimate, tuple[Indifference, ...]]:
        """B_opt in tokens with its interval, and the batches that are as good, by `ALIKE`."""
        b, loss, best = self.valley(params, tokens)
        spread = self.valley(params, tokens, self.draws)[2]
        alike = []
        for nats in ALIKE:
            near = np.flatnonzero(loss <= loss.min() + nats)
            above = loss - loss.min() - nats
            low, high = _wall(b, above, near[0], -1), _wall(b, above, near[-1], 1)
            alike.append(Indifference(low, high, nats))
        return interval(float(best), spread, level=level), tuple(alike)

    def given_up(self, params: float, tokens: float, batch: np.ndarray) -> np.ndarray:
        """[n], the loss of batches [n] in tokens above that of the best, in nats."""
        return self.losses(params, tokens, batch) - self.valley(params, tokens)[1].min()

    def valley(
        self, params: float, tokens: float, theta: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Batches [G] in tokens, their losses, and the best batch; [R, G] and [R] for θ [R, P].

        The best is 0 or infinite where the loss falls to the end of the search.
        """
        ends = np.log(self.batches)
        b = np.linspace(ends[0] - SEARCH, ends[1] + SEARCH, GRID)
        parts = np.moveaxis(self.theta if theta is None else theta, -1, 0)[..., None]
        loss = self._losses(parts, params, tokens, np.exp(b))
        at = loss.argmin(axis=-1)
        inner = np.clip(at, 1, GRID - 2)[..., None] + np.array([-1, 0, 1])
        left, middle, right = np.moveaxis(np.take_along_axis(loss, inner, -1), -1, 0)
        bend = left - 2 * middle + right
        shift = np.clip(np.where(bend > 0, (left - right) / np.maximum(2 * bend, 1e-300), 0), -1, 1)
        best = np.exp(b[inner[..., 1]] + shift * (b[1] - b[0]))
        best = np.where(at == 0, 0.0, np.where(at == GRID - 1, np.inf, best))
        return np.exp(b), loss, best

    def _losses(self, parts: Any, params: Any, tokens: Any, batch: Any) -> np.ndarray:
        sizes = zip((params, tokens, batch), self.reference, strict=True)
        logs = (np.log(np.asarray(size, float) / unit) for size, unit in sizes)
        return np.asarray(self.idea.loss(parts, *logs))


def _wall(batch: np.ndarray, above: np.ndarray, i: int, step: int) -> float | None:
    """The batch at which a valley's wall is crossed, from the last point below it."""
    j = i + step
    if not 0 <= j < len(batch):
        return None
    share = above[i] / (above[i] - above[j])
    return float(batch[i] * (batch[j] / batch[i]) ** share)
