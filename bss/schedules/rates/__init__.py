"""Learning rates of a count; a user's own is named `package.module:ATTRIBUTE`.

What a shape makes is a plain optax schedule, a callable of a count, and works alone with any optax
optimizer: `optax.adamw(wsd(1e-3, 1000, 100, 200))`. The count may be steps or tokens, as long as
the lengths are in the same unit.

Half a cosine to the end is the rate of Loshchilov & Hutter (arXiv 1608.03983), linearly to exactly
zero that of Bergsma et al., "Straight to Zero" (arXiv 2502.15938), 1 - sqrt that of Hägele et al.
(arXiv 2405.18392) all the way to the end.
"""

from bss.registry import Registry
from bss.schedules.rates.base import SETTINGS, LearningRate
from bss.schedules.rates.power import INVERSE_SQRT, POWER, PowerRate, power_law
from bss.schedules.rates.wsd import WSD, Rate, Shape, constant, cosine

__all__ = [
    "RATES",
    "SETTINGS",
    "LearningRate",
    "PowerRate",
    "Rate",
    "Shape",
    "constant",
    "cosine",
    "power_law",
    "wsd",
]


def _to_the_end(shape: Shape) -> LearningRate:
    """Warmup, then a decay of that shape all the way to the end."""
    return LearningRate(
        lambda peak, tokens, warmup, floor: Rate(
            peak, tokens, warmup, tokens - warmup, shape, floor
        )
    )


RATES: Registry[LearningRate] = Registry(
    "rate",
    {
        "wsd": WSD,
        "cosine": _to_the_end("cosine"),
        "linear": LearningRate(
            lambda peak, tokens, warmup: Rate(peak, tokens, warmup, tokens - warmup)
        ),
        "constant": LearningRate(constant),
        "1-sqrt": _to_the_end("1-sqrt"),
        "inverse_sqrt": INVERSE_SQRT,
        "power": POWER,
    },
    LearningRate,
)

wsd = Rate
"""Warmup, stable phase, decay."""
