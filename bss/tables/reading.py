"""Read third-party tables: column names, missing columns, and numbers with suffixes.

`--columns params=N,batch=gbsz --seq-len 4096` on the command line is a Reading here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import ClassVar

import numpy as np
import pandas as pd

from bss.errors import InputError, check, check_number, check_type
from bss.tables.columns import Origin, need
from bss.units import parse_tokens

COUNTS = (
    "params", "tokens", "batch", "batch_tokens", "seq_len", "step", "steps", "budget_tokens",
    "tokens_to_target", "fork",
)  # fmt: skip
"""Columns that may be written with a suffix, as 350M, 1.5B or 2^20."""

SETTINGS = ("beta1", "beta2", "beta2_half_life", "average", "hyper")
"""Columns that a table of points may have of what else a run was tried with; the last in words."""

COLUMNS = (
    *COUNTS, *SETTINGS, "run", "model", "params_m", "loss", "eval_loss", "lr", "peak_lr", "seed",
    "data_seed", "target_loss", "lr_phase", "weights", "reached", "eval_spacing",
    "noise_scale", "seconds",
)  # fmt: skip
"""Columns that the readers of tables know."""

NEAR = 1e-6
"""Relative difference of numbers that are one as printed."""


@dataclass(frozen=True)
class Reading:
    """Column names of a table, and a sequence length that it does not contain.

    Attributes:
        known: names of columns here.
        columns: the table's name of a column, by the name it has here. It replaces a column of that
            name.
        seq_len: tokens per sequence, where the table has no such column.

    Raises:
        InputError: on construction: a name unknown here, one of the table's used twice, or a
            sequence length below 1.

    Examples:
        >>> Reading({"batch": "gbsz"}, seq_len=2048).columns["batch"]
        'gbsz'
    """

    known: ClassVar[Sequence[str]] = COLUMNS
    columns: Mapping[str, str] = field(default_factory=dict)
    seq_len: int | None = None

    def __post_init__(self) -> None:
        check_type("columns", self.columns, Mapping, "names of the table by the names here")
        for theirs in self.columns.values():
            check_type("columns", theirs, str, "the name of a column as text")
        if self.seq_len is not None:
            check_number("seq_len", self.seq_len)
        check(self.seq_len is None or self.seq_len >= 1, "seq_len", self.seq_len, "1 or more")
        for ours, theirs in self.columns.items():
            if ours not in self.known:
                near = get_close_matches(ours, self.known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(self.known)}"
                raise InputError(f"columns: {ours}={theirs}: no column is called {ours}; {hint}")
        named = list(self.columns.values())
        for theirs in named:
            if named.count(theirs) > 1:
                raise InputError(f"columns: {theirs} is named twice; give it one meaning")

    @classmethod
    def parse(cls, text: str | None, seq_len: int | None = None) -> "Reading":
        """Return a reading from names as text.

        Raises:
            InputError: If the text is not a list of OURS=THEIRS, or names a column twice.

        Examples:
            >>> Reading.parse("params=N,batch=gbsz").columns
            {'params': 'N', 'batch': 'gbsz'}
        """
        columns: dict[str, str] = {}
        for part in text.split(",") if text is not None else ():
            left, _, right = part.partition("=")
            ours = left.strip()
            theirs = right.strip()
            if not ours or not theirs:
                raise InputError(f"columns: {part!r}: expected OURS=THEIRS, as params=N,batch=gbsz")
            if ours in columns:
                raise InputError(f"columns: {ours} is given twice; give it one name")
            columns[ours] = theirs
        return cls(columns, seq_len)

    def theirs(self, column: str) -> str:
        """Return the table's name of a column."""
        return self.columns.get(column, column)

    def read(self, frame: pd.DataFrame, origin: Origin) -> pd.DataFrame:
        """Return the table with our names, the sequence length that was given, and counts as
        numbers.

        Raises:
            InputError: the table lacks a column that was named, or contradicts the length.
        """
        need(frame, origin, *self.columns.values())
        named = set(self.columns.values())
        frame = frame.drop(columns=[c for c in self.columns if c in frame and c not in named])
        frame = frame.rename(columns={theirs: ours for ours, theirs in self.columns.items()})
        for column in COUNTS:
            if column in frame and not pd.api.types.is_numeric_dtype(frame[column]):
                frame[column] = pd.Series([_count(value) for value in frame[column]], frame.index)
        if self.seq_len is None:
            return frame
        if "seq_len" not in frame:
            return frame.assign(seq_len=self.seq_len)
        for i in np.flatnonzero(frame["seq_len"].notna() & (frame["seq_len"] != self.seq_len))[:1]:
            reason = f"seq_len is {frame['seq_len'].iloc[i]}, but {self.seq_len} was given"
            origin.refuse(i, f"{reason}; leave the option out, or correct one of them")
        return frame.assign(seq_len=self.seq_len)


def _count(value: object) -> object:
    """Return a count written as text; what is none stays, for the check of its column to refuse."""
    try:
        return parse_tokens(value) if isinstance(value, str) else value
    except InputError:
        return value


def without(table: pd.DataFrame, conditions: Sequence[str]) -> pd.DataFrame:
    """Return the table without the rows of each condition.

    Args:
        table: any.
        conditions: COLUMN=VALUE, several joined by commas where all must hold. A value with * or ?
            is a pattern, e.g. run=web-*.

    Raises:
        InputError: no such column, no such row, or no row would be left.

    Examples:
        >>> runs = pd.DataFrame({"run": ["a", "b", "c"], "batch": [4, 8, 16]})
        >>> list(without(runs, ["run=a", "batch=16"])["run"])
        ['b']
    """
    return _kept(table, ~_matching(table, conditions, "--drop"), "--drop")


def only(table: pd.DataFrame, conditions: Sequence[str]) -> pd.DataFrame:
    """Return the rows of a table that meet one of the conditions; all if there are none.

    Args and errors are those of `without`.

    Examples:
        >>> runs = pd.DataFrame({"run": ["web-1", "web-2", "mix"], "batch": [4, 8, 16]})
        >>> list(only(runs, ["run=web-*", "batch=16"])["run"])
        ['web-1', 'web-2', 'mix']
        >>> list(only(runs, ["run=web-*"])["run"])
        ['web-1', 'web-2']
    """
    return _kept(table, _matching(table, conditions, "--keep"), "--keep") if conditions else table


def _kept(table: pd.DataFrame, rows: np.ndarray, option: str) -> pd.DataFrame:
    if not rows.any():
        raise InputError(f"{option}: leaves no row; write other conditions")
    return table.loc[rows].reset_index(drop=True)


def _matching(table: pd.DataFrame, conditions: Sequence[str], option: str) -> np.ndarray:
    """Return [n], the rows that meet one of the conditions."""
    found = np.zeros(len(table), bool)
    for text in conditions:
        here = np.ones(len(table), bool)
        for part in text.split(","):
            left, equals, right = part.partition("=")
            name = left.strip()
            if not equals or name not in table:
                known = ", ".join(str(column) for column in table)
                raise InputError(f"{option} {text!r}: expected COLUMN=VALUE of {known}")
            here &= _equal(table[name].to_numpy(), right.strip())
        if not here.any():
            raise InputError(f"{option} {text!r}: no row has these values; write them as printed")
        found |= here
    return found


def _equal(column: np.ndarray, value: str) -> np.ndarray:
    texts = column.astype(str)
    if any(sign in value for sign in "*?"):
        pattern = value.replace("[", "[[]")  # brackets of names are no pattern
        return np.array([fnmatchcase(text, pattern) for text in texts], bool)
    same = texts == value
    try:
        number = float(value)
    except ValueError:
        return same
    numbers = np.asarray(pd.to_numeric(pd.Series(column), errors="coerce"), float)
    return same | np.isclose(numbers, number, rtol=NEAR, atol=0)
