"""Warmup, then half a cosine to a floor at the end (Loshchilov & Hutter, arXiv 1608.03983)."""

from bss.schedules.rates.base import LearningRate
from bss.schedules.rates.wsd import Rate


def cosine(peak: float, total: float, warmup: float = 0, floor: float = 0.0) -> Rate:
    """Warmup, then one half cosine down to `floor · peak` at the total."""
    return Rate(peak, total, warmup, total - warmup, "cosine", floor)


COSINE = LearningRate(lambda peak, tokens, warmup, floor: cosine(peak, tokens, warmup, floor))
