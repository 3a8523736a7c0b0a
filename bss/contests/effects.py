"""Effects that are no means over seeds: slopes of lines, statistics of groups, computed values.

Each comes with the two errors that `bss.contests.contrasts.judge` asks for (derived here).
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from bss.contests.contrasts import Contrast, Effect, judge
from bss.contests.scatter import Scatter, summed

K = TypeVar("K", bound=Hashable)
Line = tuple[np.ndarray, np.ndarray]
RESAMPLES = 2000


def exact(value: float, n: int = 1) -> Effect:
    """A value that was computed, without chance."""
    none = Scatter(0.0, 1)
    return Effect(value, n, none, none)


def less(effect: Effect, expected: float) -> Effect:
    """An effect beside what was expected of it, with the same errors."""
    return replace(effect, estimate=effect.estimate - expected)


def beyond(effect: Effect, expected: float, tolerance: float) -> Effect:
    """How far an effect is from what was expected, less a tolerance: below 0 it is within."""
    return replace(effect, estimate=abs(effect.estimate - expected) - tolerance)


def apart(effect: Effect, other: Effect) -> Effect:
    """One effect less another, with errors where both have them; pooled errors share a pool."""
    both, pools = (effect.own, other.own), (effect.pooled, other.pooled)
    own = summed([x for x in both if x]) if all(both) else None
    pooled = summed([x for x in pools if x], one_pool=True) if all(pools) else None
    return Effect(effect.estimate - other.estimate, min(effect.n, other.n), own, pooled)


def slopes(lines: Mapping[K, Line]) -> dict[K, Effect]:
    """Slopes of log y against log x, by least squares.

    The own error is of the scatter about the line, the pooled one of the scatter about all lines.
    A line of fewer than three points has none.

    Args:
        lines: x [N] and y [N], positive, at least two distinct x.
    """
    fitted = {}
    for key, (x, y) in lines.items():
        log_x, log_y = np.log(x) - np.mean(np.log(x)), np.log(y)
        spread = float(log_x @ log_x)
        value = float(log_x @ log_y) / spread
        rest = log_y - log_y.mean() - value * log_x
        fitted[key] = value, spread, float(rest @ rest), len(log_x) - 2
    squares, every = (sum(one[i] for one in fitted.values()) for i in (2, 3))
    measured = {}
    for key, (value, spread, own, freedom) in fitted.items():
        errors = (Scatter(r / n / spread, n) for r, n in ((own, freedom), (squares, every)) if n)
        one, pooled = (next(errors), next(errors)) if freedom else (None, None)
        measured[key] = Effect(value, freedom + 2, one, pooled)
    return measured


def by_groups(statistic: Callable[[np.ndarray], float], groups: Sequence[Hashable]) -> Effect:
    """A statistic of rows that come in groups, its errors over the groups.

    The own error is the jackknife's, of leaving out each group; the pooled one is the bootstrap's,
    of drawing as many groups with replacement. Draws for which the statistic is not finite are left
    out. With fewer than three groups there are none.

    Args:
        statistic: of how often each row counts, [N].
        groups: of each row, [N].
    """
    names = list(dict.fromkeys(groups))
    member = np.array([names.index(group) for group in groups])
    count = len(names)
    estimate = statistic(np.ones(len(member)))
    if count < 3:
        return Effect(estimate, count)
    without = np.array([statistic((member != i).astype(float)) for i in range(count)])
    jackknife = (count - 1) / count * float(np.sum((without - without.mean()) ** 2))
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    values = np.array([statistic(times[member].astype(float)) for times in drawn])
    bootstrap = float(np.var(values[np.isfinite(values)], ddof=1))
    return Effect(estimate, count, Scatter(jackknife, count - 1), Scatter(bootstrap, count - 1))


def error_of_differences(
    measured: ArrayLike, predicted: ArrayLike
) -> Callable[[np.ndarray], float]:
    """The rms error of differences between runs over their rms spread, as a statistic of weights.

    Over pairs of runs, root mean squares of differences are standard deviations over runs but for a
    factor; 1 is what a constant prediction has.

    Args:
        measured: [N].
        predicted: [N].
    """
    losses = np.asarray(measured, float)
    wrong = np.asarray(predicted, float) - losses

    def ratio(weights: np.ndarray) -> float:
        with np.errstate(invalid="ignore", divide="ignore"):  # all weight on one run
            parts = [np.cov(x, aweights=weights, ddof=0) for x in (wrong, losses)]
            return float(np.sqrt(parts[0] / parts[1]))

    return ratio


def weakest(family: Mapping[K, Effect]) -> Contrast:
    """Of effects that must all be there, the one that is least so, judged within their family."""
    contrasts = judge(family).values()
    chances = [(one.p_adjusted, one.pooled_p_adjusted, one.p, one.pooled_p) for one in contrasts]
    worst = [(max(a or 0, b or 0), max(c or 0, d or 0)) for a, b, c, d in chances]
    return list(contrasts)[worst.index(max(worst))]
