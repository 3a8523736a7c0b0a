"""The best batch size of one model and token budget by a fit of any kind."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bss.laws.base import UNIDENTIFIED, Estimate
from bss.laws.final_loss.best import TOLERANCES

TOLERANCE, _ = TOLERANCES
"""Nats above the optimum up to which a batch size is within tolerance, as in a table fit."""


@dataclass(frozen=True)
class FitAdvice:
    """The optimum, and losses relative to it at multiples of it.

    Attributes:
        best: the optimum in tokens with its interval; without a value the reason, and a bound if
            there is one.
        factors: ascending multiples of the optimum [n].
        excess: losses there [n], in nats above the optimum.
        warnings: what a reader must know.
        slope: −dL/dlog D at the optimum, in nats, which converts losses to tokens; None if unknown.
    """

    best: Estimate
    factors: np.ndarray = field(default_factory=lambda: np.empty(0))
    excess: np.ndarray = field(default_factory=lambda: np.empty(0))
    warnings: tuple[str, ...] = ()
    slope: float | None = None

    def loss_at(self, factor: float) -> float | None:
        """Return the excess loss at a multiple of the optimum; None if it is unknown."""
        if not self.factors.size or not self.factors[0] <= factor <= self.factors[-1]:
            return None
        return float(np.interp(np.log(factor), np.log(self.factors), self.excess))

    def tolerance(self) -> tuple[float | None, float | None]:
        """Return the multiples of the optimum between which the excess loss is within tolerance.

        An end is None if the known losses do not reach the tolerance there.
        """
        x = np.log(self.factors)
        y = self.excess
        low = _crossing(-x[x <= 0][::-1], y[x <= 0][::-1])
        return low and 1 / low, self.largest_within(TOLERANCE)

    def largest_within(self, nats: float) -> float | None:
        """Return the multiple above the optimum at which the excess loss reaches `nats`.

        None if the known losses do not reach it.
        """
        above = self.factors >= 1
        return _crossing(np.log(self.factors[above]), self.excess[above], nats)


def _crossing(x: np.ndarray, y: np.ndarray, nats: float = TOLERANCE) -> float | None:
    """Return the first e^x at which y reaches a level, of ascending x from 0."""
    above = np.flatnonzero(y > nats)
    if not above.size:
        return None
    part = slice(max(above[0] - 1, 0), above[0] + 1)
    return float(np.exp(np.interp(nats, y[part], x[part])))


def of_losses(
    batch: Sequence[float], loss: Sequence[float], level: float, warnings: Sequence[str]
) -> FitAdvice:
    """Return the best of predicted losses at ascending batch sizes [n]; a bound at an end."""
    least = int(np.argmin(loss))
    best = float(batch[least])
    if least in (0, len(loss) - 1):
        end = "smallest" if least == 0 else "largest"
        why = f"{UNIDENTIFIED}the {end} batch fitted is the best: a bound, not B_opt"
        low, high = (None, best) if least == 0 else (best, None)
        return FitAdvice(Estimate(None, low, high, level, why), warnings=tuple(warnings))
    factors = np.asarray(batch, float) / best
    excess = np.asarray(loss, float) - loss[least]
    return FitAdvice(Estimate(best, level=level), factors, excess, tuple(warnings))
