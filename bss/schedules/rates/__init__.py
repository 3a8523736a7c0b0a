"""Learning rate (LR) schedules; a custom one is named `package.module:ATTRIBUTE`.

A schedule is a plain optax schedule, a callable of a count, and works with any optax optimizer:
`optax.adamw(wsd(1e-3, 1000, 100, 200))`. The count may be steps or tokens, in the same unit as the
lengths.

"cosine" is half a cosine to the end (Loshchilov & Hutter, arXiv 1608.03983). "linear" decays to
exactly zero (Bergsma et al., "Straight to Zero", arXiv 2502.15938). "1-sqrt" is the decay of Hägele
et al. (arXiv 2405.18392) over the whole run.
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
    """Return warm-up, then a decay of that shape to the end of the run."""
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
