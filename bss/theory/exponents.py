"""Predictions of the theory: regimes and exponents in the data budget.

Wang et al. (arXiv 2602.14208) for schedules, Li et al. (arXiv 2509.19189) for the two regimes. All
of them hold as the budget goes to infinity; near s = 1 − 1/β they set in slowly.
"""

from dataclasses import dataclass
from typing import Literal

from bss.theory.regression import check_exponents

Regime = Literal["easy", "hard"]


def regime(source: float, capacity: float) -> Regime:
    """Hard where s ≤ 1 − 1/β (Li et al.): the target outlasts the memory of the noise."""
    check_exponents(source, capacity)
    return "hard" if source <= 1 - 1 / capacity else "easy"


@dataclass(frozen=True)
class Exponents:
    """Exponents of the data budget D in the optimum, unless another variable is named.

    Attributes:
        loss: excess risk of the optimal schedule.
        horizon: its intrinsic time T*.
        growth_fraction: the part of T* in which the batch is above the minimum.
        peak_batch: its last batch, when nothing bounds it from above.
        constant_loss: excess risk of the best fixed batch size.
        switch: D − P*, the data after the best switch between two batches; 1 where P* = 0.
        catch_up_gap: gap to the large batch against steps δ after a switch, for δ ≪ t_switch.
        catch_up_time: steps until the gap is down to the signal, against t_switch.
    """

    loss: float
    horizon: float
    growth_fraction: float
    peak_batch: float
    constant_loss: float
    switch: float
    catch_up_gap: float
    catch_up_time: float


def exponents(source: float, capacity: float) -> Exponents:
    """Return the exponents of a task (Wang et al.; the catch-up's derived here).

    Raises:
        InputError: source ≤ 0 or capacity ≤ 1.

    Examples:
        >>> hard = exponents(0.3, 4)
        >>> round(hard.switch, 3), hard.loss, hard.peak_batch
        (0.743, -0.3, 0.65)
    """
    memory = 1 - 1 / capacity
    signal = source * capacity
    if regime(source, capacity) == "hard":
        of_regime = {
            "loss": -source,
            "horizon": 1.0,
            "growth_fraction": -(memory - source) / (1 + memory),
            "peak_batch": (1 + source) / 2,
            "switch": (1 + source) / (1 + memory),
        }
    else:
        of_regime = {
            "loss": -signal / (1 + signal),
            "horizon": capacity / (1 + signal),
            "growth_fraction": 0.0,
            "peak_batch": (0.5 + signal) / (1 + signal),
            "switch": 1.0,
        }
    return Exponents(
        **of_regime,
        constant_loss=-source / (1 + source),
        catch_up_gap=-memory,
        catch_up_time=source / memory,
    )


@dataclass(frozen=True)
class Powers:
    """Source s and capacity β of a task."""

    source: float
    capacity: float

    @property
    def regime(self) -> Regime:
        """Easy or hard."""
        return regime(self.source, self.capacity)

    @property
    def exponents(self) -> Exponents:
        """Exponents of its optimum."""
        return exponents(self.source, self.capacity)

    def __str__(self) -> str:
        return f"{self.regime}, s = {self.source:g}, β = {self.capacity:g}"
