"""Warmup, stable phase, decay; decay shapes as in Hägele et al. (arXiv 2405.18392)."""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np

from bss.errors import InputError, check
from bss.schedules.rates.base import LearningRate

Shape = Literal["linear", "1-sqrt", "cosine", "exponential"]


@dataclass(frozen=True)
class Rate:
    """A warmup-stable-decay learning rate (LR), as a value that is also a callable.

    The LR is peak · count/warmup in the warm-up and peak in the stable phase. With x the completed
    part of the decay (0 at its start, 1 from `total` on), it is then

        peak · (floor + (1 − floor) · s(x)),   s = 1 − x, 1 − √x or (1 + cos πx)/2,
        peak · floor^x                         for "exponential".

    Without a decay it stays at the peak.

    Attributes:
        peak: the LR of the stable phase.
        total: the count at which the decay ends.
        warmup: the length of the linear warm-up from zero; 0 for none.
        decay: the length of the decay; 0 for none.
        shape: Shape of the decay.
        floor: the final LR, as a fraction of the peak.

    Raises:
        InputError: If a value is NaN, infinite or negative, warm-up and decay are longer than the
            total, the shape is unknown, or the decay is exponential to zero.

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
        """Return the LR at a count, of its shape.

        A number or NumPy array is evaluated in float64 by NumPy, exact for counts below 2^53; a jax
        array, traced or not, in jax's default float.
        """
        count, xp = numbers(count)
        rate = xp.full_like(count, self.peak)[()]
        if self.warmup:
            rate = rate * xp.clip(count / self.warmup, 0.0, 1.0)
        if self.decay:
            # The remaining part, not the completed one, keeps the digits near the end, at zero.
            left = xp.clip((float(self.total) - count) / self.decay, 0.0, 1.0)
            rate = rate * self._fall(left, xp)
        return rate

    def _fall(self, left: Any, xp: Any) -> Any:
        """Return the fraction of the peak when a part `left` = 1 − x of the decay remains."""
        match self.shape:
            case "exponential":
                return self.floor ** (1.0 - left)
            case "1-sqrt":
                left = 1.0 - xp.sqrt(1.0 - left)
            case "cosine":
                left = (1.0 - xp.cos(math.pi * left)) / 2.0
        return self.floor + (1.0 - self.floor) * left

    @property
    def stages(self) -> Self:
        """Itself, for trainers with settings for it."""
        return self

    @property
    def ending(self) -> str:
        """The LR phase at the end, as `bss.stats` names it."""
        whole = self.shape == "cosine" and self.warmup + self.decay == self.total
        return "cosine" if whole else "wsd" if self.decay else "constant"

    def code(self) -> Iterator[str]:
        """Yield Python lines that set `value` to the LR at `middle` tokens; `math` is imported."""
        yield f"value = {self.peak!r}"
        if self.warmup:
            yield f"value *= min(middle / {self.warmup!r}, 1.0)"
        if not self.decay:
            return
        yield f"left = min(max(({self.total!r} - middle) / {self.decay!r}, 0.0), 1.0)"
        if self.shape == "exponential":
            yield f"value *= {self.floor!r} ** (1 - left)"
            return
        if self.shape in _CODE:
            yield f"left = {_CODE[self.shape]}"
        yield f"value *= {self.floor!r} + (1 - {self.floor!r}) * left"


_CODE = {
    "1-sqrt": "1 - math.sqrt(1 - left)",
    "cosine": "(1 - math.cos(math.pi * left)) / 2",
}


def numbers(count: Any) -> tuple[Any, Any]:
    """Return counts as real numbers and their array module: NumPy, or jax.numpy for a jax array."""
    jax = sys.modules.get("jax")  # not loaded for commands that need none
    xp = jax.numpy if jax and isinstance(count, jax.Array) else np
    return xp.asarray(count, dtype=float), xp


def constant(peak: float, warmup: float = 0) -> Rate:
    """Return a warm-up, then the peak forever."""
    return Rate(peak, max(warmup, 1), warmup)


def cosine(peak: float, total: float, warmup: float = 0, floor: float = 0.0) -> Rate:
    """Return a warm-up, then one half cosine down to `floor · peak` at the total."""
    return Rate(peak, total, warmup, total - warmup, "cosine", floor)


def _wsd(
    peak: float, tokens: float, warmup: float, decay: float, shape: Shape, floor: float
) -> Rate:
    return Rate(peak, tokens, warmup, decay, shape, floor)


LATE = ("decay", "shape", "floor")
WSD = LearningRate(_wsd, stable=lambda tokens, decay: tokens - decay, late=LATE)
