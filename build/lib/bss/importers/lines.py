"""Text logs: lines that are rows, the numbers in them, and lines that are cut off."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from bss.errors import InputError
from bss.importers.log import (
    COLUMNS,
    HEAD,
    LOSSES,
    Rows,
    encoding_of,
    plain,
    refuse_line,
)

PREFIX = r"^\s*(?:(?:\S+\s*[:|]|\S+Z)\s*)?"
"""How a line begins, a launcher's `[rank0]: `, `0: `, `name | ` or time before it."""


def lines_of(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file by number from 1 on, without colours and line ends.

    What a progress bar overwrites, up to a carriage return, is a line of the same number.

    Raises:
        InputError: the last line has no end, so digits may be missing.
    """
    with file.open("rb") as opened:
        encoding = encoding_of(opened.read(HEAD))
    with file.open(encoding=encoding, errors="replace", newline="\n") as opened:
        for number, line in enumerate(opened, 1):
            if not line.endswith("\n"):
                told = "has no line end and may be cut off; delete or complete the line"
                refuse_line(file, number, told)
            for part in plain(line.rstrip("\r\n")).split("\r"):
                yield number, part


def matches(
    file: Path, begins: re.Pattern[str], whole: re.Pattern[str]
) -> Iterator[tuple[int, re.Match[str]]]:
    """The rows of a text log.

    Args:
        file: of the log.
        begins: what a line that is a row has.
        whole: such a line in full; searched, so that a prefix of a launcher may precede it.

    Raises:
        InputError: a line begins as a row and is not one.
    """
    for number, line in lines_of(file):
        if begins.search(line):
            found = whole.search(line)
            if found is None:
                refuse_line(file, number, "is no whole row; delete or complete the line")
            yield number, found


def number(text: str) -> float:
    """A number as logs write it, infinite where it says nan or inf; thousands may have commas.

    Raises:
        ValueError: the text is none.
    """
    value = float(text.replace(",", ""))
    return math.inf if math.isnan(value) else value


def loss_of(file: Path, line: int, text: str) -> float:
    """The loss of a line, as `number`; refuses the line where it is none."""
    try:
        return number(text)
    except ValueError:
        refuse_line(file, line, f"loss is {text!r}; expected a number")


def rows_of(rows: Iterable[Mapping[str, float]]) -> Rows:
    """Rows as a Log has them, NaN where one lacks a value."""
    rows = list(rows)
    there = {column for row in rows for column in row}
    return {c: np.array([row.get(c, np.nan) for row in rows]) for c in COLUMNS if c in there}


def need_rows(file: Path, rows: Rows, example: str) -> Rows:
    """The rows; refuses a log that has none."""
    if not set(LOSSES) & set(rows):
        raise InputError(f"{file}: no line tells a loss; expected lines like {example!r}")
    return rows
