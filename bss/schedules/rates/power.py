"""A power law of the tokens after the warm-up, with an optional decay at the end.

The exponent is from Shen et al., "Power Scheduler" (arXiv 2408.13359), who found the same one over
token counts and batch sizes. Their form, a·n^b, is limited by a largest learning rate (LR). Here
the peak is given, and the power law begins after the warm-up (derived here). The inverse square
root is from Vaswani et al. (arXiv 1706.03762, eq. 3), with a decay at its end as in Zhai et al.
(arXiv 2106.04560).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bss.errors import InputError
from bss.schedules.rates.base import LearningRate
from bss.schedules.rates.wsd import LATE, Rate, Shape, numbers


@dataclass(frozen=True)
class PowerRate:
    """The LR peak · (warmup / count)^exponent after the warm-up, as a callable of a count.

    Attributes:
        within: its warm-up, which is above 0, its peak and its decay.
        exponent: Exponent of the fall, above 0.

    Examples:
        >>> rate = PowerRate(Rate(peak=1.0, total=64, warmup=4), exponent=0.5)
        >>> [float(rate(count)) for count in (0, 2, 4, 16, 64)]
        [0.0, 0.5, 1.0, 0.5, 0.25]
    """

    within: Rate
    exponent: float

    def __post_init__(self) -> None:
        if not self.within.warmup:
            raise InputError(
                "warmup: 0; a power law of the tokens begins where it ends, so give one"
            )

    def __call__(self, count: Any) -> Any:
        """Return the LR at a count, as `Rate`."""
        real, xp = numbers(count)
        after_warmup = xp.maximum(real, float(self.within.warmup))
        return self.within(count) * (self.within.warmup / after_warmup) ** self.exponent

    def code(self) -> Iterator[str]:
        """See `Rate.code`."""
        yield from self.within.code()
        warmup = self.within.warmup
        yield f"value *= ({warmup!r} / max(middle, {warmup!r})) ** {self.exponent!r}"


def power_law(exponent: float) -> LearningRate:
    """Return the schedule of a power law, whose stable part ends at the start of the decay."""

    def make(
        peak: float, tokens: float, warmup: float, decay: float, shape: Shape, floor: float
    ) -> PowerRate:
        return PowerRate(Rate(peak, tokens, warmup, decay, shape, floor), exponent)

    return LearningRate(make, stable=lambda tokens, decay: tokens - decay, late=LATE)


POWER, INVERSE_SQRT = power_law(0.51), power_law(0.5)
