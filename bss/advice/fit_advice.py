"""What a fit says of constant batches at one model and budget, whatever its kind."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bss.laws.base import UNIDENTIFIED, Estimate
from bss.laws.final_loss.best import TOLERANCES

FAR = 10.0
"""Times outside of what was fitted, or tested, from which nothing is a voice: nobody has measured
this (derived here)."""
FAREST = 125.0
"""The same of the published final losses, whose interval widens with the distance."""
ALIKE, _ = TOLERANCES
"""Nats above the best up to which a batch is as good, as in a table fit's indifference."""


ONE_MODEL = "the fit is of one model, whose size it does not hold: is it that of --params?"


def nothing_known(batch: float) -> float | None:
    """The loss of a batch where none is told."""
    return None


@dataclass(frozen=True)
class FitAdvice:
    """Batches in tokens, losses in nats.

    Attributes:
        name: what was fitted to what.
        best: B_opt with its interval; without a value the reason.
        low, high: the batches as good as the best; None where there is no end.
        lost: by batch, the loss above that of the best; None where it is not known.
        extrapolated: B_opt by a fit that is evaluated beyond what it was tested for.
        distance: how many times beyond.
        critical: the critical batch, of a fit that tells no other.
        measured: whether runs of this model and budget are behind it.
        runs: which further runs would narrow it, most wanted first.
        notes: what must be said with it.
    """

    name: str
    best: Estimate
    low: float | None = None
    high: float | None = None
    lost: Callable[[float], float | None] = nothing_known
    extrapolated: float | None = None
    distance: float = 1.0
    critical: Estimate | None = None
    measured: bool = False
    runs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def of_losses(
    name: str, batch: Sequence[float], loss: Sequence[float], level: float, notes: Sequence[str]
) -> FitAdvice:
    """What losses predicted at ascending batches [n] say; one at an end is a bound, no best batch.

    The best is the least on the grid of batches. Beyond the ends nothing is known.
    """
    x, y = np.log(np.asarray(batch, float)), np.asarray(loss, float)
    least, last = int(np.argmin(y)), len(y) - 1
    best = float(batch[least])
    above = y - y[least]

    def lost(size: float) -> float | None:
        at = math.log(size)
        inside = x[0] - 1e-9 <= at <= x[-1] + 1e-9
        return float(np.interp(at, x, above)) if inside else None

    if least in (0, last):
        small, side = least == 0, "smaller" if least == 0 else "larger"
        sizes = (best / 2, best / 4) if small else (2 * best, 4 * best)
        run = f"two {side} batches, as {sizes[0]:.3g} and {sizes[1]:.3g} tokens"
        end = "smallest" if small else "largest"
        why = f"{UNIDENTIFIED}the {end} batch fitted is the best: a bound, not B_opt"
        ends = (None, best) if small else (best, None)
        none = Estimate(None, *ends, level=level, note=why)
        return FitAdvice(name, none, measured=True, runs=(run,), notes=tuple(notes))
    near = np.flatnonzero(above <= ALIKE)
    low = None if near[0] == 0 else _crossing(x, above, near[0], -1)
    high = None if near[-1] == last else _crossing(x, above, near[-1], 1)
    return FitAdvice(
        name, Estimate(best, level=level), low, high, lost, measured=True, notes=tuple(notes)
    )


def _crossing(x: np.ndarray, above: np.ndarray, i: int, step: int) -> float:
    """The batch at which the loss is `ALIKE` above the best, from the last one below it."""
    share = (ALIKE - above[i]) / (above[i + step] - above[i])
    return float(np.exp(x[i] + share * (x[i + step] - x[i])))
