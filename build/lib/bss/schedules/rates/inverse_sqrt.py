"""Warmup, then the inverse square root of the tokens (Vaswani et al., arXiv 1706.03762, eq. 3).

With a decay at the end where one is asked for, as Zhai et al. (arXiv 2106.04560) have it.
"""

from bss.schedules.rates.power import power_law

INVERSE_SQRT = power_law(0.5)
