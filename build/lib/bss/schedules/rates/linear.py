"""Warmup, then linearly to exactly zero (Bergsma et al., "Straight to Zero", arXiv 2502.15938)."""

from bss.schedules.rates.base import LearningRate
from bss.schedules.rates.wsd import Rate


def linear_to_zero(peak: float, total: float, warmup: float = 0) -> Rate:
    """Warmup, then linearly to exactly zero at the total (arXiv 2502.15938)."""
    return Rate(peak, total, warmup, total - warmup, "linear")


LINEAR = LearningRate(lambda peak, tokens, warmup: linear_to_zero(peak, tokens, warmup))
