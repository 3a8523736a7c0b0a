"""The optimal batch schedule under a data budget, by the law's functional, in closed form.

Wang et al. (arXiv 2602.14208): at constant LR η, with u the remaining intrinsic time,

    minimise (1 + T)^−s + ησ² ∫₀ᵀ (1 + u)^−q / b(u) du,  q = 2 − 1/β,
    over T and B_min ≤ b ≤ B_max, with ∫₀ᵀ b du = ηD.

For a given T the optimum is water-filling, b = C·sqrt(kernel) clipped to the bounds. Turned round,
each C has one T that spends the budget, and every integral is elementary; so one search over C
finds the optimum (derived here). The batch size stays at B_min while C·sqrt(kernel) is below it. So
on hard tasks it grows only at the end, on easy tasks throughout.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bss.errors import InputError, check
from bss.schedules.batch import BatchSchedule
from bss.theory.exponents import regime
from bss.theory.search import minimum

GRID = 400
Reals = np.ndarray | float


@dataclass(frozen=True)
class Budget:
    """A task under the law, and what may be spent on it.

    A value out of its range, or data that allow no step, is an InputError.

    Attributes:
        source: s.
        capacity: β.
        data: D, in samples.
        lr: η, the LR (its maximum, if the LR is optimised too).
        noise: σ², positive: without noise there is nothing to optimise.
        min_batch: B_min, at least 1.
        max_batch: B_max; infinite for none.
    """

    source: float
    capacity: float
    data: float
    lr: float = 0.1
    noise: float = 1.0
    min_batch: float = 1
    max_batch: float = math.inf

    def __post_init__(self) -> None:
        regime(self.source, self.capacity)
        for field in ("lr", "noise"):
            value = getattr(self, field)
            check(0 < value < math.inf, field, value, "a positive number")
        if not 1 <= self.min_batch <= self.max_batch:
            raise InputError(
                f"batches: from {self.min_batch:g} to {self.max_batch:g}; write a minimum of at "
                "least 1, not above the maximum"
            )
        if not self.min_batch <= self.data < math.inf:
            raise InputError(
                f"data: {self.data:g} samples hold no step of the minimum batch, "
                f"{self.min_batch:g}; raise data or lower the minimum"
            )

    @property
    def bounded(self) -> bool:
        """Whether there is a B_max."""
        return self.max_batch < math.inf

    @property
    def power(self) -> float:
        """1 − 1/(2β): the optimal batch falls as (1 + u)^−power before the end."""
        return 1 - 0.5 / self.capacity


@dataclass(frozen=True)
class OptimalSchedule:
    """The optimal schedule.

    Attributes:
        budget: The budget that the schedule spends.
        multiplier: C, the last batch when nothing bounds it from above.
        horizon: T*, in intrinsic time.
        risk: the law's functional.
    """

    budget: Budget
    multiplier: float
    horizon: float
    risk: float

    @property
    def steps(self) -> float:
        """Steps of the horizon."""
        return self.horizon / self.budget.lr

    @property
    def growth_fraction(self) -> float:
        """(T* − T₁*)/T*, the part of the horizon in which the batch is above the minimum."""
        return min(1.0, float(time_left(self.budget, self.multiplier)) / self.horizon)

    @property
    def peak_batch(self) -> float:
        """The last batch."""
        return min(max(self.multiplier, self.budget.min_batch), self.budget.max_batch)

    @property
    def growth_data(self) -> float:
        """Samples consumed when the batch leaves the minimum; 0 if it starts above it."""
        left = self.growth_fraction * self.horizon
        spent = float(data_left(self.budget, self.multiplier, left))
        return 0.0 if self.growth_fraction == 1 else self.budget.data - spent


def time_left(budget: Budget, multiplier: Reals, batch: float | None = None) -> np.ndarray:
    """Intrinsic time u before the end at which C (1 + u)^−power is at a batch, B_min by default."""
    level = budget.min_batch if batch is None else batch
    return np.maximum((np.asarray(multiplier) / level) ** (1 / budget.power) - 1, 0.0)


def data_left(budget: Budget, multiplier: Reals, left: Reals) -> np.ndarray:
    """Samples consumed in the last `left` intrinsic time of the schedule of a multiplier."""
    clipped, growing = _parts(budget, multiplier, left)
    rest = 1 - budget.power
    grown = multiplier * ((1 + growing) ** rest - (1 + clipped) ** rest) / rest
    capped = np.where(clipped > 0, budget.max_batch, 0.0) * clipped if budget.bounded else 0.0
    return (capped + grown + budget.min_batch * (left - growing)) / budget.lr


def optimum(budget: Budget) -> OptimalSchedule:
    """Return the schedule with the lowest risk that spends the budget."""
    unbounded = budget.lr * budget.data
    highest = budget.max_batch * (1 + unbounded / budget.min_batch) ** budget.power
    lowest = math.log(budget.min_batch)
    grid = np.linspace(lowest, max(math.log(min(unbounded, highest)), lowest + 1), GRID)
    place, _ = minimum(lambda x: float(_risk(budget, np.exp(x))), grid, _risk(budget, np.exp(grid)))
    multiplier = math.exp(place)
    horizon = float(_horizon(budget, multiplier))
    risk = float(_risk(budget, multiplier))
    return OptimalSchedule(budget, multiplier, horizon, risk)


def constant_optimum(budget: Budget) -> tuple[float, float]:
    """Return the best fixed batch size within the bounds, and its risk."""
    largest = min(budget.max_batch, budget.data)

    def risk(log_batch: float) -> float:
        return schedule_risk(budget, [(budget.data, math.exp(log_batch))])

    grid = np.linspace(math.log(budget.min_batch), math.log(largest), GRID)
    place, lowest = minimum(risk, grid, np.array([risk(log_batch) for log_batch in grid]))
    return math.exp(place), lowest


def schedule_risk(budget: Budget, stretches: Sequence[tuple[float, float]]) -> float:
    """Return the law's functional for (samples, batch) stretches in order."""
    times = np.array([budget.lr * samples / batch for samples, batch in stretches])
    left = np.append(np.cumsum(times[::-1])[::-1], 0.0)
    memory = 1 - 1 / budget.capacity
    kernel = ((1 + left[1:]) ** -memory - (1 + left[:-1]) ** -memory) / memory
    noise = kernel @ np.array([1 / batch for _, batch in stretches])
    return float((1 + left[0]) ** -budget.source + budget.lr * budget.noise * noise)


def batch_schedule(best: OptimalSchedule, stages: int) -> BatchSchedule:
    """Return the optimum in at most `stages` stages of whole batches.

    Batches are evenly spaced in log, and a switch falls where the ideal batch is their geometric
    middle. Starts are exact: what counts on hard tasks is the little data that is left.
    """
    budget = best.budget
    total = int(best.budget.data)
    first = max(float(_ideal(best, best.horizon)), budget.min_batch)
    levels = np.geomspace(first, best.peak_batch, stages) if stages > 1 else [first]
    batches = sorted({max(round(level), math.ceil(budget.min_batch)) for level in levels})
    starts = [0]
    used = batches[:1]
    for before, after in itertools.pairwise(batches):
        left = float(time_left(budget, best.multiplier, math.sqrt(before * after)))
        start = total - round(float(data_left(budget, best.multiplier, left)))
        if starts[-1] < start <= total - after:
            starts.append(start)
            used.append(after)
    return BatchSchedule(tuple(starts), tuple(used))


def sampled(best: OptimalSchedule, points: int = 500) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """1 + intrinsic time left, batch, and share of the data consumed, from the start to the end."""
    budget = best.budget
    left = np.geomspace(1 + best.horizon, 1, points) - 1
    left = np.maximum(np.sort(np.append(left, time_left(budget, best.multiplier)))[::-1], 0.0)
    left = left[left <= best.horizon]
    share = 1 - data_left(budget, best.multiplier, left) / budget.data
    return 1 + left, _ideal(best, left), share


def _ideal(best: OptimalSchedule, left: Reals) -> np.ndarray:
    budget = best.budget
    free = best.multiplier * (1 + np.asarray(left)) ** -budget.power
    return np.clip(free, budget.min_batch, budget.max_batch)


def _parts(budget: Budget, multiplier: Reals, left: Reals) -> tuple[np.ndarray, np.ndarray]:
    """Times before the end, `left` at most, that end the parts at B_max and growing."""
    growing = np.minimum(time_left(budget, multiplier), left)
    return np.minimum(time_left(budget, multiplier, budget.max_batch), growing), growing


def _horizon(budget: Budget, multiplier: Reals) -> np.ndarray:
    """Return the horizon at which the schedule of a multiplier has spent the budget."""
    clipped, growing = _parts(budget, multiplier, np.inf)
    spent = budget.lr * budget.data
    capped = budget.max_batch * clipped if budget.bounded else 0.0 * clipped
    with_growth = data_left(budget, multiplier, growing) * budget.lr
    rest = 1 - budget.power
    grown = np.maximum(spent - capped, 0.0) * rest / multiplier + (1 + clipped) ** rest
    with np.errstate(over="ignore"):  # where it overflows, the stable part is reached
        within_growth = grown ** (1 / rest) - 1
    stable = growing + (spent - with_growth) / budget.min_batch
    grown = np.where(spent <= with_growth, within_growth, stable)
    return np.where(spent <= capped, spent / budget.max_batch, grown)


def _risk(budget: Budget, multiplier: Reals) -> np.ndarray:
    """Return the functional of the schedule of a multiplier."""
    horizon = _horizon(budget, multiplier)
    clipped, growing = _parts(budget, multiplier, horizon)
    memory = 1 - 1 / budget.capacity
    rest = 1 - budget.power
    at_most = (1 - (1 + clipped) ** -memory) / memory / budget.max_batch
    grown = ((1 + growing) ** rest - (1 + clipped) ** rest) / rest / multiplier
    at_least = ((1 + growing) ** -memory - (1 + horizon) ** -memory) / memory / budget.min_batch
    noise = at_most + grown + at_least
    return (1 + horizon) ** -budget.source + budget.lr * budget.noise * noise
