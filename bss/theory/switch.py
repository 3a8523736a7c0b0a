"""One switch from a small batch to a large one, in the exact recursion: when, and what follows.

Wang et al. (arXiv 2602.14208): on hard tasks the best switch is late, and D − P* is a power of the
budget D. After a switch the loss quickly approaches the large batch's at equal steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bss.errors import InputError, check
from bss.stats import Slope, slope
from bss.theory.regression import Propagator, Task, advance, coordinates, evolve, propagator
from bss.theory.search import minimum

GRID = 400
ASYMPTOTIC = 2**16  # budgets from which exponents are measured


@dataclass(frozen=True)
class TwoStage:
    """SGD with batch `first` and then `last`, in samples, and the propagators of both."""

    task: Task
    first: int
    last: int
    small: Propagator
    large: Propagator


def two_stage(task: Task, rate: float, first: int, last: int) -> TwoStage:
    """Diagonalise both stages; the batch size must grow, and the LR must be stable at both."""
    if not 1 <= first < last:
        raise InputError(
            f"batches: from {first} to {last}; write a minimum of at least 1 below the maximum"
        )
    small = propagator(task, rate, first)
    large = propagator(task, rate, last)
    return TwoStage(task, first, last, small, large)


@dataclass(frozen=True)
class Switch:
    """The best switch for a budget.

    Attributes:
        data: the budget D, in samples.
        switch_data: P*, samples before the switch, a real number.
        risk: excess risk at the end.
    """

    data: int
    switch_data: float
    risk: float

    @property
    def fraction(self) -> float:
        """P*/D."""
        return self.switch_data / self.data


def switch_risks(run: TwoStage, data: int, after: np.ndarray) -> np.ndarray:
    """Final excess risk when `after` [N] of the `data` samples come after the switch.

    Steps are real numbers here, so that the risk is a smooth function of the switch point.
    """
    before = evolve(run.small, coordinates(run.small, run.task.target), (data - after) / run.first)
    start = coordinates(run.large, before @ run.small.vectors.T)
    return evolve(run.large, start, after / run.last) @ run.large.readout


def best_switch(run: TwoStage, data: int) -> Switch:
    """Return the switch point with the lowest final risk, P = 0 (the large batch throughout)
    included.

    A grid in log(D − P), then a continuous search around its best point.

    Raises:
        InputError: the budget does not hold one step of the large batch.
    """
    check(data > run.last, "data", data, f"more samples than the largest batch, {run.last}")
    grid = np.linspace(np.log(run.last / data), 0.0, GRID)

    def risks(log_share: Any) -> np.ndarray:
        return switch_risks(run, data, data * np.exp(log_share))

    place, risk = minimum(lambda log_share: float(risks(log_share)), grid, risks(grid))
    return Switch(data, data - float(data * np.exp(place)), risk)


def switch_exponent(switches: Sequence[Switch]) -> Slope | None:
    """Return the exponent of D − P* in D, over budgets from 2^16 up; None for fewer than three."""
    used = [s for s in switches if s.data >= ASYMPTOTIC]
    if len({s.data for s in used}) < 3:
        return None
    data = np.array([s.data for s in used], np.float64)
    return slope(data, data - [s.switch_data for s in used])


def catch_up_gap(run: TwoStage, switch_step: float, delays: np.ndarray) -> np.ndarray:
    """Excess risk above the large batch's at equal steps, `delays` [N] steps after the switch.

    Both runs follow one linear map after the switch. So the gap is computed from its powers,
    without the difference of two losses (derived here).
    """
    start = run.task.target
    small = advance(run.small, start, switch_step)
    large = advance(run.large, start, switch_step)
    gap = coordinates(run.large, small - large)
    decay = np.exp(np.asarray(delays, np.float64)[:, None] * run.large.log_decay)
    return (decay * gap) @ run.large.readout


def catch_up_time(run: TwoStage, rate: float, switch_step: float) -> float:
    """Steps after which the gap is down to the signal left at the switch, ≂ t_s^(s/(1 − 1/β)).

    The signal is the excess risk of gradient descent without any noise (derived here).
    """
    task = run.task
    left = (1 - rate * task.eigenvalues) ** (2 * switch_step) * task.target
    signal = 0.5 * left @ task.eigenvalues
    delays = np.geomspace(1, 1e3 * max(switch_step, 1.0), 2000)
    gaps = catch_up_gap(run, switch_step, delays)
    return float(np.exp(np.interp(-np.log(signal), -np.log(gaps), np.log(delays))))
