"""Points without a law: where the minimum over batch sizes is.

Runs of one seed share initialization and data order, so tokens to a target are compared within a
seed; errors are 2 standard errors over seeds. A run that did not reach a target is censored at the
tokens it consumed. If other batch sizes reached the target with fewer tokens, its batch size is
worse; otherwise it has no information (derived here).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from bss.errors import InputError

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


@dataclass(frozen=True)
class Mean:
    """A mean over so many seeds, and 2 standard errors of it; None with fewer than two seeds."""

    value: float
    error: float | None
    seeds: int


@dataclass(frozen=True)
class TargetOptimum:
    """The batch with the fewest tokens to one target.

    Attributes:
        target_loss: in nats.
        batch: the measured batch with the fewest tokens, geometric mean over seeds, of those that
            reached the target in all.
        interior: whether smaller and larger batches reached the target too, or consumed more than
            the best without reaching it.
        log2_batch: log2 of B_opt in sequences: the minimum of a parabola in log batch through
            each seed's best batch and its neighbours; the error includes what neighbours that
            missed the target leave open. A seed whose best batch is the smallest or the largest
            has that batch. No error where that is so of every seed.
        bound: what log2_batch is where some seed's best batch is the smallest ("at most") or the
            largest ("at least") of those that tell of it.
    """

    target_loss: float
    batch: float
    interior: bool
    log2_batch: Mean
    bound: Bound

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """B_opt less and plus 2 standard errors, in sequences; None on the side left open."""
        log, bound, error = self.log2_batch.value, self.bound, self.log2_batch.error
        if error is None and not bound:
            return None, None
        low, high = 2 ** (log - (error or 0)), 2 ** (log + (error or 0))
        open_below, open_above = ("at most", "unknown"), ("at least", "unknown")
        return None if bound in open_below else low, None if bound in open_above else high


def mean(values: Sequence[float]) -> Mean:
    """The mean over seeds with 2 standard errors."""
    count = len(values)
    error = float(2 * np.std(values, ddof=1) / math.sqrt(count)) if count > 1 else None
    return Mean(float(np.mean(values)) if count else math.nan, error, count)


def optima(points: pd.DataFrame) -> list[TargetOptimum]:
    """The best batch at each target that some batch reached in every seed, highest loss first.

    Batches count as `bss.points.crossings.Logs.telling` has it: one that missed the target
    counts where it consumed more than the best, and leaves its side open where it did not.

    Args:
        points: One row per batch, target and seed, as `by_target` takes them.

    Raises:
        InputError: no batch reached any target in every seed.
    """
    rows = []
    for target, logs in _telling(points).items():
        batches, best, lowest = logs.tokens.columns.tolist(), logs.best, best_batches(logs)
        interior = batches[0] < best < batches[-1]
        rows.append(TargetOptimum(target, best, interior, _log2_batch(lowest), lowest.bound))
    return rows


def _log2_batch(lowest: Between) -> Mean:
    """The mean over seeds, its error wider by what is open between ends."""
    over_seeds = mean(lowest.value.tolist())
    if over_seeds.error is None or not np.isfinite(lowest.high - lowest.low).any():
        return replace(over_seeds, error=None)
    return replace(over_seeds, error=over_seeds.error + lowest.reach)


def _telling(points: pd.DataFrame) -> dict[float, Logs]:
    """The batches that tell of the best one, at each target that some reached in every seed."""
    seeds = points["seed"].nunique()
    tables = {target: logs.telling() for target, logs in by_target(points).items()}
    usable = {
        t: logs for t, logs in tables.items() if len(logs.tokens) == seeds and logs.tokens.size
    }
    if not usable:
        raise InputError("points: no batch reached a target in every seed; choose higher targets")
    return usable
