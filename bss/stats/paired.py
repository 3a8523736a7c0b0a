"""Paired differences over seeds, Holm's adjustment, and the effects that can be detected.

Runs of one seed share initialisation and data order, so differences are paired by seed. P values
are of Student's paired t test.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import stdtrit

from bss.errors import InputError

LEVEL = 0.95
POWER = 0.8
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Difference:
    """A mean difference over paired seeds.

    Attributes:
        mean: The mean; NaN without a shared seed.
        se: Its standard error; None with fewer than two seeds, like all that follows.
        low, high: Its 95% confidence interval by the paired t test, before any adjustment.
        p, p_adjusted: Two-sided p value, and after Holm within the table.
        n: Paired seeds.
    """

    mean: float
    se: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    n: int = 0

    @property
    def sign(self) -> int:
        """1 or -1 if the adjusted p value is below 5%, else 0."""
        significant = self.p_adjusted is not None and self.p_adjusted < 1 - LEVEL
        return int(np.sign(self.mean)) if significant else 0


def paired(differences: ArrayLike) -> Difference:
    """Return the mean of differences [seed] and its t test; NaN for a missing seed.

    Examples:
        >>> one = paired([-0.010, -0.012, -0.008])
        >>> round(one.low, 4), round(one.p, 3)
        (-0.015, 0.013)
    """
    values = np.asarray(differences, float)
    values = values[~np.isnan(values)]
    n = len(values)
    mean = float(values.mean()) if n else math.nan
    if n < 2:
        return Difference(mean, n=n)
    if not np.ptp(values):  # SciPy returns NaN for equal values
        return Difference(mean, 0.0, mean, mean, p := float(mean == 0), p, n)
    # scipy.stats takes longer to import than the other imports of a report together need
    from scipy.stats import ttest_1samp

    test: Any = ttest_1samp(values, 0.0)
    interval = test.confidence_interval(LEVEL)
    p = float(test.pvalue)
    se = float(values.std(ddof=1)) / math.sqrt(n)
    return Difference(mean, se, float(interval.low), float(interval.high), p, p, n)


def half_interval(differences: np.ndarray) -> np.ndarray:
    """Return half the 95% confidence interval of the mean of [seed, ...]; NaN with one seed."""
    seeds = len(differences)
    if seeds < 2:
        return np.full(differences.shape[1:], np.nan)
    reach = float(stdtrit(seeds - 1, (1 + LEVEL) / 2))
    return reach * differences.std(axis=0, ddof=1) / math.sqrt(seeds)


def mean_interval(differences: np.ndarray) -> np.ndarray:
    """Return the mean of [seed, ...] and the ends of its 95% confidence interval, [3, ...]."""
    mean = differences.mean(axis=0)
    half = half_interval(differences)
    return np.stack([mean, mean - half, mean + half])


def holm(p: Sequence[float]) -> np.ndarray:
    """Return p values [N] adjusted for the number of tests (Holm 1979).

    Examples:
        >>> holm([0.01, 0.04, 0.03]).tolist()
        [0.03, 0.06, 0.06]
    """
    return np.minimum(1, holm_products(p))


def holm_products(p: Sequence[float]) -> np.ndarray:
    """Return p values [N] multiplied as Holm does, which may exceed 1."""
    order = np.argsort(p)
    steps = np.asarray(p, float)[order] * np.arange(len(order), 0, -1)
    products = np.empty(len(order))
    products[order] = np.maximum.accumulate(steps)
    return products


def compare(losses: pd.DataFrame, pairs: Sequence[tuple[K, K]]) -> dict[tuple[K, K], Difference]:
    """Return the first minus the second compared run of each pair, adjusted by Holm over the pairs.

    Args:
        losses: [compared run, seed]; NaN if a run was not trained.
        pairs: Names in the index.
    """
    found = {(a, b): paired((losses.loc[a] - losses.loc[b]).to_numpy()) for a, b in pairs}
    tested = {pair: one.p for pair, one in found.items() if one.p is not None}
    adjusted = zip(tested, holm([*tested.values()]), strict=True)
    return found | {pair: replace(found[pair], p_adjusted=float(p)) for pair, p in adjusted}


def minimum_detectable_effect(sd: float, n: int) -> float:
    """Return the mean difference that a paired t test at 95% detects in 80% of studies.

    Args:
        sd: Standard deviation of one paired difference, positive.
        n: Paired seeds, 2 or more.

    Examples:
        >>> round(minimum_detectable_effect(0.008, 8), 4)
        0.0092
    """
    if not sd > 0 or n < 2:
        raise InputError(f"sd {sd:g}, n {n}; expected a positive sd and 2 seeds or more")
    return detectable_shift(n - 1) * sd / math.sqrt(n)


def detectable_shift(freedom: float, level: float = LEVEL) -> float:
    """Return the effect, in standard errors, that a two-sided t test detects with power 80%."""
    from scipy.stats import nct  # as in `paired`

    least = float(stdtrit(freedom, (1 + level) / 2))

    def missing(shift: float) -> float:
        other = np.nan_to_num(nct.cdf(-least, freedom, shift))  # SciPy: NaN where it underflows
        return float(nct.sf(least, freedom, shift) + other) - POWER

    highest = least
    while missing(highest) < 0:
        highest *= 2
    shift: Any = brentq(missing, 0, highest)
    return float(shift)


@dataclass(frozen=True)
class Slope:
    """A slope in log–log, with the confidence interval of ordinary linear regression.

    The interval measures how straight the line is; a bend at small x shifts it as a whole.
    """

    value: float
    low: float
    high: float
    level: float = 0.90


def slope(x: ArrayLike, y: ArrayLike, *, level: float = 0.90) -> Slope:
    """Fit log y against log x, [N], positive; the exponent of a power law.

    At least two x must be distinct; the interval of two points is infinite.
    """
    from scipy.stats import linregress  # as in `paired`

    log_x = np.log(np.asarray(x, float))
    log_y = np.log(np.asarray(y, float))
    line: Any = linregress(log_x, log_y)
    freedom = len(log_x) - 2
    error = line.stderr if np.ptp(log_y) else 0.0  # SciPy: NaN for equal values
    reach = float(stdtrit(freedom, (1 + level) / 2) * error) if freedom else math.inf
    value = float(line.slope)
    return Slope(value, value - reach, value + reach, level)
