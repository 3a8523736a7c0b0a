"""Warmup, then the 1 - sqrt decay of Hägele et al. (arXiv 2405.18392) all the way to the end."""

from bss.schedules.rates.base import LearningRate
from bss.schedules.rates.wsd import Rate

ONE_MINUS_SQRT = LearningRate(
    lambda peak, tokens, warmup, floor: Rate(peak, tokens, warmup, tokens - warmup, "1-sqrt", floor)
)
