"""Learning rates of a count, one file a shape; a user's own is named `package.module:ATTRIBUTE`.

What a shape makes is a plain optax schedule, a callable of a count, and works alone with any optax
optimizer: `optax.adamw(wsd(1e-3, 1000, 100, 200))`. The count may be steps or tokens, as long as
the lengths are in the same unit.
"""

from bss.registry import Registry
from bss.schedules.rates.base import SETTINGS, LearningRate
from bss.schedules.rates.constant import CONSTANT, constant
from bss.schedules.rates.cosine import COSINE, cosine
from bss.schedules.rates.inverse_sqrt import INVERSE_SQRT
from bss.schedules.rates.linear import LINEAR, linear_to_zero
from bss.schedules.rates.one_minus_sqrt import ONE_MINUS_SQRT
from bss.schedules.rates.power import POWER, PowerRate, power_law
from bss.schedules.rates.wsd import WSD, Rate, Shape

__all__ = [
    "RATES",
    "SETTINGS",
    "LearningRate",
    "PowerRate",
    "Rate",
    "Shape",
    "constant",
    "cosine",
    "linear_to_zero",
    "power_law",
    "wsd",
]

RATES: Registry[LearningRate] = Registry(
    "rate",
    {
        "wsd": WSD,
        "cosine": COSINE,
        "linear": LINEAR,
        "constant": CONSTANT,
        "1-sqrt": ONE_MINUS_SQRT,
        "inverse_sqrt": INVERSE_SQRT,
        "power": POWER,
    },
    LearningRate,
)

wsd = Rate
"""Warmup, stable phase, decay."""
