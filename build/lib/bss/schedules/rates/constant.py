"""Warmup, then the peak for ever."""

from bss.schedules.rates.base import LearningRate
from bss.schedules.rates.wsd import Rate


def constant(peak: float, warmup: float = 0) -> Rate:
    """Warmup, then the peak for ever."""
    return Rate(peak, max(warmup, 1), warmup)


CONSTANT = LearningRate(lambda peak, warmup: constant(peak, warmup))
