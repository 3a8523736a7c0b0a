"""Rows of a table that a user leaves out, by what their columns hold."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from bss.errors import InputError

NEAR = 1e-6


def without(table: pd.DataFrame, conditions: Sequence[str]) -> pd.DataFrame:
    """The table without the rows of each condition.

    Args:
        table: any.
        conditions: COLUMN=VALUE, several joined by commas where all must hold.

    Raises:
        InputError: no such column, no such row, or no row would be left.

    Examples:
        >>> runs = pd.DataFrame({"run": ["a", "b", "c"], "batch": [4, 8, 16]})
        >>> list(without(runs, ["run=a", "batch=16"])["run"])
        ['b']
    """
    left = np.ones(len(table), bool)
    for text in conditions:
        out = np.ones(len(table), bool)
        for part in text.split(","):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals or name not in table:
                known = ", ".join(str(column) for column in table)
                raise InputError(f"--drop {text!r}: expected COLUMN=VALUE of {known}")
            out &= _equal(table[name].to_numpy(), value)
        if not out.any():
            raise InputError(f"--drop {text!r}: no row has these values; write them as printed")
        left &= ~out
    if not left.any():
        raise InputError(f"--drop {', '.join(conditions)}: leaves no row; drop fewer")
    return table.loc[left].reset_index(drop=True)


def _equal(column: np.ndarray, value: str) -> np.ndarray:
    same = column.astype(str) == value
    try:
        number = float(value)
    except ValueError:
        return same
    numbers = np.asarray(pd.to_numeric(pd.Series(column), errors="coerce"), float)
    return same | np.isclose(numbers, number, rtol=NEAR, atol=0)
