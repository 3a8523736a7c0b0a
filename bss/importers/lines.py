"""Text logs: lines that are rows, the numbers in them, and lines that are cut off."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bss.errors import InputError
from bss.importers.damage import damage, refuse_line
from bss.importers.log import (
    COLUMNS,
    HEAD,
    LOSSES,
    Importer,
    Log,
    Rows,
    encoding_of,
    plain,
    run_name,
)

PREFIX = r"^\s*(?:(?:\S+\s*[:|]|\S+Z)\s*)?"
"""How a line begins, a launcher's `[rank0]: `, `0: `, `name | ` or time before it."""

_NUMBER = re.compile(r"\d+(\.\d*)?(e[+-]?\d+)?")


@dataclass(frozen=True)
class TextLog(Importer):
    """What a trainer prints, saved to a file.

    Attributes:
        about: what it reads, in a line.
        recognised_by: what is searched in a file's head: a line of training.
        log: of a file, its run.
    """

    about: str
    recognised_by: re.Pattern[str]
    log: Callable[[Path], Log]

    def recognises(self, file: Path, head: str) -> bool:
        """By a line of training."""
        return self.recognised_by.search(head) is not None

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The run of a file."""
        refuse_columns(file, columns)
        yield self.log(file)


def refuse_columns(file: Path, columns: Mapping[str, str]) -> None:
    """Refuse names of metrics for lines that have no others than the trainer gives them."""
    if columns:
        raise InputError(
            f"{file}: --columns names columns of tables and metrics of trackers; lines of this "
            "format have none; leave it out"
        )


def lines_of(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file by number from 1 on, without colours and line ends.

    What a progress bar overwrites, up to a carriage return, is a line of the same number. A last
    line without an end, of which digits may be missing, is left out and told.
    """
    with file.open("rb") as opened:
        head = opened.read(HEAD)
    encoding, left = encoding_of(head), damage()
    end = "\r" if b"\r" in head and b"\n" not in head else "\n"
    with file.open(encoding=encoding, errors="replace", newline=end) as opened:
        for number, line in enumerate(opened, 1):
            if not line.endswith(end):
                left.end = f"is cut off in line {number}, which has no end; read to there"
                return
            if left.leaves_out(number):
                continue
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
            row = whole.search(line)
            if row is None:
                refuse_line(file, number, "is no whole row; delete or complete the line")
            yield number, row


def is_number(value: object) -> bool:
    """Whether a value of JSON is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def number(text: str | float) -> float:
    """A number as logs write it, infinite where it says nan or inf; thousands may have commas.

    Raises:
        ValueError: the text is none.
    """
    value = float(text.replace(",", "") if isinstance(text, str) else text)
    return math.inf if math.isnan(value) else value


def loss_of(file: Path, line: int, text: str) -> float:
    """The loss of a line, as `number`; refuses the line where it is none."""
    try:
        return number(text)
    except ValueError:
        refuse_line(file, line, f"loss is {text!r}; expected a number")


def epochs(values: Iterable[object]) -> tuple[str, ...]:
    """A note where a log says that it reads its data more than once.

    Whole numbers may count from 0 or 1.
    """
    numbers = [float(value) for value in map(str, values) if _NUMBER.fullmatch(value)]
    if not numbers:
        return ()
    first = min(numbers) - 1 if all(value.is_integer() for value in numbers) else 0
    passes = max(numbers) - first
    said = f"{passes:.3g} epochs over its data, whose tokens count each time"
    return (said,) if passes > 1.005 else ()


def only(values: Collection[int]) -> int | None:
    """The one value; None where there is none, or several."""
    return next(iter(values)) if len(values) == 1 else None


def rows_of(rows: Iterable[Mapping[str, float]]) -> Rows:
    """Rows as a Log has them, NaN where one lacks a value."""
    rows = list(rows)
    there = {column for row in rows for column in row}
    return {c: np.array([row.get(c, np.nan) for row in rows]) for c in COLUMNS if c in there}


def log_of(
    file: Path,
    rows: Iterable[Mapping[str, float]],
    example: str,
    seq_len: int | None = None,
    notes: Iterable[str] = (),
    **same: float | None,
) -> Log:
    """The run of a text log.

    Args:
        file: of the log.
        rows: of its lines.
        example: of a line, for a log that has none.
        seq_len, notes: as in a Log.
        same: columns of one value in all rows, where the log says it.

    Raises:
        InputError: no row has a loss.
    """
    columns = rows_of(rows)
    if not set(LOSSES) & set(columns):
        raise InputError(f"{file}: no line tells a loss; expected lines like {example!r}")
    count = len(next(iter(columns.values())))
    known = {name: float(value) for name, value in same.items() if value is not None}
    columns |= {name: np.full(count, value) for name, value in known.items()}
    return Log(run_name(file), columns, str(file), str(file), seq_len, tuple(notes))
