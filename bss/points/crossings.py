"""What points say of the batch without any law: which curves cross, and where the minimum is.

Runs of one seed share initialisation and data order, so tokens to a target are compared within a
seed; errors are 2 standard errors over seeds (derived here).
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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
    """A mean over seeds.

    Attributes:
        value: the mean.
        error: 2 standard errors; None with fewer than two seeds.
        seeds: how many.
    """

    value: float
    error: float | None
    seeds: int

    @property
    def sign(self) -> int:
        """1 or -1 where the mean is beyond its error, else 0."""
        if self.error is None or not abs(self.value) > self.error or math.isnan(self.error):
            return 0
        return int(math.copysign(1, self.value))


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
        over_smallest: log of the tokens of the smallest batch measured over those of `batch`.
        over_largest: the same of the largest batch.
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
    """Where a parabola through the lowest of some points and its neighbours is lowest.

    The lowest point itself where it is the first or the last, or the three are on a line.

    Args:
        x: [N], in order.
        y: [N].
    """
    i = int(np.argmin(y))
    if not 0 < i < len(y) - 1:
        return float(x[i])
    curvature, slope, _ = np.polyfit(x[i - 1 : i + 2] - x[i], y[i - 1 : i + 2], 2)
    return float(x[i] - slope / (2 * curvature)) if curvature > 1e-12 else float(x[i])


def crossings(points: pd.DataFrame) -> pd.DataFrame:
    """For each pair of batches and each target, which needs more tokens.

    Args:
        points: table of points, one row for each batch, target and seed.

    Returns:
        Columns small, large, target_loss, log_ratio, error, seeds: log of the tokens of the small
        batch over those of the large one. Only seeds in which both reached the target count.
    """
    rows = []
    for target, seeds in _by_target(points):
        batches = sorted({batch for logs in seeds.values() for batch in logs})
        for small, large in itertools.combinations(batches, 2):
            both = [logs for logs in seeds.values() if small in logs and large in logs]
            if both:
                found = mean([logs[small] - logs[large] for logs in both])
                rows.append((small, large, target, found.value, found.error, found.seeds))
    columns = ["small", "large", "target_loss", "log_ratio", "error", "seeds"]
    return pd.DataFrame(rows, columns=columns)


def crossing_pairs(table: pd.DataFrame) -> list[tuple[float, float]]:
    """Pairs whose curves cross beyond 2 standard errors.

    The small batch needs fewer tokens to some loss, and more to a lower one.

    Args:
        table: of `crossings`.
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

    Only batches that reached it in every seed count.

    Args:
        points: table of points, one row for each batch, target and seed.

    Raises:
        InputError: no batch reached any target in every seed.
    """
    found = []
    for target, seeds in _common(points):
        tables = list(seeds.values())
        batches = sorted(tables[0])
        best = min(batches, key=lambda batch: sum(logs[batch] for logs in tables))
        logs_of_best = mean([_best_batch(logs) for logs in tables])
        bounds: list[Bound] = [_edge(logs) for logs in tables]
        found.append(
            Optimum(
                target,
                best,
                batches[0] < best < batches[-1],
                Mean(logs_of_best.value, None, len(tables)) if all(bounds) else logs_of_best,
                _joined(bounds),
                mean([logs[batches[0]] - logs[best] for logs in tables]),
                mean([logs[batches[-1]] - logs[best] for logs in tables]),
            )
        )
    return found


def growth(points: pd.DataFrame) -> Growth:
    """Doublings of B_opt from the highest target to the lowest of `optima`, within each seed."""
    ends = _common(points)
    first, last = ends[0][1], ends[-1][1]
    doublings = tuple(_best_batch(last[seed]) - _best_batch(first[seed]) for seed in first)
    bounds: list[Bound] = [_REVERSED[_edge(logs)] for logs in first.values()]
    bounds += [_edge(logs) for logs in last.values()]
    return Growth(doublings, _joined(bounds))


def _by_target(points: pd.DataFrame) -> Iterator[tuple[float, dict[int, dict[float, float]]]]:
    """Targets, highest first, with log tokens by seed and batch where the target was reached."""
    table: dict[float, dict[int, dict[float, float]]] = {}
    for row in points.sort_values("target_loss", ascending=False).to_dict("records"):
        if row["reached"]:
            seeds = table.setdefault(row["target_loss"], {})
            log_tokens = math.log(row["tokens_to_target"])
            seeds.setdefault(row["seed"], {})[row["batch"]] = log_tokens
    yield from table.items()


def _common(points: pd.DataFrame) -> list[tuple[float, dict[int, dict[float, float]]]]:
    """`_by_target` at the batches that reached a target in every seed of the table."""
    everyone = set(points["seed"])
    found = []
    for target, seeds in _by_target(points):
        shared = set.intersection(*(set(logs) for logs in seeds.values()))
        if shared and set(seeds) == everyone:
            kept = {s: {b: logs[b] for b in sorted(shared)} for s, logs in sorted(seeds.items())}
            found.append((target, kept))
    if not found:
        raise InputError("points: no batch reached a target in every seed; choose higher targets")
    return found


def _best_batch(logs: dict[float, float]) -> float:
    """log2 of the batch at the minimum of one seed's curve: log tokens by batch."""
    batches = sorted(logs)
    return parabola_minimum(np.log2(batches), np.array([logs[batch] for batch in batches]))


def _edge(logs: dict[float, float]) -> Bound:
    """What one seed's best batch is: a bound where it is the smallest or the largest."""
    best = min(sorted(logs), key=lambda batch: logs[batch])
    if best == min(logs):
        return "unknown" if best == max(logs) else "at most"
    return "at least" if best == max(logs) else ""


def _joined(bounds: Iterable[Bound]) -> Bound:
    """What a mean is of values that are bounds."""
    found: list[Bound] = list({bound for bound in bounds if bound})
    if len(found) > 1:
        return "unknown"
    return found[0] if found else ""
