"""Tokens to a target by seed and batch, where a run that missed it says only that it needs more.

In each seed the batch of the fewest is a place, or what it is between, by a parabola in log batch.

Such a run is censored at the tokens it consumed (derived here). Beside batches that reached the
target with fewer it proves that its batch is worse; else it says nothing.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

Bound = Literal["", "at most", "at least", "unknown"]  # "" is a measurement, and no bound


@dataclass(frozen=True)
class Logs:
    """Log tokens to one target, [seed, batch], batches ascending.

    Attributes:
        tokens: to the target; consumed, where it was missed; NaN where there is no run.
        met: whether the run reached the target.
    """

    tokens: pd.DataFrame
    met: pd.DataFrame

    def telling(self) -> "Logs":
        """The batches that tell of the best one in every seed.

        They reached the target, or consumed more without it than the best of those batches that
        every seed reached. Without such a batch there are none.
        """
        whole = self.tokens.columns[self.met.all()]
        least = self.tokens[whole].min(axis=1)
        tells = self.met | self.tokens.gt(least, axis=0)
        batches = self.tokens.columns[tells.all() & self.tokens.notna().all()]
        return Logs(self.tokens.loc[:, batches], self.met.loc[:, batches])

    @property
    def best(self) -> float:
        """The batch of the fewest tokens, geometric mean over seeds, of those that all reached."""
        whole = self.tokens.loc[:, self.met.all()]
        return whole.columns.tolist()[int(np.argmin(whole.sum()))]

    def apart(self, small: float, large: float) -> tuple[list[float], Bound]:
        """Log tokens of one batch less those of another by seed, and what their mean is.

        Seeds in which one of them has no run, or both missed the target, say nothing.
        """
        differences = self.tokens[small] - self.tokens[large]
        known = differences.notna() & (self.met[small] | self.met[large])
        least, most = (bool((known & ~self.met[batch]).any()) for batch in (small, large))
        return differences[known].tolist(), bound(open_below=most, open_above=least)


def bound(*, open_below: bool, open_above: bool) -> Bound:
    """What a value is that may be lower, higher or both."""
    if open_below:
        return "unknown" if open_above else "at most"
    return "at least" if open_above else ""


def by_target(points: pd.DataFrame) -> dict[float, Logs]:
    """The log tokens of a table of points, by target, highest first.

    Args:
        points: columns target_loss, seed, batch, tokens_to_target and reached.
    """
    ordered = points.assign(reached=points["reached"].astype(float)).sort_values(
        "reached", kind="stable"
    )
    tables = {}
    for target, rows in ordered.groupby("target_loss"):
        tokens, met = (
            rows.pivot_table(index="seed", columns="batch", values=name, aggfunc="last")
            for name in ("tokens_to_target", "reached")
        )
        tables[target] = Logs(tokens.map(math.log), met == 1)
    return dict(sorted(tables.items(), reverse=True))  # type: ignore[arg-type]


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
