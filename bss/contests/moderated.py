"""The one test of runs that are trained from now on: Student's t with a moderated variance.

The variance of a paired difference is shrunk towards that of its table: the prior's variance and
its degrees of freedom are estimated from how the variances of the table's contenders scatter beyond
what so few seeds explain (Smyth 2004, doi:10.2202/1544-6115.1027, by moments of their logarithms).
One contrast a question is registered before its seeds are trained; several are a family of Holm.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from scipy.special import digamma, polygamma

from bss.contests.contrasts import Contrast, Effect, judge
from bss.contests.scatter import Scatter
from bss.errors import InputError

K = TypeVar("K", bound=Hashable)


def moderated(losses: pd.DataFrame, pairs: Sequence[tuple[K, K]]) -> dict[tuple[K, K], Contrast]:
    """One contender less another, for the registered pairs of one question.

    Args:
        losses: [contender, seed]; seeds that some contender lacks tell nothing of the prior.
        pairs: who is compared with whom.

    Returns:
        Contrasts with one p, of this test; those of the pooled test are None.

    Raises:
        InputError: fewer than two seeds are shared by a pair.
    """
    return weighted(losses, {(a, b): {a: 1.0, b: -1.0} for a, b in pairs})


def weighted(
    losses: pd.DataFrame,
    family: Mapping[K, Mapping[Any, float]],
    less: Mapping[K, float] = MappingProxyType({}),
) -> dict[K, Contrast]:
    """Weighted sums of losses, less what was registered of each, 0 by default; as `moderated`."""
    typical, measured = prior(losses.dropna(axis=1)), {}
    for key, weights in family.items():
        parts = np.array([*weights.values()])
        sums = (losses.loc[[*weights]].T @ parts).dropna().to_numpy(float) - less.get(key, 0.0)
        if len(sums) < 2:
            names = " and ".join(map(str, weights))
            raise InputError(f"{names}: {len(sums)} shared seeds; train 2 or more of each")
        own = Scatter(float(np.var(sums, ddof=1)), len(sums) - 1)
        prior_of = Scatter(float(parts @ parts) * typical.variance, typical.freedom)
        error = shrunk(own, prior_of, losses.shape[0])
        of_mean = Scatter(error.variance / len(sums), error.freedom)
        measured[key] = Effect(float(sums.mean()), len(sums), of_mean)
    return judge(measured, single=True)


def prior(losses: pd.DataFrame) -> Scatter:
    """The typical variance of one run over seeds, and how many degrees of freedom it counts for.

    What a seed does to all contenders alike, their mean, is taken out. Infinite freedom says that
    the contenders scatter alike; 0 that there are too few to tell.

    Args:
        losses: [contender, seed], none missing.
    """
    ends = losses.to_numpy(float)
    count, seeds = ends.shape
    if count < 3 or seeds < 2:
        return Scatter(math.nan, 0.0)
    rest = ends - ends.mean(axis=0)
    variances = rest.var(axis=1, ddof=1) * count / (count - 1)
    half = (seeds - 1) / 2
    logs = np.log(np.maximum(variances, np.finfo(float).tiny)) - digamma(half) + math.log(half)
    beyond = float(np.var(logs, ddof=1) - polygamma(1, half))
    if beyond <= 0:
        return Scatter(float(np.exp(logs.mean())), math.inf)
    halved = _inverse_trigamma(beyond)
    return Scatter(float(np.exp(logs.mean() + digamma(halved) - math.log(halved))), 2 * halved)


def shrunk(own: Scatter, typical: Scatter, contenders: int) -> Scatter:
    """A variance between its own and the table's, each counting by its freedom.

    The freedom is at most that of all contenders of the table together.
    """
    if not typical.freedom:
        return own
    most = own.freedom * max(contenders - 1, 1)
    if math.isinf(typical.freedom):
        return Scatter(typical.variance, most)
    freedom = own.freedom + typical.freedom
    squares = own.variance * own.freedom + typical.variance * typical.freedom
    return Scatter(squares / freedom, min(freedom, most))


def _inverse_trigamma(value: float) -> float:
    """Where the trigamma function has a positive value, by Newton's steps (Smyth 2004)."""
    y = 0.5 + 1 / value
    for _ in range(50):
        at = float(polygamma(1, y))
        step = at * (1 - at / value) / float(polygamma(2, y))
        y += step
        if abs(step) < 1e-8 * y:
            break
    return y
