"""The measured minimum over batch sizes as the page of the site computes it, in Python.

The package itself has `bss.laws.minimum`, with an interval.

Runs of one seed share initialization and data order, so tokens to a target are compared within a
seed; errors are 2 standard errors over seeds. A run that did not reach a target is censored at the
tokens it consumed. If other batch sizes reached the target with fewer tokens, its batch size is
worse; otherwise it has no information (derived here).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import pandas as pd

from bss.errors import InputError

Bound = Literal["", "at least", "at most", "unknown"]  # "": a measured value, not a bound
BOUNDS: tuple[Bound, ...] = get_args(Bound)


@dataclass(frozen=True)
class Logs:
    """Log tokens to one target, [seed, batch], with batch sizes in ascending order.

    Attributes:
        tokens: Log tokens to the target, or log tokens consumed if the run did not reach it. NaN
            if the run is missing.
        met: Whether the run reached the target.
    """

    tokens: pd.DataFrame
    met: pd.DataFrame

    def telling(self) -> "Logs":
        """Return the batch sizes that are informative about the best one in every seed.

        A run is informative if it reached the target. It is also informative if it consumed more
        tokens without reaching it than the best batch size that reached it in every seed. The
        result is empty if no batch size reached the target in every seed.
        """
        whole = self.tokens.columns[self.met.all()]
        least = self.tokens[whole].min(axis=1)
        tells = self.met | self.tokens.gt(least, axis=0)
        batches = self.tokens.columns[tells.all() & self.tokens.notna().all()]
        return Logs(self.tokens.loc[:, batches], self.met.loc[:, batches])

    @property
    def best(self) -> float:
        """The batch size with the fewest tokens (geometric mean over seeds).

        Only batch sizes that reached the target in every seed are compared.
        """
        whole = self.tokens.loc[:, self.met.all()]
        return whole.columns.tolist()[int(np.argmin(whole.sum()))]


def by_target(points: pd.DataFrame) -> dict[float, Logs]:
    """Return the log tokens of a table of points, by target, highest first.

    Args:
        points: Columns target_loss, seed, batch, tokens_to_target and reached.
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
    """log2 of the best batch size by seed [S], with the lower and upper end of each value."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def bound(self) -> Bound:
        """The kind of bound that the mean of the values is."""
        below, above = (bool(np.isinf(ends).any()) for ends in (self.low, self.high))
        return BOUNDS[2 * below + above]

    @property
    def reach(self) -> float:
        """Largest possible shift of the mean. Infinite ends are not counted."""
        apart = np.maximum(self.high - self.value, self.value - self.low)
        return float(np.where(np.isfinite(apart), apart, 0.0).mean())


def best_batches(logs: Logs) -> Between:
    """Estimate log2 of the best batch size for each seed, from the result of `Logs.telling`.

    The estimate is the minimum of a parabola in log batch size through the best batch size and
    its neighbours. If a neighbour missed the target, its true token count is higher, which moves
    the minimum away from it. The minimum moves at most to the midpoint between the other
    neighbour and the best batch size, so the value nearest to the best batch size is returned.
    If the best batch size is the smallest or the largest, the interval is open on that side.
    """
    x = np.log2(logs.tokens.columns.to_numpy(float))
    rows = zip(logs.tokens.to_numpy(), logs.met.to_numpy(), strict=True)
    return Between(*np.array([_lowest(x, y, met) for y, met in rows]).T)


def _lowest(x: np.ndarray, y: np.ndarray, met: np.ndarray) -> tuple[float, float, float]:
    """Return the value with its lower and upper end for one seed."""
    i, last = int(np.argmin(y)), len(y) - 1
    if not 0 < i < last:
        return x[i], -np.inf if i == 0 else x[i], np.inf if i == last else x[i]
    curvature, slope, _ = np.polyfit(x[i - 1 : i + 2] - x[i], y[i - 1 : i + 2], 2)
    minimum = float(x[i] - slope / (2 * curvature)) if curvature > 1e-12 else float(x[i])
    low = minimum if met[i + 1] else (x[i - 1] + x[i]) / 2
    high = minimum if met[i - 1] else (x[i] + x[i + 1]) / 2
    return float(np.clip(x[i], low, high)), low, high


@dataclass(frozen=True)
class Mean:
    """A mean over seeds with 2 standard errors. The error is None for fewer than two seeds."""

    value: float
    error: float | None
    seeds: int


@dataclass(frozen=True)
class TargetOptimum:
    """The batch size with the fewest tokens to one target.

    Attributes:
        target_loss: Target loss in nats.
        batch: The measured batch size with the fewest tokens (geometric mean over seeds). Only
            batch sizes that reached the target in every seed are compared.
        interior: Whether smaller and larger batch sizes are informative too (`Logs.telling`).
        log2_batch: log2 of B_opt in sequences. For each seed it is the minimum of a parabola in
            log batch size through the best batch size and its neighbours. The error includes the
            uncertainty from neighbours that missed the target. If a seed's best batch size is the
            smallest or the largest, that batch size is used. If this holds for every seed, the
            error is None.
        bound: "at most" if the best batch size of some seed is the smallest informative one, "at
            least" if it is the largest.
    """

    target_loss: float
    batch: float
    interior: bool
    log2_batch: Mean
    bound: Bound


def mean(values: Sequence[float]) -> Mean:
    """Return the mean over seeds with 2 standard errors."""
    count = len(values)
    error = float(2 * np.std(values, ddof=1) / math.sqrt(count)) if count > 1 else None
    return Mean(float(np.mean(values)) if count else math.nan, error, count)


def optima(points: pd.DataFrame) -> list[TargetOptimum]:
    """Return the best batch size at each target, highest loss first.

    Targets are used if some batch size reached them in every seed. A batch size that missed the
    target counts only if it consumed more tokens than the best one (`Logs.telling`). Otherwise
    the interval has no limit on its side.

    Args:
        points: A table with one row per batch size, target and seed.

    Raises:
        InputError: If no batch size reached any target in every seed.
    """
    rows = []
    for target, logs in _telling(points).items():
        batches, best, lowest = logs.tokens.columns.tolist(), logs.best, best_batches(logs)
        interior = batches[0] < best < batches[-1]
        rows.append(TargetOptimum(target, best, interior, _log2_batch(lowest), lowest.bound))
    return rows


def _log2_batch(lowest: Between) -> Mean:
    """Return the mean over seeds. Its error includes the interval of each seed's value."""
    over_seeds = mean(lowest.value.tolist())
    if over_seeds.error is None or not np.isfinite(lowest.high - lowest.low).any():
        return replace(over_seeds, error=None)
    return replace(over_seeds, error=over_seeds.error + lowest.reach)


def _telling(points: pd.DataFrame) -> dict[float, Logs]:
    """Return the informative batch sizes at each target that some reached in every seed."""
    seeds = points["seed"].nunique()
    tables = {target: logs.telling() for target, logs in by_target(points).items()}
    usable = {
        t: logs for t, logs in tables.items() if len(logs.tokens) == seeds and logs.tokens.size
    }
    if not usable:
        raise InputError("points: no batch reached a target in every seed; choose higher targets")
    return usable
