"""The minimum of a few measured values: the vertex of a parabola through the lowest three.

The lowest value and its neighbours on both sides bracket the minimum. The parabola through these
three in log x has the vertex inside. If the lowest value is at an end, only a bound is known: the
nearest x on the other side whose value is surely higher. Intervals are from redrawn values and from
the form, because a curve is no parabola (derived here).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bss.laws.base import Estimate, interval, tails
from bss.laws.minimum import FORM_SD
from bss.points.groups import SEED_NOISE

REDRAWN = 500
"""Redrawn sets of values, of which 25 are beyond each end of a 90% interval."""
FORM_AT = float(np.log(2))  # distance of neighbours in log x that FORM_SD was calibrated at
SURELY = 2.0  # standard errors by which a value is surely higher: one in forty by chance


@dataclass(frozen=True)
class Bracketed:
    """The minimum of values over x > 0.

    Attributes:
        best: x of the minimum with its interval, or why it has no value, with its bounds.
        bracket: the neighbours of the lowest value; None beyond an end.
        lowest: x of the lowest value.
        count: different x.
        error: standard deviation of log x of the minimum; NaN without a value.
    """

    best: Estimate
    bracket: tuple[float | None, float | None]
    lowest: float
    count: int
    error: float


def bracketed_minimum(
    x: np.ndarray,
    value: np.ndarray,
    noise: np.ndarray,
    *,
    tried: Sequence[float] = (),
    level: float,
    seed: int = 0,
) -> Bracketed:
    """Return where values over x are lowest.

    Args:
        x: [n] ascending, above 0.
        value: [n], at each x, e.g. losses in nats.
        noise: [n], standard deviations of the values.
        tried: further x whose values are known to be far higher, as of runs that diverged.
        level: of the interval.
        seed: of the redrawn values.
    """
    at = int(value.argmin())
    below = [*x[:at], *(one for one in tried if one < x[at])]
    above = [*x[at + 1 :], *(one for one in tried if one > x[at])]
    bracket = (max(below, default=None), min(above, default=None))
    sure = _sure_ends(x, value, noise, tried, at)
    lowest = float(x[at])
    if not 0 < at < len(x) - 1:
        why = _why_unbracketed(lowest, len(x), bracket)
        high = sure[1] if np.isfinite(sure[1]) else None
        best = Estimate(None, sure[0] or None, high, level, f"unidentified: {why}")
        return Bracketed(best, bracket, lowest, len(x), np.nan)
    logs = np.log(x)
    vertex = float(np.exp(_vertices(logs, value[None])[0]))
    generator = np.random.default_rng(seed)
    redrawn = value + noise * generator.standard_normal((REDRAWN, len(x)))
    width = (logs[at + 1] - logs[at - 1]) / 2
    form = FORM_SD * (width / FORM_AT) ** 2 * generator.standard_normal(REDRAWN)
    draws = np.exp(_vertices(logs, redrawn) + form)
    ends = redrawn.argmin(axis=1)
    draws = np.select([ends == 0, ends == len(x) - 1], [0.0, np.inf], draws)
    best = interval(vertex, np.clip(draws, *sure), level=level)
    inside = np.log(np.clip(draws, x[0], x[-1]))
    low, high = np.quantile(inside, tails(0.6827))  # one standard deviation on both sides
    best = Estimate(best.value, best.low or None, best.high, level)
    if best.low is None and best.high is None:
        why = "no value tried is surely lower than those at the ends"
        best = Estimate(None, level=level, note=f"unidentified: {why}")
    return Bracketed(best, bracket, lowest, len(x), float(high - low) / 2)


def repeat_squares(losses: Any) -> tuple[float, int]:
    """Return the squares of losses about the means of their groups, and the degrees of freedom.

    Args:
        losses: grouped by what repetitions share, as pandas' `groupby` returns it.
    """
    freedom = int((losses.size() - 1).sum())
    return float((losses.var(ddof=0) * losses.size()).sum()), freedom


def loss_noise(squares: float, freedom: int) -> float:
    """Return the standard deviation of a loss; the usual one counts as one degree of freedom."""
    return float(np.sqrt((squares + SEED_NOISE**2) / (freedom + 1)))


def _sure_ends(
    x: np.ndarray, value: np.ndarray, noise: np.ndarray, tried: Sequence[float], at: int
) -> tuple[float, float]:
    """Return the nearest x on both sides whose values are surely higher; 0 and inf without."""
    higher = value - value[at] > SURELY * np.hypot(noise, noise[at])
    known = np.array([*x[higher], *tried])
    low = known[known < x[at]].max(initial=0.0)
    high = known[known > x[at]].min(initial=np.inf)
    return float(low), float(high)


def _why_unbracketed(lowest: float, count: int, bracket: tuple[float | None, float | None]) -> str:
    """Return why the lowest value has no vertex."""
    if count == 1:
        return f"one value alone, {lowest:.4g}, was tried"
    end = "largest" if bracket[1] is None else "smallest"
    if None not in bracket:
        return f"the best of those tried, {lowest:.4g}, is next to runs that diverged"
    return f"the best of those tried, {lowest:.4g}, is the {end}"


def _vertices(logs: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return log x [R] of the minima of values [R, n] at log x [n]; an end where that is lowest."""
    inner = np.clip(values.argmin(axis=1), 1, len(logs) - 2)
    at = inner[:, None] + np.array([-1, 0, 1])
    left, middle, right = logs[at].T
    lower, least, upper = np.take_along_axis(values, at, 1).T
    left_rise = lower - least
    right_rise = upper - least
    a = middle - left
    b = right - middle
    bend = b * left_rise + a * right_rise
    shift = (b**2 * left_rise - a**2 * right_rise) / (2 * np.where(bend > 0, bend, np.inf))
    return middle + np.clip(shift, -a, b)
