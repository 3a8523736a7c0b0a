"""Where the curve of tokens over batches is lowest, in each seed: a place, or what it is between.

By a parabola in log batch (derived here).
"""

from dataclasses import dataclass

import numpy as np

from bss.points.censored import Bound, Logs, bound


@dataclass(frozen=True)
class Between:
    """log2 of the best batch by seed [S]: a value, and the ends that it may be moved between."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def bound(self) -> Bound:
        """What the mean of the values is."""
        below, above = (bool(np.isinf(ends).any()) for ends in (self.low, self.high))
        return bound(open_below=below, open_above=above)

    @property
    def reach(self) -> float:
        """How far the mean may be from that of the values, where both its ends are closed."""
        apart = np.maximum(self.high - self.value, self.value - self.low)
        return float(np.where(np.isfinite(apart), apart, 0.0).mean())


def best_batches(logs: Logs) -> Between:
    """Where each seed's curve is lowest, of `Logs.telling`.

    The minimum of a parabola in log batch through the best batch and its neighbours. Where a
    neighbour missed the target, its higher place on the curve moves the minimum away from it, at
    most to the middle of the other neighbour and the best batch: the value is then the place
    nearest to the best batch. A best batch at an edge has no end on that side.
    """
    x = np.log2(logs.tokens.columns.to_numpy(float))
    rows = zip(logs.tokens.to_numpy(), logs.met.to_numpy(), strict=True)
    return Between(*np.array([_lowest(x, y, met) for y, met in rows]).T)


def _lowest(x: np.ndarray, y: np.ndarray, met: np.ndarray) -> tuple[float, float, float]:
    """The value and the ends of one seed."""
    i, last = int(np.argmin(y)), len(y) - 1
    if not 0 < i < last:
        return x[i], -np.inf if i == 0 else x[i], np.inf if i == last else x[i]
    minimum = parabola_minimum(x, y)
    low = minimum if met[i + 1] else (x[i - 1] + x[i]) / 2
    high = minimum if met[i - 1] else (x[i] + x[i + 1]) / 2
    return float(np.clip(x[i], low, high)), low, high


def parabola_minimum(x: np.ndarray, y: np.ndarray) -> float:
    """Where a parabola through the lowest of points [N], x in order, and its neighbours is lowest.

    The lowest point itself where it is the first or the last, or the three are on a line.
    """
    i = int(np.argmin(y))
    if not 0 < i < len(y) - 1:
        return float(x[i])
    curvature, slope, _ = np.polyfit(x[i - 1 : i + 2] - x[i], y[i - 1 : i + 2], 2)
    return float(x[i] - slope / (2 * curvature)) if curvature > 1e-12 else float(x[i])
