"""How surely contenders differ: two tests of a contrast over paired seeds, both to be passed.

The contrast's own Student t supposes nothing of the other contenders, and with few seeds is easily
deceived by a scatter that came out small. The pooled t takes the scatter over seeds from all
contenders of the table whose scatters agree (Levene), and is deceived where they do not. A
difference is shown in a direction only where both say so at 95%, each adjusted by Holm for the
contrasts of its family (derived here; Holm 1979, Levene 1960).
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit
from scipy.stats import levene

LEVEL = 0.95
POWER = 0.8
AGREE = 0.05  # scatters agree where Levene's p is at least this

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Scatter:
    """Variance over seeds of one run of a contender, with its degrees of freedom."""

    variance: float
    freedom: float


@dataclass(frozen=True)
class Contrast:
    """A mean difference over paired seeds, and what two tests say of it.

    Attributes:
        estimate: the mean difference.
        low: lower end of its interval, by its own t at the level that Holm leaves to its rank: it
            excludes 0 where p_adjusted is below 1 - level. None with fewer than two seeds.
        high: upper end.
        level: of the family.
        n: paired seeds.
        p: two-sided, of its own t; None with fewer than two seeds, as all that follows.
        p_adjusted: the same after Holm.
        pooled_p: two-sided, with the scatter pooled over contenders.
        pooled_p_adjusted: the same after Holm.
        smallest_effect: the difference that both tests would have shown in 80% of such tables, at
            the scatter seen, if this were the family's smallest p.
    """

    estimate: float
    low: float | None
    high: float | None
    level: float
    n: int
    p: float | None = None
    p_adjusted: float | None = None
    pooled_p: float | None = None
    pooled_p_adjusted: float | None = None
    smallest_effect: float | None = None

    @property
    def sign(self) -> int:
        """1 or -1 where both tests say after Holm that the difference is not zero, else 0."""
        if self.p_adjusted is None or self.pooled_p_adjusted is None:
            return 0
        shown = max(self.p_adjusted, self.pooled_p_adjusted) < 1 - self.level
        return int(np.sign(self.estimate)) if shown else 0


def holm(p: Sequence[float]) -> np.ndarray:
    """P values [N] adjusted so that the chance of any false finding is kept (Holm 1979).

    Examples:
        >>> holm([0.01, 0.04, 0.03]).tolist()
        [0.03, 0.06, 0.06]
    """
    order = np.argsort(p)
    steps = np.asarray(p, float)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(steps))
    return adjusted


def scatters(losses: pd.DataFrame) -> dict[str, Scatter]:
    """The scatter over seeds of each contender: pooled over those that agree, else its own.

    What a seed does to all contenders alike (their median) is taken out first. Contenders leave the
    pool, the most extreme first, until Levene's test finds no difference among the rest.

    Args:
        losses: [contender, seed], none missing, at least two of each.
    """
    ends = losses.to_numpy(float)
    rest = ends - np.median(ends, axis=0)
    rest -= rest.mean(axis=1, keepdims=True)
    seeds = ends.shape[1] - 1
    own = (rest**2).sum(axis=1) / seeds
    pool = _agreeing(dict(enumerate(rest)))
    count = max(len(pool) - 1, 1)  # the seeds' medians cost about one contender's freedom
    shared = Scatter(float(own[pool].sum() / count), count * seeds)
    return {
        name: shared if i in pool else Scatter(float(own[i]), seeds)
        for i, name in enumerate(losses.index)
    }


def contrasts(
    losses: pd.DataFrame, pairs: Sequence[tuple[str, str]], level: float = LEVEL
) -> dict[tuple[str, str], Contrast]:
    """One contender less another, for a family of such pairs.

    Args:
        losses: [contender, seed]; a seed that a pair does not share is left out of that pair.
        pairs: who is compared with whom.
        level: at which the family is judged.
    """
    ends = dict(zip(losses.index, losses.to_numpy(float), strict=True))
    apart = {(a, b): ends[a] - ends[b] for a, b in pairs}
    differences = {pair: found[~np.isnan(found)] for pair, found in apart.items()}
    complete = losses.dropna(axis=1)
    known = scatters(complete) if min(complete.shape) > 1 else {}
    errors = {
        pair: _difference(known[pair[0]], known[pair[1]], len(found))
        for pair, found in differences.items()
        if known and len(found) > 1
    }
    return judge(differences, errors, level)


def judge(
    differences: Mapping[K, Sequence[float] | np.ndarray],
    errors: Mapping[K, Scatter] | None = None,
    level: float = LEVEL,
) -> dict[K, Contrast]:
    """A family of differences over seeds, judged by both tests.

    Args:
        differences: by seed, for each contrast.
        errors: squared pooled standard error of each mean; by default from the scatter of the
            differences themselves, pooled over the family where Levene lets it.
        level: at which the family is judged.
    """
    values = {key: np.asarray(found, float) for key, found in differences.items()}
    tested = {key: found for key, found in values.items() if len(found) > 1}
    if errors is None:
        errors = _pooled(tested)
    tested = {key: found for key, found in tested.items() if key in errors}
    own = {k: Scatter(float(np.var(v, ddof=1)) / len(v), len(v) - 1) for k, v in tested.items()}
    p, pooled = ([_p(float(v.mean()), e[k]) for k, v in tested.items()] for e in (own, errors))
    judged = {
        key: Contrast(float(v.mean()) if len(v) else math.nan, None, None, level, len(v))
        for key, v in values.items()
    }
    for key, *found in zip(tested, p, holm(p), pooled, holm(pooled), strict=True):
        rank = found[1] / found[0] if 0 < found[0] < found[1] else 1.0
        mean = judged[key].estimate
        half = _quantile(1 - (1 - level) / (2 * rank), own[key])
        smallest = max(
            _quantile(1 - (1 - level) / (2 * len(tested)), error) + _quantile(POWER, error)
            for error in (own[key], errors[key])
        )
        judged[key] = Contrast(
            mean, mean - half, mean + half, level, len(tested[key]), *found, smallest
        )
    return judged


def _agreeing(groups: Mapping[K, np.ndarray]) -> list[K]:
    """Those whose scatters agree, by Levene's test; the most extreme leave first."""
    logs = {key: math.log(np.var(some)) for key, some in groups.items() if np.ptp(some) > 0}
    while len(logs) > 2 and levene(*(groups[k] for k in logs), center="mean")[1] < AGREE:
        middle = float(np.median(list(logs.values())))
        del logs[max(logs, key=lambda key: abs(logs[key] - middle))]
    return list(logs)


def _pooled(differences: Mapping[K, np.ndarray]) -> dict[K, Scatter]:
    """Squared standard errors of means, the scatter pooled over those that agree."""
    own = {k: Scatter(float(np.var(v, ddof=1)), len(v) - 1) for k, v in differences.items()}
    pool = _agreeing(differences)
    freedom = sum(own[key].freedom for key in pool)
    total = sum(own[key].variance * own[key].freedom for key in pool)
    shared = Scatter(total / max(freedom, 1), freedom)
    errors = {key: shared if key in pool else own[key] for key in differences}
    return {k: Scatter(e.variance / len(differences[k]), e.freedom) for k, e in errors.items()}


def _difference(a: Scatter, b: Scatter, seeds: int) -> Scatter:
    """The squared standard error of a mean difference (Welch, Satterthwaite)."""
    if a == b:
        return Scatter(2 * a.variance / seeds, a.freedom)
    total = a.variance + b.variance
    squares = a.variance**2 / a.freedom + b.variance**2 / b.freedom
    return Scatter(total / seeds, total**2 / squares if squares else a.freedom)


def _p(mean: float, error: Scatter) -> float:
    """Two-sided p of a mean; 1 for none, 0 for a difference without scatter."""
    if error.variance <= 0:
        return float(mean == 0)
    return float(2 * stdtr(error.freedom, -abs(mean) / math.sqrt(error.variance)))


def _quantile(chance: float, error: Scatter) -> float:
    """A quantile of a mean's error."""
    return math.sqrt(error.variance) * float(stdtrit(error.freedom, chance))
