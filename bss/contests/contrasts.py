"""How surely contenders differ: two tests of a contrast over paired seeds, both to be passed.

The contrast's own Student t supposes nothing of the other contenders, and with few seeds is easily
deceived by a scatter that came out small. The pooled t takes the scatter over seeds from all
contenders of the table whose scatters agree (Levene), and is deceived where they do not. A
difference is shown in a direction only where both say so at 95%, each adjusted by Holm for the
contrasts of its family (derived here; Holm 1979, Levene 1960).
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from bss.contests.scatter import Scatter, scaled, shared, summed

LEVEL = 0.95
POWER = 0.8

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Effect:
    """An effect and the squared standard errors that two tests give it.

    Attributes:
        estimate: the effect; 0 is none.
        n: seeds, or what else it was measured on.
        own: by its own scatter; None where there is none.
        pooled: by the scatter of all that were measured alike.
    """

    estimate: float
    n: int
    own: Scatter | None = None
    pooled: Scatter | None = None


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
        """1 or -1 where every test says after Holm that the difference is not zero, else 0."""
        if self.p_adjusted is None:
            return 0
        shown = max(self.p_adjusted, self.pooled_p_adjusted or 0.0) < 1 - self.level
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


def scatters(losses: pd.DataFrame) -> dict[Any, Scatter]:
    """The scatter over seeds of each contender: pooled over those that agree, else its own.

    What a seed does to all contenders alike (their median) is taken out first. Contenders leave the
    pool, the most extreme first, until Levene's test finds no difference among the rest.

    Args:
        losses: [contender, seed], none missing, at least two of each.
    """
    ends = losses.to_numpy(float)
    rest = ends - np.median(ends, axis=0)
    rest -= rest.mean(axis=1, keepdims=True)
    groups = dict(zip(losses.index, rest, strict=True))
    # The seeds' medians cost about one contender's freedom.
    return shared(groups, together=ends.shape[1] - 1)


def contrasts(losses: pd.DataFrame, pairs: Sequence[tuple[K, K]]) -> dict[tuple[K, K], Contrast]:
    """One contender less another, for a family of such pairs.

    Args:
        losses: [contender, seed]; a seed that a pair does not share is left out of that pair.
        pairs: who is compared with whom.
    """
    return judge(measured_pairs(losses, pairs))


def half_interval(apart: np.ndarray, level: float = LEVEL) -> np.ndarray:
    """Half the interval, by its own t and before any correction, of a mean over seeds.

    Args:
        apart: differences [seed, ...].
        level: of the interval.

    Returns:
        [...]; NaN with one seed.
    """
    seeds = len(apart)
    if seeds < 2:
        return np.full(apart.shape[1:], np.nan)
    return stdtrit(seeds - 1, (1 + level) / 2) * apart.std(axis=0, ddof=1) / np.sqrt(seeds)


def measured_pairs(losses: pd.DataFrame, pairs: Sequence[tuple[K, K]]) -> dict[tuple[K, K], Effect]:
    """One contender less another, before a family is judged; arguments as of `contrasts`."""
    ends = dict(zip(losses.index, losses.to_numpy(float), strict=True))
    complete = losses.dropna(axis=1)
    known = scatters(complete) if min(complete.shape) > 1 else {}
    measured = {}
    for a, b in pairs:
        apart = ends[a] - ends[b]
        apart = apart[~np.isnan(apart)]
        pooled = _difference(known[a], known[b], len(apart)) if known else None
        measured[a, b] = _measured(apart, pooled)
    return measured


def over_seeds(values: Mapping[K, Sequence[float] | np.ndarray]) -> dict[K, Contrast]:
    """A family of effects measured once a seed, their scatter pooled over those that agree."""
    return judge(measured_seeds(values))


def measured_seeds(values: Mapping[K, Sequence[float] | np.ndarray]) -> dict[K, Effect]:
    """The same, before the family is judged."""
    arrays = {key: np.asarray(some, float) for key, some in values.items()}
    of_runs = shared({key: v - v.mean() for key, v in arrays.items() if len(v) > 1})
    return {
        key: _measured(v, scaled(of_runs.get(key), 1 / max(len(v), 1))) for key, v in arrays.items()
    }


def judge(
    measured: Mapping[K, Effect],
    *,
    single: bool = False,
    chosen_of: Mapping[K, int] = MappingProxyType({}),
) -> dict[K, Contrast]:
    """A family of effects, judged by both tests; what lacks an error is told, not judged.

    Args:
        measured: the family.
        single: judged by the own error alone, as `bss.contests.moderated` makes it.
        chosen_of: of how many such effects each is the surest, 1 by default; its p count as often.
    """
    if single:
        measured = {key: replace(m, pooled=m.own) for key, m in measured.items()}
    tested = {key: (m, m.own, m.pooled) for key, m in measured.items() if m.own and m.pooled}
    times = {key: chosen_of.get(key, 1) for key in tested}
    p = [_p(m.estimate, own, times[key]) for key, (m, own, _) in tested.items()]
    pooled_p = [_p(m.estimate, pooled, times[key]) for key, (m, _, pooled) in tested.items()]
    judged = {key: Contrast(m.estimate, None, None, LEVEL, m.n) for key, m in measured.items()}
    tests = zip(tested.items(), p, holm(p), pooled_p, holm(pooled_p), strict=True)
    for (key, (m, own, pooled)), one, adjusted, by_pool, by_pool_adjusted in tests:
        rank = times[key] * (adjusted / one if 0 < one < adjusted else 1.0)
        half = _quantile(1 - (1 - LEVEL) / (2 * rank), own)
        ends = m.estimate - half, m.estimate + half
        chances = one, float(adjusted), by_pool, float(by_pool_adjusted)
        chances = (*chances[:2], None, None) if single else chances
        first = 1 - (1 - LEVEL) / (2 * len(tested) * times[key])
        least = max(_quantile(first, error) + _quantile(POWER, error) for error in (own, pooled))
        judged[key] = Contrast(m.estimate, *ends, LEVEL, m.n, *chances, least)
    return judged


def _measured(values: np.ndarray, pooled: Scatter | None) -> Effect:
    """The mean over seeds; it has errors where there are two seeds or more."""
    if len(values) < 2:
        return Effect(float(values.mean()) if len(values) else math.nan, len(values))
    own = Scatter(float(np.var(values, ddof=1)) / len(values), len(values) - 1)
    return Effect(float(values.mean()), len(values), own, pooled)


def _difference(a: Scatter, b: Scatter, seeds: int) -> Scatter | None:
    """The squared standard error of a mean difference over seeds; None over none."""
    return scaled(summed([a, b], one_pool=a == b), 1 / seeds) if seeds else None


def _p(mean: float, error: Scatter, times: int = 1) -> float:
    """Two-sided p of a mean; 1 for none, 0 for a difference without scatter."""
    if error.variance <= 0:
        return float(mean == 0)
    one = float(2 * stdtr(error.freedom, -abs(mean) / math.sqrt(error.variance)))
    return min(1.0, times * one)


def _quantile(chance: float, error: Scatter) -> float:
    """A quantile of a mean's error."""
    return math.sqrt(error.variance) * float(stdtrit(error.freedom, chance))
