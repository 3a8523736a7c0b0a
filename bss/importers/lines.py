"""Lines of text files, the numbers in them, and the rows that they become."""

import math
import re
import sys
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os.path import commonprefix
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.importers.log import HEAD, Rows, encoding_of, plain
from bss.tables.likeness import unit_of

BEFORE = "the rows before it are read"
NOTHING = ("", "-", "none", "null", "na", "n/a", "no log")
"""Texts that stand for a value that was not logged."""
CUT_OFF = "cut off"
ALIKE = "resemble rows"
AGAIN = "printed again by another rank"
"""Why lines are not read as rows."""
SHARE = 0.7
"""Share of words by which a line resembles a row."""
KEPT = 50
"""Number of rows that are compared."""
RARE = 2
"""Number of times up to which a name or a form of lines may come from a damaged byte."""
MOST_FORMS = 300
"""Number of forms of lines that are compared with each other."""
_NUMBER = re.compile(r"[+-]?\d[\d.,]*(?:e[+-]?\d+)?|\bnan\b|\binf\b")
_WITH_COMMAS = re.compile(r"\s*[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?\s*")
"""A number with commas between thousands."""
_LAST_DECIMALS = re.compile(r"\.\d+(?:e[+-]?\d+)?$", re.IGNORECASE)
_LAST_LETTER = re.compile(r"[^\W\d_]$|[)\]}|%\"']$")
_WORD = re.compile(r"[^\W\d]{2,}")


class Lines:
    """The lines of a file with their numbers, without colours and line ends.

    A carriage return that a progress bar writes begins another line of the same number.

    Attributes:
        file: Path of the file.
        closed: Ends of a last line that is whole although it has no line end.
        alike: Lines that are not rows but resemble one.
        again: Number of rows that several ranks printed one after another.
    """

    def __init__(self, file: Path, closed: tuple[str, ...] = ()) -> None:
        self.file = file
        self.closed = closed
        self.alike = Alike()
        self.again = 0
        self._end = ""
        self._torn: tuple[int, str] | None = None

    def __iter__(self) -> Iterator[tuple[int, str]]:
        with self.file.open("rb") as opened:
            head = opened.read(HEAD)
        end = "\r" if b"\r" in head and b"\n" not in head else "\n"
        encoding = encoding_of(head)
        earlier: deque[str] = deque(maxlen=KEPT)
        with self.file.open(encoding=encoding, errors="replace", newline=end) as opened:
            for number, line in enumerate(opened, 1):
                if line.endswith(end):
                    earlier.append(line)
                elif not self._closed(line) and not _complete(line, earlier):
                    self._end = f"is cut off: line {number} has no line end; {BEFORE}"
                    break
                for part in plain(line.rstrip("\r\n")).split("\r"):
                    yield number, part

    @property
    def cut(self) -> str:
        """Why the end of the file is missing, once all lines are read.

        A last line without a line end is left out if its last digits may be missing.
        """
        return f"is cut off in line {self._torn[0]}; {BEFORE}" if self._torn else self._end

    @property
    def left_out(self) -> dict[str, int]:
        """The number of lines that are not read as rows, by reason, once all lines are read."""
        counts = {CUT_OFF: int(bool(self.cut)), ALIKE: len(self.alike.lines), AGAIN: self.again}
        return {reason: count for reason, count in counts.items() if count}

    def _closed(self, line: str) -> bool:
        """Return whether a line has one of the ends of a whole line, outside of quotes."""
        return line.endswith(self.closed) and line.count('"') % 2 == 0

    def torn(self, line: int, reason: str) -> None:
        """Note a line that is part of a row: the end of the file if no row follows.

        Raises:
            InputError: If another one was noted before.
        """
        self.whole()
        self._torn = (line, reason)

    def whole(self, kind: object = None, text: str = "") -> None:
        """Note a whole row, of a kind with whose lines others are compared.

        Raises:
            InputError: If a row that is not whole precedes it.
        """
        if self._torn:
            line, reason = self._torn
            raise InputError(f"{self.file}, line {line}: {reason}; correct or delete the line")
        if kind is not None:
            self.alike.row(kind, text)


def number(value: str | float) -> float:
    """Return a number as logs write it: infinite for nan or inf, with or without thousands commas.

    Raises:
        ValueError: If the text is not a number, or one beyond all that a log has, e.g. 3e999.

    Examples:
        >>> number("1,024"), number("nan"), number("3e-4")
        (1024.0, inf, 0.0003)
    """
    try:
        number = float(value)
    except ValueError:
        if not _WITH_COMMAS.fullmatch(str(value)):
            raise
        number = float(str(value).replace(",", ""))
    except OverflowError:
        raise ValueError(value) from None
    if math.isinf(number) and "n" not in str(value).lower():
        raise ValueError(value)
    return math.inf if math.isnan(number) else number


class Alike:
    """Lines that are not rows but resemble one, e.g. a row with a damaged byte.

    Attributes:
        lines: Numbers of such lines.
    """

    def __init__(self) -> None:
        self.lines: list[int] = []
        self._words: dict[object, frozenset[str]] = {}
        self._shapes: set[str] = set()
        self._noted = 0
        self._before: list[tuple[int, str]] = []

    def row(self, kind: object, text: str) -> None:
        """Note a row of a kind; lines before the first of its kind are compared again."""
        new = kind not in self._words
        if new or self._noted < KEPT:
            self._noted += 1
            self._words.setdefault(kind, words_of(text))
            self._shapes.add(_shape(text))
        if new:
            before = self._before
            self._before = []
            for line, other in before:
                self.other(line, other)

    def other(self, line: int, text: str) -> None:
        """Note a line that is not a row."""
        words = words_of(text)
        shape = _shape(text)
        rows = self._words.values()
        shared = any(len(row) > 1 and len(words & row) >= SHARE * len(row) for row in rows)
        if shared or any(_one_byte_apart(shape, row) for row in self._shapes):
            self.lines.append(line)
        else:
            self._before = [*self._before[1 - KEPT :], (line, text)]

    @property
    def notes(self) -> tuple[str, ...]:
        """A note if there are such lines."""
        alike = f"{len(self.lines)} lines resemble rows and are not read, first line"
        return tuple(f"{alike} {line}" for line in self.lines[:1])


def _complete(line: str, earlier: Iterable[str]) -> bool:
    """Return whether a last line without a line end is whole, by a line before it.

    That line has the same words in the same places. A word, a bracket or the same number of
    decimals follows it.
    """
    text = plain(line).rstrip()
    for other in map(str.rstrip, map(plain, earlier)):
        if _shape(text) == _shape(other) and _decimals(text) == _decimals(other) is not None:
            return True
    return False


def _decimals(text: str) -> str | None:
    """Return the decimals at the end of a line, each as 0, or its last letter, or None."""
    if found := _LAST_DECIMALS.search(text):
        return re.sub(r"\d", "0", found[0])
    return text[-1] if _LAST_LETTER.search(text) else None


def words_of(text: str) -> frozenset[str]:
    """Return the words of a line, of two letters or more."""
    return frozenset(_WORD.findall(text))


def _shape(text: str) -> str:
    """Return a line with each number and each run of spaces as one letter; without the last run."""
    indent = " " if text[:1].isspace() else ""
    return _NUMBER.sub("0", indent + " ".join(text.split()))


def _one_byte_apart(shape: str, row: str) -> bool:
    """Return whether shapes differ by one letter, which may split a number in two."""
    if abs(len(shape) - len(row)) > 2:
        return False
    before = len(commonprefix([shape, row]))  # noqa: RUF071 - texts, not paths
    after = len(commonprefix([shape[before:][::-1], row[before:][::-1]]))  # noqa: RUF071
    return before + after >= len(row) - 1


class Forms:
    """Forms of lines with the names in each, to find a line that lost a name to a damaged byte.

    Lines that differ only in their numbers are of one form.
    """

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()
        self._first: dict[str, tuple[int, frozenset[str]]] = {}

    def add(self, line: int, text: str, names: Iterable[str]) -> None:
        """Note a line and the names that are read in it."""
        form = _shape(text)
        if form in self._first or len(self._first) < MOST_FORMS:
            self._count[form] += 1
            self._first.setdefault(form, (line, frozenset(names)))

    @property
    def notes(self) -> tuple[str, ...]:
        """A note if lines are a byte away from a form at least as frequent with more names."""
        rare = [form for form, count in self._count.items() if count <= RARE]
        lines = [
            self._first[form][0]
            for form in rare
            if any(self._is_whole(other, form) for other in self._first)
        ]
        lacking = f"{len(lines)} lines lack values that others like them have, first line"
        return tuple(f"{lacking} {line}" for line in lines[:1])

    def _is_whole(self, other: str, form: str) -> bool:
        """Return whether a form has names that one a byte away lacks, and is as frequent."""
        missing = self._first[other][1] - self._first[form][1]
        frequent = self._count[other] >= self._count[form]
        return bool(missing and frequent and _one_byte_apart(form, other))


def misspelt(sizes: Mapping[str, int], read: Iterable[str] = ()) -> tuple[str, ...]:
    """Return notes on names of one or two values that differ by a letter from another one.

    Args:
        sizes: Number of values by name.
        read: Names that are read; others are compared if they have more than three values.
    """
    read = set(read)
    rare = [name for name, size in sizes.items() if size <= RARE and name not in read]
    common = [name for name, size in sizes.items() if size > 3 or name in read]
    return tuple(
        f"{name} is logged {sizes[name]} times and not read; it may be {known}"
        for name in rare
        for known in common
        if len(name) == len(known) and sum(map(str.__ne__, name, known)) == 1
    )


@dataclass(frozen=True)
class Cells:
    """Columns of a table.

    Attributes:
        numbers: By name, float64 [rows]: NaN if a cell is empty, infinite for NaN or infinity.
        texts: By name, the cells that are no numbers, by row.
        lines: The line of each row, int64 [rows].
    """

    numbers: dict[str, np.ndarray]
    texts: dict[str, dict[int, str]]
    lines: np.ndarray

    def rows(self, chosen: Mapping[str, str], file: Path) -> Rows:
        """Return columns of numbers under our names.

        Args:
            chosen: Names of the columns, by ours; one that is missing is NaN.
            file: Path of the table, for messages.

        Raises:
            InputError: If a cell is not a number.
        """
        for name in chosen.values():
            for row, text in self.texts.get(name, {}).items():
                where = f"{file}, line {self.lines[row]}: {name}"
                raise InputError(f"{where} is {text[:40]!r}; expected a number")
        columns = {
            ours: self.numbers.get(name, np.nan) * unit_of(ours, name)
            for ours, name in chosen.items()
        }
        return pd.DataFrame(columns, range(len(self.lines)), dtype=float)

    @property
    def sizes(self) -> dict[str, int]:
        """The number of values of each column."""
        texts = {name: len(cells) for name, cells in self.texts.items()}
        return texts | {n: int((~np.isnan(v)).sum()) for n, v in self.numbers.items()}

    def labels(self, name: str) -> np.ndarray:
        """Return a column of texts [rows], "" where a cell is empty or the column is missing."""
        texts = self.texts.get(name, {})
        return np.array([texts.get(row, "") for row in range(len(self.lines))], dtype=object)


def columns_of(rows: Iterable[tuple[int, Mapping[str, Any]]], labels: Iterable[str] = ()) -> Cells:
    """Return numbered rows as columns; values of JSON that are no numbers or texts are left out.

    Args:
        rows: Pairs of a line number and values by name, one row at a time.
        labels: Columns that are kept as texts.
    """
    numbers: dict[str, array[float]] = {}
    texts: dict[str, dict[int, str]] = {name: {} for name in labels}
    lines = array("q")
    kept = frozenset(labels)
    for at, (line, row) in enumerate(rows):
        lines.append(line)
        for name, value in row.items():
            if name in kept:
                texts[name][at] = sys.intern("" if value is None else str(value))
            elif isinstance(value, str | float | int) and not isinstance(value, bool):
                try:
                    read = number(value)
                except ValueError:
                    if str(value).strip().lower() not in NOTHING:
                        texts.setdefault(name, {})[at] = sys.intern(str(value))
                    continue
                column = numbers.setdefault(name, array("d"))
                column.extend([math.nan] * (at - len(column)))
                column.append(read)
    for column in numbers.values():
        column.extend([math.nan] * (len(lines) - len(column)))
    arrays = {name: np.array(column) for name, column in numbers.items()}
    return Cells(arrays, texts, np.array(lines, np.int64))
