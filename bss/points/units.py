"""Runs in bits per token among runs in nats: found by a column of units, or by their level.

A loss in bits is 1/ln 2 = 1.443 times the loss in nats. Two curves of one model whose ratio is this
number all along are of two units: a worse learning rate or another batch size changes the ratio
while losses fall (derived here).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.points.curve import FEWEST, loss_column

UNIT_COLUMNS = ("unit", "units", "loss_unit", "loss_units")
LOG_RATIO = -math.log(math.log(2))
"""Logarithm of a loss in bits divided by the loss in nats."""
NEAR = 0.02
"""Distances of the median log ratio from LOG_RATIO, and between the halves of a curve, for runs of
one batch size: the noise of a training loss, about a percent per run (derived here)."""
BETWEEN = 0.05
"""NEAR for a run and what runs of other batch sizes predict for it (derived here)."""
FALLS = 0.1
"""Least change of the log loss: a flat curve has a steady ratio to any other (derived here)."""


def in_nats(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the runs without those in bits, and a warning that names them.

    Args:
        runs: A run table as `bss.tables.check_runs` returns it.

    Raises:
        InputError: If every run is in bits by a column of units.
    """
    stated = _stated(runs)
    if stated and len(stated) == runs["run"].nunique():
        first = next(iter(stated.values()))
        raise InputError(f"runs: every run is in bits by {first}; multiply the losses by ln 2")
    rest = runs.loc[~runs["run"].isin([*stated])]
    warnings = [_warning([*stated], f"in bits by {next(iter(stated.values()))}")] if stated else []
    by_level = _by_level(rest)
    if by_level:
        run, other = next(iter(by_level.items()))
        warnings.append(
            _warning(
                [*by_level],
                f"not in the unit of the others: losses of {run} and {other} have the ratio "
                f"{math.exp(LOG_RATIO):.3f} of bits to nats",
            )
        )
        rest = rest.loc[~rest["run"].isin([*by_level])]
    return rest, warnings


def _warning(names: Sequence[str], reason: str) -> str:
    listed = ", ".join(names[:FEWEST]) + (", ..." if len(names) > FEWEST else "")
    number = "1 run is" if len(names) == 1 else f"{len(names)} runs are"
    return f"{number} left out, {reason} ({listed}); multiply losses in bits by ln 2 = 0.6931"


def _stated(runs: pd.DataFrame) -> dict[str, str]:
    """Return the runs that a column states to be in bits, with the name of the column."""
    found: dict[str, str] = {}
    for column in [name for name in UNIT_COLUMNS if name in runs]:
        in_bits = runs[column].astype(str).str.contains(r"\bbits?\b|\bbp[btc]\b", case=False)
        found |= dict.fromkeys(runs.loc[in_bits, "run"].unique(), f"column {column}")
    return found


def _by_level(runs: pd.DataFrame) -> dict[str, str]:
    """Return the runs whose level is of another unit, each with a run of the usual one.

    The smaller of two groups is of the other unit. If two groups are equal, it has the higher
    losses.
    """
    high: dict[str, str] = {}
    low: dict[str, str] = {}
    for group in _of_one_model(runs):
        curves = _curves(group)
        for run, other in _pairs(curves):
            high.setdefault(run, other)
            low.setdefault(other, run)
        if not high:
            high |= _off_their_neighbours(curves)
    return low if low and len(low) < len(high) else high


def _of_one_model(runs: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the runs of each model."""
    keys = [name for name in ("model", "params", "seq_len") if name in runs]
    if not keys:
        yield runs
        return
    for _, group in runs.groupby(keys, dropna=False, sort=False):
        yield group


@dataclass(frozen=True)
class _Curve:
    """Log losses of a run by log tokens."""

    run: str
    batch: float
    tokens: np.ndarray
    losses: np.ndarray


def _curves(runs: pd.DataFrame) -> list[_Curve]:
    """Return the curves of the runs that have enough losses."""
    column = loss_column(runs)
    known = runs.loc[np.isfinite(runs[column].to_numpy(float)) & (runs["tokens"] > 0)]
    batches = known["batch"].to_numpy(float)
    tokens = known["tokens"].to_numpy(float)
    losses = known[column].to_numpy(float)
    return [
        _Curve(str(run), float(batches[rows[-1]]), np.log(tokens[rows]), np.log(losses[rows]))
        for run, rows in known.groupby("run", sort=False).indices.items()
        if len(rows) >= FEWEST
    ]


def _pairs(curves: Sequence[_Curve]) -> Iterator[tuple[str, str]]:
    """Yield pairs of runs of one batch size of which the first has the second's losses in bits."""
    by_batch: dict[float, list[_Curve]] = {}
    for curve in curves:
        by_batch.setdefault(curve.batch, []).append(curve)
    for group in by_batch.values():
        for curve, other in _near_the_ratio(group):
            expected = np.interp(curve.tokens, other.tokens, other.losses)
            inside = (curve.tokens >= other.tokens[0]) & (curve.tokens <= other.tokens[-1])
            if _in_bits(curve, expected, inside, NEAR):
                yield curve.run, other.run


def _near_the_ratio(group: Sequence[_Curve]) -> Iterator[tuple[_Curve, _Curve]]:
    """Yield the pairs whose median log ratio can be near LOG_RATIO, in the order of the group.

    Half of the log ratios are then above the lower end of what is near, and half below the upper
    end. This is compared for all curves at once.
    """
    longest = max(len(curve.tokens) for curve in group)
    tokens, losses = np.full((2, len(group), longest), np.nan)
    for i, curve in enumerate(group):
        tokens[i, : len(curve.tokens)] = curve.tokens
        losses[i, : len(curve.tokens)] = curve.losses
    places: list[tuple[int, int]] = []
    for j, other in enumerate(group):
        inside = (tokens >= other.tokens[0]) & (tokens <= other.tokens[-1])
        apart = losses - np.interp(tokens, other.tokens, other.losses)
        counts = inside.sum(axis=1)
        near = counts >= 2 * FEWEST
        near &= (inside & (apart >= LOG_RATIO - NEAR)).sum(axis=1) >= counts / 2
        near &= (inside & (apart <= LOG_RATIO + NEAR)).sum(axis=1) >= counts / 2
        places += [(i, j) for i in np.flatnonzero(near).tolist() if i != j]
    for i, j in sorted(places):
        yield group[i], group[j]


def _off_their_neighbours(curves: Sequence[_Curve]) -> dict[str, str]:
    """Return the runs in bits by the curves of other batch sizes, each with a run of those.

    One run is taken out after another, as it may be a neighbour: first those between two others.
    """
    found: dict[str, str] = {}
    left = list(curves)
    while True:
        off = {curve.run: at for curve in left if (at := _off_its_neighbours(curve, left))}
        if not off:
            return found
        nearest = min(off, key=lambda run: off[run][:2])
        found[nearest] = off[nearest][2]
        left = [curve for curve in left if curve.run != nearest]


def _off_its_neighbours(curve: _Curve, curves: Sequence[_Curve]) -> tuple[bool, float, str] | None:
    """Return whether both neighbours of a run in bits are on one side, its error, and a neighbour.

    None is for a run that is not in bits.

    The log loss at equal tokens is taken as linear in the log of the batch size. It is predicted by
    the nearest batch sizes on both sides, or by two on one side. Only late losses are compared.
    """
    others = {one.batch: one for one in curves if one.batch != curve.batch}
    nearest = sorted(others, key=lambda batch: abs(math.log(batch / curve.batch)))
    below = [others[batch] for batch in nearest if batch < curve.batch]
    above = [others[batch] for batch in nearest if batch > curve.batch]
    pair = [*below[:1], *above[:1]] if below and above else [*below, *above][:2]
    if len(pair) < 2:
        return None
    first = np.interp(curve.tokens, pair[0].tokens, pair[0].losses)
    second = np.interp(curve.tokens, pair[1].tokens, pair[1].losses)
    share = math.log(curve.batch / pair[0].batch) / math.log(pair[1].batch / pair[0].batch)
    expected = first + share * (second - first)
    start = max(float(np.median(curve.tokens)), *(one.tokens[0] for one in pair))
    end = min(one.tokens[-1] for one in pair)
    inside = (curve.tokens >= start) & (curve.tokens <= end)
    if not _in_bits(curve, expected, inside, BETWEEN):
        return None
    apart = float(np.median((curve.losses - expected)[inside]))
    return not (below and above), abs(apart - LOG_RATIO), pair[0].run


def _in_bits(curve: _Curve, expected: np.ndarray, inside: np.ndarray, near: float) -> bool:
    """Return whether the losses of a curve are those expected, in bits.

    Args:
        curve: The curve.
        expected: Log losses in nats at its tokens.
        inside: Which of its rows are compared.
        near: Greatest distance of the median log ratio from LOG_RATIO, and between its halves.
    """
    apart = (curve.losses - expected)[inside]
    if len(apart) < 2 * FEWEST or np.ptp(expected) < FALLS:
        return False
    halves = np.array_split(apart, 2)
    drifted = abs(float(np.median(halves[0])) - float(np.median(halves[1])))
    return abs(float(np.median(apart)) - LOG_RATIO) <= near and drifted <= near
