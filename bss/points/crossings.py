"""What points say of the batch without any law: which curves cross, and where the minimum is.

Runs of one seed share initialisation and data order, so tokens to a target are compared within a
seed; errors are 2 standard errors over seeds (derived here).
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Literal

import numpy as np
import pandas as pd

from bss.errors import InputError

Bound = Literal["", "at most", "at least", "unknown"]  # "" is a measurement, and no bound
_REVERSED: dict[Bound, Bound] = {
    "": "",
    "at most": "at least",
    "at least": "at most",
    "unknown": "unknown",
}


@dataclass(frozen=True)
class Mean:
    """A mean over so many seeds, and 2 standard errors of it; None with fewer than two seeds."""

    value: float
    error: float | None
    seeds: int

    @property
    def sign(self) -> int:
        """1 or -1 where the mean is beyond its error, else 0."""
        beyond = self.error is not None and abs(self.value) > self.error
        return int(math.copysign(1, self.value)) if beyond else 0


@dataclass(frozen=True)
class Optimum:
    """The batch with the fewest tokens to one target.

    Attributes:
        target_loss: in nats.
        batch: the measured batch with the fewest tokens, geometric mean over seeds.
        interior: whether smaller and larger batches reached the target too.
        log2_batch: log2 of B_opt in sequences: the minimum of a parabola in log batch through
            each seed's best batch and its neighbours. A seed whose best batch is the smallest or
            the largest has that batch. No error where that is so of every seed.
        bound: what log2_batch is where some seed's best batch is the smallest ("at most") or the
            largest ("at least") of those that reached the target.
        over_smallest, over_largest: log of the tokens of the smallest and of the largest batch
            measured over those of `batch`.
    """

    target_loss: float
    batch: float
    interior: bool
    log2_batch: Mean
    bound: Bound
    over_smallest: Mean
    over_largest: Mean

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """B_opt less and plus 2 standard errors, in sequences; None on the side left open."""
        log, bound, error = self.log2_batch.value, self.bound, self.log2_batch.error
        if error is None and not bound:
            return None, None
        low, high = 2 ** (log - (error or 0)), 2 ** (log + (error or 0))
        open_below, open_above = ("at most", "unknown"), ("at least", "unknown")
        return None if bound in open_below else low, None if bound in open_above else high


@dataclass(frozen=True)
class Growth:
    """How far B_opt rises from the highest target to the lowest.

    Attributes:
        doublings: of each seed.
        bound: what they are where an optimum at either end is only a bound.
    """

    doublings: tuple[float, ...]
    bound: Bound

    @property
    def mean(self) -> Mean:
        """Over seeds; without an error where it bounds nothing."""
        found = mean(self.doublings)
        return Mean(found.value, None, found.seeds) if self.bound == "unknown" else found


def mean(values: Sequence[float]) -> Mean:
    """The mean over seeds with 2 standard errors."""
    count = len(values)
    error = float(2 * np.std(values, ddof=1) / math.sqrt(count)) if count > 1 else None
    return Mean(float(np.mean(values)) if count else math.nan, error, count)


def parabola_minimum(x: np.ndarray, y: np.ndarray) -> float:
    """Where a parabola through the lowest of points [N], x in order, and its neighbours is lowest.

    The lowest point itself where it is the first or the last, or the three are on a line.
    """
    i = int(np.argmin(y))
    if not 0 < i < len(y) - 1:
        return float(x[i])
    curvature, slope, _ = np.polyfit(x[i - 1 : i + 2] - x[i], y[i - 1 : i + 2], 2)
    return float(x[i] - slope / (2 * curvature)) if curvature > 1e-12 else float(x[i])


def crossings(points: pd.DataFrame) -> pd.DataFrame:
    """For each pair of batches and each target, which needs more tokens.

    Of a table of points with one row for each batch, target and seed.

    Returns:
        Columns small, large, target_loss, log_ratio, error, seeds: log of the tokens of the small
        batch over those of the large one. Only seeds in which both reached the target count.
    """
    rows = []
    for target, logs in _log_tokens(points).items():
        for small, large in itertools.combinations(logs, 2):
            both = (logs[small] - logs[large]).dropna().tolist()
            if both:
                rows.append((small, large, target, *astuple(mean(both))))
    columns = ["small", "large", "target_loss", "log_ratio", "error", "seeds"]
    return pd.DataFrame(rows, columns=columns)


def crossing_pairs(table: pd.DataFrame) -> list[tuple[float, float]]:
    """Pairs in the table of `crossings` whose curves cross beyond 2 standard errors.

    The small batch needs fewer tokens to some loss, and more to a lower one.
    """
    found = []
    for _, rows in table.groupby(["small", "large"]):
        ahead: float | None = None
        for row in rows.sort_values("target_loss", ascending=False).to_dict("records"):
            sign = Mean(row["log_ratio"], row["error"], row["seeds"]).sign
            if sign < 0:
                ahead = row["target_loss"]
            elif sign > 0 and ahead is not None:
                found.append((row["small"], row["large"]))
                break
    return found


def optima(points: pd.DataFrame) -> list[Optimum]:
    """The best batch at each target that every seed reached, highest loss first.

    Only batches that reached it in every seed count; the points are as for `crossings`.

    Raises:
        InputError: no batch reached any target in every seed.
    """
    found = []
    for target, logs in _common(points).items():
        batches, bounds = logs.columns.tolist(), _bounds(logs)
        best = batches[int(np.argmin(logs.sum()))]
        smallest, largest = ((logs[end] - logs[best]).tolist() for end in (batches[0], batches[-1]))
        log2_batch = mean(_best_batches(logs).tolist())
        if all(bounds):
            log2_batch = Mean(log2_batch.value, None, log2_batch.seeds)
        interior, bound = batches[0] < best < batches[-1], _joined(bounds)
        found.append(
            Optimum(target, best, interior, log2_batch, bound, mean(smallest), mean(largest))
        )
    return found


def growth(points: pd.DataFrame) -> Growth:
    """Doublings of B_opt from the highest target to the lowest of `optima`, within each seed."""
    tables = list(_common(points).values())
    first, last = tables[0], tables[-1]
    doublings = tuple((_best_batches(last) - _best_batches(first)).tolist())
    return Growth(doublings, _joined([*(_REVERSED[b] for b in _bounds(first)), *_bounds(last)]))


def _log_tokens(points: pd.DataFrame) -> dict[float, pd.DataFrame]:
    """By target, highest first: log tokens of each seed (row) and batch, NaN if not reached."""
    reached = points[points["reached"].astype(bool)]
    tables = {
        target: rows.groupby(["seed", "batch"])["tokens_to_target"].last().map(math.log).unstack()
        for target, rows in reached.groupby("target_loss")
    }
    return dict(sorted(tables.items(), reverse=True))  # type: ignore[arg-type]


def _common(points: pd.DataFrame) -> dict[float, pd.DataFrame]:
    """`_log_tokens` at the batches that reached a target in every seed of the table."""
    seeds = points["seed"].nunique()
    tables = {target: logs.dropna(axis=1) for target, logs in _log_tokens(points).items()}
    found = {t: logs for t, logs in tables.items() if len(logs) == seeds and len(logs.columns)}
    if not found:
        raise InputError("points: no batch reached a target in every seed; choose higher targets")
    return found


def _bounds(logs: pd.DataFrame) -> list[Bound]:
    """What each seed's best batch is: a bound where it is the smallest or the largest."""
    smallest, largest = logs.columns[0], logs.columns[-1]
    names: dict[tuple[bool, bool], Bound] = {
        (True, True): "unknown",
        (True, False): "at most",
        (False, True): "at least",
        (False, False): "",
    }
    return [names[best == smallest, best == largest] for best in logs.idxmin(axis=1)]


def _joined(bounds: Iterable[Bound]) -> Bound:
    """What a mean is of values that are bounds."""
    found: list[Bound] = list({bound for bound in bounds if bound})
    if len(found) > 1:
        return "unknown"
    return found[0] if found else ""


def _best_batches(logs: pd.DataFrame) -> np.ndarray:
    """log2 of the batch at the minimum of each seed's curve."""
    log_batch = np.log2(logs.columns.to_numpy(float))
    return np.array([parabola_minimum(log_batch, row) for row in logs.to_numpy()])
