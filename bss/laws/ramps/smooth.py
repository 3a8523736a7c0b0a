"""A smooth curve through noisy points, with draws, and where it passes a level for the last time.

The curve is a cubic smoothing spline: a line plus an integrated Wiener process (Wahba, 1978), with
normal noise. Draws of the curve include the uncertainty of its roughness and of the noise. Both are
integrated over, by the restricted likelihood on a grid; a line has no roughness. Intervals of the
last crossing are shares of the draws (derived here).
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from bss.laws.base import UNIDENTIFIED, Estimate, tails

ROUGHNESS = np.geomspace(1e-4, 1e8, 25)  # variance of the curve over that of the noise, [0, 1]
DRAWS = 400  # 20 beyond each end of a 90% interval
TINY = 1e-100  # so that points on a line have a noise
SHARE = 1e-6  # of the evidence, below which a roughness is left out
PLACES = 240  # at which curves are compared with a level
BINS = 40  # of log tokens: neighbours in a log are averages over the same steps
LEAST_POINTS = 4  # two for a line, and two that show the noise
DOUBT = 0.01  # share of draws that may not be past a level at the end; a flat curve seldom has less
JITTER = 1e-10  # of the covariance, so that its factor exists


@dataclass(frozen=True)
class SmoothCurve:
    """A curve over log tokens.

    Attributes:
        tokens: [K], where the curve is known, ascending from the first to the last point.
        values: [K], its mean.
        draws: [R, K], draws of it.
        noise: standard deviation of one point.
    """

    tokens: np.ndarray
    values: np.ndarray
    draws: np.ndarray
    noise: float

    def last_crossing(self, level: float, *, rising: bool, coverage: float) -> Estimate:
        """Return the tokens from which on the curve is past a level, with an interval.

        Args:
            level: in the unit of the values.
            rising: whether past means above it, not below.
            coverage: of the interval.

        Returns:
            A value of 0 if the curve is past the level throughout. No value if it is not past it at
            its end; and if too many draws are not, with the end of the interval that is known.
        """
        sign = 1.0 if rising else -1.0
        value = last_crossings(self.tokens, sign * (self.values[None] - level))[0]
        found = last_crossings(self.tokens, sign * (self.draws - level))
        low, high = np.quantile(found, tails(coverage), method="nearest")
        low = min(low, value)
        if np.isinf(found).mean() > DOUBT or np.isinf(value):
            least = float(min(low, self.tokens[-1])) if low > 0 else None
            if np.isfinite(value):
                why = "the curve may pass it again after the last point"
            else:
                why = "the curve is not past it at its last point"
            return Estimate(None, least, None, coverage, f"{UNIDENTIFIED}{why}")
        return Estimate(float(value), float(low), float(max(high, value)), coverage)


def smooth(
    tokens: np.ndarray, values: np.ndarray, draws: int = DRAWS, seed: int = 0, bins: int = BINS
) -> SmoothCurve:
    """Return the smooth curve of points [n], with its draws.

    Args:
        tokens: [n], above 0, in any order.
        values: [n].
        draws: number of draws.
        seed: of the draws.
        bins: of log tokens; points in one are averaged. 0 for none.
    """
    where, measured, weight = _binned(np.log(tokens), values, bins)
    start = where[0]
    span = where[-1] - start
    x = (where - start) / span
    grid = np.unique(np.concatenate([np.linspace(0.0, 1.0, PLACES), x]))
    ratios = np.concatenate([[0.0], ROUGHNESS])
    fits = [_Spline(x, measured, weight, ratio) for ratio in ratios]
    evidence = np.array([one.evidence for one in fits])
    # A line and a curve are equally likely before the points are seen.
    evidence[1:] -= np.log(len(ROUGHNESS))
    share = np.exp(evidence - evidence.max())
    share /= share.sum()
    random = np.random.default_rng(seed)
    counts = random.multinomial(draws, share)
    curves = [
        one.draw(grid, count, random) for one, count in zip(fits, counts, strict=True) if count
    ]
    used = [(one, part) for one, part in zip(fits, share, strict=True) if part > SHARE]
    means = np.array([one.mean(grid) for one, _ in used])
    mean = np.average(means, axis=0, weights=[part for _, part in used])
    noise = float(np.sqrt(sum(part * one.variance for one, part in used)))
    return SmoothCurve(np.exp(start + span * grid), mean, np.concatenate(curves), noise)


class _Spline:
    """The spline at one roughness: its evidence, mean and draws."""

    def __init__(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray, ratio: float) -> None:
        self.x = x
        self.ratio = ratio
        self.line = np.column_stack([np.ones_like(x), x])
        covariance = ratio * _wiener(x, x) + np.diag(1 / weight)
        self.factor = cho_factor(covariance, lower=True)
        weighted = cho_solve(self.factor, self.line)
        self.precision = self.line.T @ weighted
        self.slopes = np.linalg.solve(self.precision, weighted.T @ y)
        self.residual = cho_solve(self.factor, y - self.line @ self.slopes)
        self.freedom = len(x) - 2
        self.squares = max(float((y - self.line @ self.slopes) @ self.residual), TINY**2)
        self.variance = self.squares / self.freedom
        determinant = 2 * np.log(np.diag(self.factor[0])).sum()
        determinant += np.linalg.slogdet(self.precision)[1]
        self.evidence = -(determinant + self.freedom * np.log(self.squares)) / 2

    def mean(self, grid: np.ndarray) -> np.ndarray:
        """Return the mean of the curve [K]."""
        line = np.column_stack([np.ones_like(grid), grid])
        return line @ self.slopes + self.ratio * _wiener(grid, self.x) @ self.residual

    def draw(self, grid: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
        """Return draws [count, K] of the curve, with the noise unknown."""
        cross = self.ratio * _wiener(grid, self.x)
        solved = cho_solve(self.factor, cross.T)
        line = np.column_stack([np.ones_like(grid), grid]) - solved.T @ self.line
        covariance = self.ratio * _wiener(grid, grid) - cross @ solved
        covariance += line @ np.linalg.solve(self.precision, line.T)
        scale = np.trace(covariance) / len(grid)
        root = np.linalg.cholesky(covariance + JITTER * scale * np.eye(len(grid)))
        variance = self.squares / random.chisquare(self.freedom, size=(count, 1))
        shocks = random.standard_normal((count, len(grid)))
        return self.mean(grid) + np.sqrt(variance) * (shocks @ root.T)


def _wiener(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the covariance of an integrated Wiener process that begins at 0."""
    least = np.minimum(one[:, None], other[None, :])
    most = np.maximum(one[:, None], other[None, :])
    return least**2 * (3 * most - least) / 6  # ∫∫ of min(u, v)


def _binned(
    where: np.ndarray, values: np.ndarray, bins: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return means of places and values, and the number of points, of each bin that has some."""
    order = np.argsort(where, kind="stable")
    places = where[order]
    if not bins or len(np.unique(places)) <= bins:
        group = np.unique(places, return_inverse=True)[1]
    else:
        edges = np.linspace(places[0], places[-1], bins + 1)[1:-1]
        group = np.unique(np.searchsorted(edges, places, side="right"), return_inverse=True)[1]
    count = np.bincount(group)
    at = np.bincount(group, places) / count
    mean = np.bincount(group, values[order]) / count
    return at, mean, count.astype(float)


def last_crossings(tokens: np.ndarray, above: np.ndarray, *, in_log: bool = True) -> np.ndarray:
    """Return, for curves [R, K], the tokens after which they stay at 0 or more.

    It is 0 for a curve that is so throughout, and infinite for one that is not so at its end.

    Args:
        tokens: [K] ascending.
        above: [R, K], curves minus their level.
        in_log: whether curves are linear in log tokens between places, not in tokens.
    """
    below = above < 0
    last = above.shape[1] - 1 - np.argmax(below[:, ::-1], axis=1)
    found = np.zeros(len(above))
    found[below[:, -1]] = np.inf
    inside = below.any(axis=1) & ~below[:, -1]
    rows = np.flatnonzero(inside)
    i = last[rows]
    before = above[rows, i]
    after = above[rows, i + 1]
    share = -before / (after - before)
    place = np.log(tokens) if in_log else tokens
    between = place[i] + share * (place[i + 1] - place[i])
    found[rows] = np.exp(between) if in_log else between
    return found
