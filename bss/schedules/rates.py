"""Learning-rate schedules of a count: warmup-stable-decay, and its limits cosine, linear, constant.

Each is a plain optax schedule, a callable of a count, and works alone with any optax optimizer:
`optax.adamw(wsd(1e-3, 1000, 100, 200))`. The count may be steps or tokens, as long as the
lengths are in the same unit. Decay shapes as in Hägele et al. (arXiv 2405.18392); decay to
exactly zero as in Bergsma et al., "Straight to Zero" (arXiv 2502.15938).
"""

import math
import sys
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from bss.errors import InputError, check

Shape = Literal["linear", "1-sqrt", "cosine", "exponential"]


@dataclass(frozen=True)
class Rate:
    """A warmup-stable-decay learning rate, as a value that is also a callable.

    With x the part of the decay that is behind (0 at its start, 1 from `total` on), the rate is
    peak · count/warmup in the warmup, peak in the stable phase, and then

        peak · (floor + (1 − floor) · s(x)),   s = 1 − x, 1 − √x or (1 + cos πx)/2,
        peak · floor^x                         for "exponential".

    Without a decay it stays at the peak.

    Attributes:
        peak: the rate of the stable phase.
        total: the count at which the decay ends.
        warmup: the length of the linear warmup from zero; 0 for none.
        decay: the length of the decay; 0 for none.
        shape: of the decay.
        floor: the final rate, as a fraction of the peak.

    Raises:
        InputError: on construction: a NaN, infinite or negative value, warmup and decay longer
            than the total, an unknown shape, or an exponential decay to zero.

    Examples:
        >>> rate = Rate(peak=1.0, total=10, warmup=2, decay=4)
        >>> [float(rate(count)) for count in (0, 1, 2, 6, 8, 10)]
        [0.0, 0.5, 1.0, 1.0, 0.5, 0.0]
    """

    peak: float
    total: float
    warmup: float = 0
    decay: float = 0
    shape: Shape = "linear"
    floor: float = 0.0

    def __post_init__(self):
        for field in ("peak", "total"):
            value = getattr(self, field)
            check(0 < value < math.inf, field, value, "a positive number")
        for field in ("warmup", "decay"):
            value = getattr(self, field)
            check(0 <= value < math.inf, field, value, "a length of 0 or more")
        if self.warmup + self.decay > self.total:
            raise InputError(
                f"warmup, decay: {self.warmup} and {self.decay} are together longer than the "
                f"total of {self.total}; shorten one of them"
            )
        if self.shape not in get_args(Shape):
            raise InputError(
                f"shape: {self.shape!r} is unknown; choose one of {', '.join(get_args(Shape))}"
            )
        check(0 <= self.floor <= 1, "floor", self.floor, "a fraction of the peak, 0 to 1")
        if self.shape == "exponential" and self.decay and not self.floor:
            raise InputError("floor: an exponential decay never reaches 0; write a floor above 0")

    def __call__(self, count: Any) -> Any:
        """The rate at a count, of its shape.

        A number or NumPy array is answered in float64 by NumPy, exact for counts below 2^53; a jax
        array, traced or not, in jax's default float.
        """
        jax = sys.modules.get("jax")  # not loaded for commands that need none
        xp = jax.numpy if jax and isinstance(count, jax.Array) else np
        count = xp.asarray(count, dtype=float)
        rate = xp.full_like(count, self.peak)[()]
        if self.warmup:
            rate = rate * xp.clip(count / self.warmup, 0.0, 1.0)
        if self.decay:
            # What is left, rather than what is behind, keeps the digits near the end, at zero.
            left = xp.clip((float(self.total) - count) / self.decay, 0.0, 1.0)
            rate = rate * self._fall(left, xp)
        return rate

    def _fall(self, left: Any, xp: Any) -> Any:
        """The fraction of the peak when a part `left` = 1 − x of the decay is ahead."""
        match self.shape:
            case "exponential":
                return self.floor ** (1.0 - left)
            case "1-sqrt":
                left = 1.0 - xp.sqrt(1.0 - left)
            case "cosine":
                left = (1.0 - xp.cos(math.pi * left)) / 2.0
        return self.floor + (1.0 - self.floor) * left


wsd = Rate
"""Warmup, stable phase, decay."""


def cosine(peak: float, total: float, warmup: float = 0, floor: float = 0.0) -> Rate:
    """Warmup, then one half cosine down to `floor · peak` at the total."""
    return Rate(peak, total, warmup, total - warmup, "cosine", floor)


def linear_to_zero(peak: float, total: float, warmup: float = 0) -> Rate:
    """Warmup, then linearly to exactly zero at the total (arXiv 2502.15938)."""
    return Rate(peak, total, warmup, total - warmup, "linear")


def constant(peak: float, warmup: float = 0) -> Rate:
    """Warmup, then the peak for ever."""
    return Rate(peak, max(warmup, 1), warmup)
