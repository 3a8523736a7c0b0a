"""Copies of runs, which are not repetitions: all their measured values equal another run's.

A run has a copy under another name if tables are joined, or if it was logged twice. Copies would
narrow intervals. Values with few digits are also equal by chance: two values with normal noise of
SD s are equal with the probability spacing/(2·√π·s). Equal runs are copies if there are more of
them than chance explains (derived here).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

DIGITS = 15
"""Significant digits of a float that survive arithmetic."""
TEN = 10.0
"""Base of the numbers that tables are printed in."""
LEAST_APART = 2
"""Number of distances from which numbers are evenly spaced by design and not by chance."""
UNEVEN = 0.01
"""Share of a distance by which rounding moves evenly spaced numbers."""
BEYOND_CHANCE = 2.0
"""Ratio to the number expected by chance from which most of the equal runs are copies."""


def copied_rows(
    rows: pd.DataFrame,
    cell: Sequence[str],
    column: str,
    noise: np.ndarray | float,
    spacing: np.ndarray | None = None,
) -> tuple[np.ndarray, list[str]]:
    """Return a mask [n] of the rows of copies of runs, and a message if there are some.

    Among equal runs the original is the run with the most values, or the first of several.

    Args:
        rows: Rows [n] with the names of their runs in the column `run`; without this column each
            row is a run. A run that is twice in a cell is two runs.
        cell: Columns that a row shares with its copy, if the table has them.
        column: Measured values above 0. Rows without a finite value are copies with their run.
        noise: Usual SD of the values between repetitions, relative to the values [n].
        spacing: Distance of the numbers that the values are rounded to, relative to the values
            [n]; by default as they are printed.
    """
    runs = _runs(rows, cell)
    finite = np.isfinite(rows[column].to_numpy(float))
    keys = [rows[name] for name in (*cell, column) if name in rows]
    values = rows.groupby(keys, dropna=False, sort=False).ngroup().to_numpy()
    cells = rows.groupby(keys[:-1], dropna=False, sort=False).ngroup().to_numpy()
    known = pd.DataFrame({"run": runs, "value": values, "cell": cells})[finite]
    copies = _equal_to_another(known)
    none = np.zeros(len(rows), bool)
    if not copies:
        return none, []
    spacing = relative_spacings(rows[column]) if spacing is None else spacing
    chance = np.minimum(spacing / (2 * np.sqrt(np.pi) * noise), 1.0)
    if len(copies) <= BEYOND_CHANCE * _equal_by_chance(known.assign(chance=chance[finite])):
        return none, []
    copied = np.isin(runs, copies)
    place = int(np.argmax(copied))
    first = rows["run"].iloc[place] if "run" in rows else f"row {place + 1}"
    message = f"{len(copies)} runs are copies of others, with equal values: left out"
    return copied, [f"{message} (the first: {first})"]


def _runs(rows: pd.DataFrame, cell: Sequence[str]) -> np.ndarray:
    """Return labels [n] of runs; a name that is twice in a cell is of two runs."""
    if "run" not in rows:
        return np.arange(len(rows))
    names = rows["run"].astype(str)
    place = [names, *(rows[name] for name in cell if name in rows)]
    again = rows.groupby(place, dropna=False).cumcount()
    named = pd.DataFrame({"name": names, "again": again})
    return named.groupby(["name", "again"]).ngroup().to_numpy()


def _equal_to_another(known: pd.DataFrame) -> list[int]:
    """Return the runs all of whose values are values of one run that is kept."""
    shared = known.groupby("value")["run"].transform("nunique") > 1
    every = shared.groupby(known["run"]).transform("all")
    suspects = known.loc[every].groupby("run", sort=False)["value"].agg(list)
    holders = known.loc[shared].groupby("value")["run"].agg(set)
    order = {run: place for place, run in enumerate(suspects.index)}
    found: set[int] = set()
    for run in sorted(order, key=lambda run: (len(suspects[run]), -order[run])):
        equal = set.intersection(*(holders[value] for value in suspects[run]))
        if equal - found - {run}:
            found.add(run)
    return [run for run in order if run in found]


def _equal_by_chance(known: pd.DataFrame) -> float:
    """Return the expected number of runs that equal an earlier one by chance."""
    others = known.groupby("cell")["run"].transform("nunique") - 1
    by_run = known.assign(others=others).groupby("run")
    pairs = by_run["others"].min() / 2  # a pair is one of each of its two runs
    return float((by_run["chance"].prod() * pairs).sum())


def relative_spacings(values: np.ndarray | pd.Series) -> np.ndarray:
    """Return the relative distance [n] of the numbers that values [n] above 0 were rounded to.

    Losses are rounded to decimals, and tokens to significant digits. Steps are rounded to multiples
    of a whole number if a run is evaluated at a fixed interval.

    Examples:
        >>> relative_spacings(np.array([2.0, 3.125])).round(6).tolist()
        [0.0005, 0.00032]
        >>> relative_spacings(np.array([1.5e9, 2.1e7])).round(6).tolist()
        [0.066667, 0.142857]
        >>> relative_spacings(np.array([1024.0, 1536.0])).round(6).tolist()
        [0.5, 0.333333]
    """
    numbers = np.asarray(values, float)
    known = np.isfinite(numbers) & (numbers > 0)
    spacings = np.full(len(numbers), np.nan)
    if not known.any():
        return spacings
    texts = [np.format_float_scientific(x, DIGITS - 1, trim="-") for x in numbers[known]]
    parts = [text.partition("e") for text in texts]
    lengths = np.array([len(digits.replace(".", "")) for digits, _, _ in parts])
    powers = np.array([int(power) for _, _, power in parts])
    last = powers - lengths + 1
    common = TEN ** last.min()
    if last.min() >= 0:
        whole = np.rint(numbers[known]).astype(np.int64)
        common = float(np.gcd.reduce(whole))
    spacings[known] = np.maximum(TEN ** (powers - lengths.max() + 1), common) / numbers[known]
    return spacings


def grid_spacings(values: np.ndarray | pd.Series) -> np.ndarray:
    """Return the relative distance [n] of evenly spaced numbers that values [n] above 0 are.

    Steps to a target are rounded if runs are evaluated at a fixed interval, also after a division
    or a rounding. It is 0 for values of fewer than 3 numbers, or without such a distance.

    Examples:
        >>> grid_spacings(np.array([100.0, 133.33, 133.33, 166.67])).round(4).tolist()
        [0.3333, 0.25, 0.25, 0.2]
        >>> grid_spacings(np.array([100.0, 133.0, 171.0])).tolist()
        [0.0, 0.0, 0.0]
    """
    numbers = np.asarray(values, float)
    apart = np.diff(np.unique(numbers[np.isfinite(numbers)]))
    if len(apart) < LEAST_APART:
        return np.zeros(len(numbers))
    steps = apart / apart.min()
    even = bool((np.abs(steps - np.rint(steps)) <= UNEVEN).all())
    return apart.min() / numbers if even else np.zeros(len(numbers))
