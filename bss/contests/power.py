"""What paired seeds can show: the chance that a difference is seen, and the seeds that it takes.

By one Student's t test of paired differences that scatter normally (derived here, from the
noncentral t distribution).
"""

import math

from scipy.stats import nct
from scipy.stats import t as student

from bss.contests.claims import Claim
from bss.contests.contrasts import LEVEL, POWER
from bss.errors import InputError

MOST_SEEDS = 10_000


def power(difference: float, deviation: float, seeds: int, freedom: float | None = None) -> float:
    """The chance that a difference is shown.

    Args:
        difference: of the means, in any unit.
        deviation: standard deviation of one paired difference, positive.
        seeds: how many pairs, 2 or more.
        freedom: degrees of freedom of the variance; those of the seeds by default.

    Raises:
        InputError: the deviation is not positive, or there are fewer than 2 seeds.

    Examples:
        >>> round(power(0.01, 0.008, 8), 2)
        0.86
    """
    if not deviation > 0 or seeds < 2:
        raise InputError(
            f"deviation {deviation:g}, seeds {seeds}; expected a positive one and 2 seeds or more"
        )
    freedom = seeds - 1 if freedom is None else freedom
    apart, least = (
        abs(difference) / deviation * math.sqrt(seeds),
        student.isf((1 - LEVEL) / 2, freedom),
    )
    return float(nct.sf(least, freedom, apart) + nct.cdf(-least, freedom, apart))


def seeds_for(difference: float, deviation: float) -> int | None:
    """The fewest seeds that show a difference in 80% of studies; None beyond MOST_SEEDS."""
    low, high = 2, 2
    while power(difference, deviation, high) < POWER:
        if high >= MOST_SEEDS:
            return None
        low, high = high, min(2 * high, MOST_SEEDS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (low, middle) if power(difference, deviation, middle) >= POWER else (middle, high)
        )
    return high


def deviation_of(claim: Claim) -> float | None:
    """The standard deviation of one paired difference, from a claim's own p; None without one.

    Of a claim whose effect is a mean over as many seeds as it says.
    """
    effect = claim.effect
    if not effect.p or not 0 < effect.p < 1 or effect.n < 2 or not effect.estimate:
        return None
    quantile = float(student.isf(effect.p / 2, effect.n - 1))
    return abs(effect.estimate) / quantile * math.sqrt(effect.n)
