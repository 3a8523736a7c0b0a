"""Check the columns of a table; errors name the file and the line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from bss.errors import InputError

FrameLike = pd.DataFrame | Mapping[str, Any]
"""Columns by name: a table, or series and arrays of one length."""


@dataclass(frozen=True)
class Origin:
    """The origin of a table, for error messages.

    Attributes:
        source: Name of the table.
        lines: Line in the file of each row. None if rows have no lines; rows then count from 1.
    """

    source: str
    lines: Sequence[int] | None = None

    def row(self, i: int) -> str:
        """Return the name of a row."""
        return f"row {i + 1}" if self.lines is None else f"line {self.lines[i]}"

    def refuse(self, i: int, reason: str) -> NoReturn:
        """Raise InputError, naming the row."""
        raise InputError(f"{self.source}, {self.row(i)}: {reason}")


def refuse_odd(frame: object, origin: Origin) -> None:
    """Refuse a value that is not a table, or has a column twice or columns of several levels."""
    if not isinstance(frame, pd.DataFrame):
        raise InputError(
            f"{origin.source}: {type(frame).__name__} given; expected a table (DataFrame)"
        )
    if frame.columns.nlevels > 1:
        raise InputError(f"{origin.source}: columns have several levels; give them one name each")
    for name in frame.columns[frame.columns.duplicated()][:1]:
        raise InputError(f"{origin.source}: column {name} is there twice; drop or rename one")


def renamed(frame: pd.DataFrame, names: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Return a table with our names for columns that have another known one, in any spelling.

    Args:
        frame: any.
        names: other names of a column, by ours. A column of our name is never replaced.
    """
    plain = {str(name).strip().lower().replace(" ", "_").replace("-", "_"): name for name in frame}
    found: dict[Any, str] = {}
    for ours, others in names.items():
        if ours in frame:
            continue
        theirs = next((plain[name] for name in (ours, *others) if name in plain), None)
        if theirs is not None and theirs not in names:
            found[theirs] = ours
    return frame.rename(columns=found)


def need(frame: pd.DataFrame, origin: Origin, *columns: str | tuple[str, ...]) -> None:
    """Refuse a table that lacks a column, or all of several alternative ones."""
    alternatives = [c if isinstance(c, tuple) else (c,) for c in columns]
    lacking = [" or ".join(c) for c in alternatives if not any(name in frame for name in c)]
    if lacking:
        present = f"it has {', '.join(map(str, frame.columns)) or 'none'}"
        fix = "name those meant with --columns OURS=THEIRS"
        if any("seq_len" in names for names in lacking):
            fix += ", or give --seq-len"
        raise InputError(f"{origin.source}: no column {', '.join(lacking)}; {present}; {fix}")


def numbers(frame: FrameLike, column: str, origin: Origin, missing_ok: bool = False) -> np.ndarray:
    """Return a column of finite numbers; refuse text, infinities and, unless `missing_ok`, gaps."""
    values = as_numbers(frame[column])
    refused = ~np.isfinite(values)
    if missing_ok and refused.any():
        refused &= pd.Series(frame[column]).notna().to_numpy()
    for i in np.flatnonzero(refused)[:1]:
        value = pd.Series(frame[column]).iloc[i]
        origin.refuse(i, f"{column} is {value}; {_mend(column, str(value))}")
    return values


def _mend(column: str, text: str) -> str:
    """Return advice for a value that is not a finite number."""
    if "," in text:
        return "write it with a decimal point and without commas"
    diverged = "loss" in column and text.lower().lstrip("+-") in ("nan", "inf", "infinity")
    return "drop the rows after divergence" if diverged else "write a finite number"


def as_numbers(column: Any) -> np.ndarray:
    """Return a column, a series or an array, as the numbers it holds; NaN for what is none."""
    if not _of_numbers(column):
        column = pd.Series(pd.to_numeric(pd.Series(column), errors="coerce"))
    return np.asarray(column) if _of_numbers(column) else column.to_numpy(float, na_value=np.nan)


def _of_numbers(column: Any) -> bool:
    """Return whether a column is of a type of numbers that NumPy has."""
    return isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf"


def positive(frame: FrameLike, column: str, origin: Origin, missing_ok: bool = False) -> np.ndarray:
    """Return the same of numbers above 0, in float64."""
    values = numbers(frame, column, origin, missing_ok).astype(float)
    for i in np.flatnonzero(values <= 0)[:1]:
        value = pd.Series(frame[column]).iloc[i]
        origin.refuse(i, f"{column} is {value}; write a positive number")
    return values


def counts(frame: FrameLike, column: str, origin: Origin, least: int = 1) -> np.ndarray:
    """Return a column of whole numbers from `least` on, in int64."""
    values = numbers(frame, column, origin)
    refused = (values < least) | (values >= 2**63)
    if values.dtype.kind == "f":
        refused |= values % 1 != 0
    for i in np.flatnonzero(refused)[:1]:
        below = " and below 2^63" if values[i] >= 2**63 else ""
        value = pd.Series(frame[column]).iloc[i]
        origin.refuse(i, f"{column} is {value}; write a whole number of at least {least}{below}")
    return values.astype(np.int64)


def refuse_duplicates(frame: pd.DataFrame, key: list[str], origin: Origin) -> None:
    """Refuse a second row with the same values in the columns of `key`."""
    groups = frame.groupby(key, dropna=False).ngroup().to_numpy()
    for i in np.flatnonzero(frame.duplicated(key))[:1]:
        first = origin.row(int(np.argmax(groups == groups[i])))
        origin.refuse(i, f"repeats {first}; drop one of them")
