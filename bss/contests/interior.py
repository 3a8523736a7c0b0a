"""Whether the best batch lies inside those measured: are both ends worse than one between?

For each table by itself, with one-sided p values of each difference's own Student t over paired
seeds, then Holm over the tables (derived here). Whoever asks chooses the inner batch on losses that
are not judged: the lowest of several is lower than it should be.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import pandas as pd
from scipy.stats import ttest_rel

from bss.contests.contrasts import LEVEL, holm
from bss.errors import InputError

PlaceVerdict = Literal["interior", "edge", "undecided"]
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Placement:
    """Where the best batch of a table lies; batches in sequences, losses in nats.

    Attributes:
        best: the batch with the lowest mean loss.
        inner: the one between the ends that they are compared with.
        smallest_above: mean loss of the smallest batch less that of the inner one.
        largest_above: the same of the largest.
        p: the larger of the one-sided p values that the ends are worse.
        p_adjusted: after Holm over the tables.
        verdict: "interior" where that is below 5%; else "edge" where the smallest batch is the
            best, or no other is lower by its own t after Holm within the table and over the tables:
            the best batch is at most the smallest; else "undecided".
        n: seeds.
    """

    best: float
    inner: float
    smallest_above: float
    largest_above: float
    p: float
    p_adjusted: float
    verdict: PlaceVerdict
    n: int


def positions(tables: Mapping[K, pd.DataFrame], inner: Mapping[K, float]) -> dict[K, Placement]:
    """Where the best batch of each table lies.

    Args:
        tables: losses [batch, seed], none missing, three batches or more and two seeds or more.
        inner: the batch of each that its ends are compared with.

    Raises:
        InputError: an inner batch is not between the ends of its table.
    """
    sorted_tables = {key: table.sort_index() for key, table in tables.items()}
    for key, table in sorted_tables.items():
        if inner[key] not in table.index[1:-1]:
            raise InputError(
                f"inner: batch {inner[key]:g} of {key} is not between {table.index[0]:g} and "
                f"{table.index[-1]:g}; choose one of {[*table.index[1:-1]]}"
            )
    worse = [_ends_worse(table, inner[key]) for key, table in sorted_tables.items()]
    lower = [_any_lower(table) for table in sorted_tables.values()]
    adjusted = zip(tables, sorted_tables.values(), worse, holm(worse), holm(lower), strict=True)
    return {
        key: _position(table, inner[key], p, float(p_worse), p_lower >= 1 - LEVEL)
        for key, table, p, p_worse, p_lower in adjusted
    }


def _position(
    table: pd.DataFrame, inner: float, p: float, p_adjusted: float, none_lower: bool
) -> Placement:
    mean = table.mean(axis="columns").to_numpy(float)
    batches, at = table.index.to_numpy(float), int(np.argmin(mean))
    otherwise: PlaceVerdict = "edge" if at == 0 or none_lower else "undecided"
    verdict = "interior" if p_adjusted < 1 - LEVEL else otherwise
    smallest, largest = (float(mean[end] - mean[batches == inner][0]) for end in (0, -1))
    best, seeds = float(batches[at]), table.shape[1]
    return Placement(best, inner, smallest, largest, p, p_adjusted, verdict, seeds)


def _ends_worse(table: pd.DataFrame, inner: float) -> float:
    """The larger one-sided p of the two ends being worse than the inner batch."""
    between = table.loc[inner].to_numpy(float)
    ends = table.iloc[[0, -1]].to_numpy(float)
    return max(float(ttest_rel(end, between, alternative="greater").pvalue) for end in ends)


def _any_lower(table: pd.DataFrame) -> float:
    """The least one-sided p, after Holm, of another batch being lower than the smallest."""
    first, *others = table.to_numpy(float)
    return float(min(holm([ttest_rel(o, first, alternative="less").pvalue for o in others])))
