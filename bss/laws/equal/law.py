"""The loss at a step count and a batch size, from runs of equal time, and its best batch size.

L = L_0 + A·S_B^-α with S_B = S/(1 + B_c/B): S_B steps of a large batch are worth S steps of batch B
(McCandlish et al., arXiv 1812.06162). In a given time, S = time/t(B). The best batch has the most
S_B, so it depends on B_c and on the seconds per step t(B) alone (derived here).
"""

from dataclasses import dataclass

import numpy as np

from bss.errors import InputError
from bss.laws.base import DRAWS, BestBatch, bounded, interval
from bss.laws.step_time import GRID, StepTime

CURVATURES = np.geomspace(0.1, 2.0, 16)  # α: published exponents of steps are .3 to 1
REACH = 30.0  # times the batches measured, to which B_c is searched
CRITICAL = 61  # values of B_c that are tried, 15% apart
PARAMETERS = 4
FORM_SD = 0.035  # of log B_c, for the form of the law: 90% intervals then hold 83 to 97% of sets of
# planted losses, also of sums of a term in steps and one in tokens
MISSES = 3.0  # times the noise of a loss: by more the law does not fit


@dataclass(frozen=True)
class StepLaw:
    """The law of one model size.

    Attributes:
        critical: [1 + R], B_c of the fit and of its refits.
        step_time: seconds per step.
        batch: [n], batch sizes measured.
        rmse: root mean square residual in nats.
    """

    critical: np.ndarray
    step_time: StepTime
    batch: np.ndarray
    rmse: float

    def best(self, level: float, unit: str) -> BestBatch:
        """Return the best batch size in a given time among those measured."""
        grid = np.geomspace(self.batch.min(), self.batch.max(), GRID)
        form = FORM_SD * np.random.default_rng(0).standard_normal(len(self.critical))
        form[0] = 0.0  # the estimate is that of the law
        critical = self.critical * np.exp(form)
        worth = self.step_time(grid)[:, None] * (1 + critical / grid[:, None])
        best, *refits = grid[worth.argmin(axis=0)].tolist()
        draws = np.array(refits)
        found = interval(best, draws, level=level)
        ends = (float(grid[0]), float(grid[-1]))
        one = BestBatch(found.value, found.low, found.high, level, method="law")
        return bounded(one, draws, ends, unit=unit)


def fit_step_law(
    batch: np.ndarray, steps: np.ndarray, seconds: np.ndarray, loss: np.ndarray, noise: np.ndarray,
    seed: int,
) -> StepLaw:  # fmt: skip
    """Fit the law.

    Args:
        batch: [n], of each run.
        steps: [n], taken.
        seconds: [n], that they took.
        loss: [n] in nats.
        noise: [n], standard deviations of the losses.
        seed: of the redrawn losses.

    Raises:
        InputError: If there are too few runs, steps or times are unknown, larger batches take less
            time per step, or the law does not fit.
    """
    import pandas as pd

    if not (np.isfinite(steps) & np.isfinite(seconds)).all():
        raise InputError("steps per second are unknown; add the column steps")
    if len(batch) <= PARAMETERS:
        raise InputError(f"{len(batch)} losses for the {PARAMETERS} parameters of the law")
    times = pd.DataFrame({"batch": batch, "seconds": seconds / steps})
    step_time = StepTime.from_table(times, "times")
    tried = np.geomspace(batch.min() / REACH, batch.max() * REACH, CRITICAL)
    redrawn = noise * np.random.default_rng(seed).standard_normal((DRAWS, len(loss)))
    targets = np.concatenate([loss[None], loss + redrawn])
    best, critical = np.full((2, len(targets)), np.inf)
    for one in tried:
        for power in CURVATURES:
            powers = (steps / (1 + one / batch)) ** -power
            squares = _squares(powers, targets, 1 / noise)
            better = squares < best
            critical[better] = one
            best = np.minimum(best, squares)
    rmse = float(np.sqrt(best[0] / len(loss))) * float(noise.mean())
    if rmse > MISSES * noise.mean():
        raise InputError(f"S = time/t(B) does not explain the losses, rms error {rmse:.2g} nats")
    return StepLaw(critical, step_time, batch, rmse)


def _squares(powers: np.ndarray, targets: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return weighted squares [R] of targets [R, n] about L_0 + A·powers [n], with A >= 0."""
    centred = powers - np.average(powers, weights=weight**2)
    rest = targets - np.average(targets, axis=1, weights=weight**2)[:, None]
    slope = (rest * weight**2) @ centred / (centred**2 @ weight**2)
    rest = rest - np.maximum(slope, 0.0)[:, None] * centred
    return (rest**2) @ weight**2
