"""One reader of tables, as columns of numbers and texts: CSV, Markdown, JSON lines, Parquet."""

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bss.errors import InputError
from bss.importers.at_once import columns_at_once
from bss.importers.lines import Cells, Lines, columns_of, misspelt
from bss.importers.log import head_of
from bss.tables.likeness import kind_of_name

JSON = (".jsonl", ".ndjson", ".json")
FIRST = 200
"""Number of lines of a head by which a table is recognised."""
LETTERS = 2**16
"""Number of letters of a line that are read for that."""
LIST = "is a JSON list; write one object per line, as by jq -c '.[]' FILE > FILE.jsonl"
_DECIMAL = re.compile(r"\s*[-+]?\d*,\d")
_THOUSANDS = re.compile(r"\s*[-+]?[1-9]\d{0,2}([.,])\d{3}(?:\1\d{3})*(?:(?!\1)[.,]\d+)?\s*")
_RULE = re.compile(r"\s*\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*)?")
"""The line below the header of a table of Markdown."""
_POINT = re.compile(r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?")


def json_of(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a line has, after a prefix of a logger if there is one."""
    at = text.find("{")
    try:
        value = json.loads(text[at:]) if at >= 0 else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a nested mapping as one, keys joined by /."""
    joined: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            joined |= flat(inner, f"{prefix}{key}/")
        else:
            joined[prefix + key] = inner
    return joined


@dataclass
class Table:
    """A table in a file.

    Attributes:
        file: Path of the file.
        names: Names of its columns.
        notes: Remarks for the report, once it is read.
        cut: Why its end is missing, once it is read.
        left_out: Number of its lines that are no rows, by reason, once it is read.
        tracker: Whose steps a column `_step` has.
    """

    tracker: ClassVar[str] = "W&B"
    names: list[str] = field(init=False)
    file: Path
    notes: tuple[str, ...] = field(default=(), init=False)
    cut: str = field(default="", init=False)
    left_out: Mapping[str, int] = field(default_factory=dict, init=False)

    def read(self, names: Iterable[str], labels: Iterable[str] = ()) -> Cells:
        """Return the columns of some names, and those of `labels` as texts.

        Raises:
            InputError: If the file is damaged.
        """
        raise NotImplementedError


class Delimited(Table):
    """CSV or TSV. Remarks that begin with # and repeated headers are left out."""

    def __init__(self, file: Path, head: str) -> None:
        super().__init__(file)
        lines = (text for _, text in Lines(file))
        self.names, self._separator = _names_of(next(filter(_is_header, lines), ""))
        self._decimal = _decimal_of(file, head, self._separator)

    def read(self, names: Iterable[str], labels: Iterable[str] = ()) -> Cells:
        """Return some columns; after a semicolon or tab, a comma in a number is decimal."""
        labels = list(labels)
        wanted = [*dict.fromkeys([*names, *labels])]
        for name, times in Counter(self.names).items():
            if name in wanted and times > 1:
                raise InputError(f"{self.file}: column {name!r} occurs twice; rename one")
        if self._separator == ",":
            numbers = [name for name in wanted if name not in labels]
            cells = columns_at_once(self.file, self.names, numbers, labels)
            if cells:
                return cells
        lines = Lines(self.file, ('"',))
        places = {name: self.names.index(name) for name in wanted}
        cells = columns_of(self._rows(lines, places), labels)
        self.cut = lines.cut
        self.left_out = lines.left_out
        return cells

    def _rows(self, lines: Lines, places: Mapping[str, int]) -> Iterator[tuple[int, dict]]:
        width = len(self.names)
        at = 0

        def texts() -> Iterator[str]:
            nonlocal at
            for line, text in lines:
                at = line
                remark = text.startswith("#") and text.count(self._separator) != width - 1
                if text.strip() and not remark:
                    yield text

        try:
            for cells in csv.reader(texts(), delimiter=self._separator):
                if len(cells) != width:
                    lines.torn(at, f"has {len(cells)} cells; expected {width}")
                elif cells != self.names:
                    lines.whole()
                    yield at, {name: self._point(cells[place]) for name, place in places.items()}
        except csv.Error as error:
            raise InputError(f"{self.file}, line {at}: {error}; correct the line") from None

    def _point(self, text: str) -> str:
        """Return a cell with a decimal point and without marks of thousands."""
        if self._separator == ",":
            return text
        grouped = _THOUSANDS.fullmatch(text)
        if grouped and grouped[1] != self._decimal:
            text = text.replace(grouped[1], "")
        if self._decimal == "." or not _DECIMAL.match(text):
            return text
        pointed = text.replace(",", ".")
        self.notes = self.notes or (f"commas are decimal: {text} is {pointed}",)
        return pointed


def _decimal_of(file: Path, head: str, separator: str) -> str:
    """Return what numbers have before their decimals: a point or a comma.

    A number such as 1.024 may have a mark of thousands: then others have decimals after a comma.

    Raises:
        InputError: If all numbers may be read both ways.
    """
    if separator == ",":
        return "."
    texts = (text[:LETTERS] for text in head.splitlines()[:FIRST])
    cells = [cell.strip().strip('"') for text in texts for cell in text.split(separator)]
    marked = [cell for cell in cells if _DECIMAL.match(cell) or _POINT.fullmatch(cell)]
    clear = [cell for cell in marked if not _THOUSANDS.fullmatch(cell)]
    if any(_POINT.fullmatch(cell) for cell in clear):
        return "."
    marks = {mark for cell in clear or marked for mark in ".," if mark in cell}
    if not clear and len(marks) > 1:
        raise InputError(
            f"{file}: {marked[0]} and others have marks of thousands or decimals; write plain "
            "numbers"
        )
    return "," if "," in marks else "."


class Markdown(Table):
    """A table of Markdown; other lines, and tables with another header, are left out."""

    def __init__(self, file: Path, head: str) -> None:
        super().__init__(file)
        self.names = _markdown_names(head)

    def read(self, names: Iterable[str], labels: Iterable[str] = ()) -> Cells:
        """Return some columns, without the marks of bold text and code."""
        labels = list(labels)
        wanted = {*names, *labels}
        lines = Lines(self.file, ("|",))
        cells = columns_of(self._rows(lines, wanted), labels)
        self.cut = lines.cut
        self.left_out = lines.left_out
        return cells

    def _rows(self, lines: Lines, wanted: set[str]) -> Iterator[tuple[int, dict[str, str]]]:
        inside = False
        for line, text in lines:
            cells = _markdown_cells(text)
            if cells == self.names:
                inside = True
            elif not cells:
                inside = False
            elif inside and not _RULE.fullmatch(text):
                if len(cells) != len(self.names):
                    lines.torn(line, f"has {len(cells)} cells; expected {len(self.names)}")
                    continue
                lines.whole()
                named = zip(self.names, cells, strict=True)
                yield line, {name: cell.strip("*`_ ") for name, cell in named if name in wanted}


def _markdown_cells(text: str) -> list[str]:
    """Return the cells of a row of Markdown; none if it is not one."""
    text = text.strip()
    if "|" not in text:
        return []
    return [cell.strip() for cell in text.removeprefix("|").removesuffix("|").split("|")]


@lru_cache(maxsize=1)
def _markdown_names(head: str) -> list[str]:
    """Return the header of the first table of Markdown with a loss, or else of the first one."""
    if "|" not in head or "--" not in head:
        return []
    lines = head.splitlines()
    headers = [
        _markdown_cells(before)
        for before, rule in pairwise(lines)
        if "|" in rule and _RULE.fullmatch(rule)
    ]
    headers = [header for header in headers if len(header) > 1]
    lossy = [h for h in headers if any(kind_of_name(name).endswith("loss") for name in h)]
    return (lossy or headers or [[]])[0]


@dataclass
class JsonLines(Table):
    """One JSON object per line, nested keys joined by /; a .log file may have other lines too.

    Attributes:
        marker: Text that every line with an object has.
        values: Returns the values of an object by name; none if it has none.
    """

    marker: str = ""
    values: Callable[[Mapping[str, Any]], Mapping[str, Any]] = flat

    @cached_property
    def cells(self) -> Cells:
        """The values of all lines."""
        lines = Lines(self.file, ("}", "]"))
        cells = columns_of(self._rows(lines))
        self.notes = lines.alike.notes + misspelt(cells.sizes)
        self.cut = lines.cut
        self.left_out = lines.left_out
        return cells

    @cached_property
    def names(self) -> list[str]:  # type: ignore[override]
        """The keys of all lines."""
        return [*{**self.cells.numbers, **self.cells.texts}]

    def read(self, names: Iterable[str], labels: Iterable[str] = ()) -> Cells:
        """Return the columns, with the numbers of `labels` as texts."""
        cells = self.cells
        texts = dict(self.cells.texts)
        for name in labels:
            column = cells.numbers.get(name, np.zeros(0))
            written = {int(i): f"{column[i]:.17g}" for i in np.flatnonzero(np.isfinite(column))}
            texts[name] = written | texts.get(name, {})
        return Cells(cells.numbers, texts, cells.lines)

    def _rows(self, lines: Lines) -> Iterator[tuple[int, Mapping[str, Any]]]:
        every = self.file.suffix in JSON or bool(self.marker)
        for line, text in lines:
            text = text.strip()
            if (every or line == 1) and text.startswith("[") and not self.marker:
                raise InputError(f"{self.file}, line {line}: {LIST}")
            found = json_of(text) if self.marker in text else None
            row = self.values(found) if found is not None else {}
            if row:
                lines.whole(tuple(row), text)
                yield line, row
            elif found is None and self.marker in text and text and (every or text[0] == "{"):
                lines.torn(line, "is not a JSON object")
            else:
                lines.alike.other(line, text)


class Parquet(Table):
    """A Parquet file."""

    @cached_property
    def names(self) -> list[str]:  # type: ignore[override]
        """The names of its columns."""
        with self._opened() as opened:
            return opened.schema_arrow.names

    def read(self, names: Iterable[str], labels: Iterable[str] = ()) -> Cells:
        """Return some columns."""
        labels = list(labels)
        with self._opened() as opened:
            batches = opened.iter_batches(columns=[*names, *labels], use_threads=False)
            rows = (row for batch in batches for row in batch.to_pylist())
            return columns_of(enumerate(rows, 1), labels)

    def first(self) -> list[dict[str, Any]]:
        """Return the first rows."""
        with self._opened() as opened:
            batches = opened.iter_batches(batch_size=FIRST, use_threads=False)
            return next((batch.to_pylist() for batch in batches), [])

    @contextmanager
    def _opened(self) -> Iterator[pq.ParquetFile]:
        """Open the file; refuse a damaged one."""
        try:
            with pq.ParquetFile(self.file) as opened:
                yield opened
        except (pa.ArrowException, OSError) as error:
            reason = [*str(error).strip().splitlines(), "no reason given"][0][:200]
            raise InputError(f"{self.file}: cannot be read: {reason}") from None


class Trackio(Table):
    """An export of trackio: the column `metrics` has a JSON object with the values of a step.

    Its own step counts calls of `log` unless the trainer passed one, as W&B's does, and is called
    `_step` here.
    """

    tracker = "trackio"

    def __init__(self, base: Table) -> None:
        super().__init__(base.file)
        self._base = base

    @staticmethod
    def has(names: Collection[str]) -> bool:
        """Return True if an export has these columns."""
        return {"run_name", "step", "metrics"} <= {*names}

    @cached_property
    def names(self) -> list[str]:  # type: ignore[override]
        """The keys of all rows."""
        rows = (row for _, row in self._rows())
        return [*dict.fromkeys(name for row in rows for name in row)]

    def read(self, names: Iterable[str], labels: Iterable[str] = ()) -> Cells:
        """Return some columns."""
        labels = list(labels)
        wanted = {*names, *labels}
        rows = ((line, {n: x for n, x in row.items() if n in wanted}) for line, row in self._rows())
        return columns_of(rows, labels)

    def _rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        cells = self._base.read(["step"], ["metrics", "run_name"])
        self.notes = self._base.notes
        self.cut = self._base.cut
        self.left_out = self._base.left_out
        steps = cells.numbers.get("step", np.full(len(cells.lines), np.nan))
        columns = cells.lines, steps, cells.labels("metrics"), cells.labels("run_name")
        for line, step, text, run in zip(*columns, strict=True):
            values = json_of(text)
            if values is None:
                raise InputError(
                    f"{self.file}, row {line}: metrics is {text[:40]!r}; expected JSON"
                )
            yield int(line), {"run_name": run, "_step": float(step), **flat(values)}


def names_in(file: Path, head: str) -> list[str]:
    """Return the columns of a table by the beginning of its file; empty if it is not a table."""
    if file.suffix == ".parquet":
        names = Parquet(file).names
    else:
        names = _json_names(head) or _markdown_names(head) or _header(head)[0]
    return table_of(file).names if Trackio.has(names) else names


def table_of(file: Path) -> Table:
    """Return the table in a file."""
    if file.suffix == ".parquet":
        table: Table = Parquet(file)
    else:
        head = head_of(file)
        if _json_names(head):
            table = JsonLines(file)
        else:
            table = Markdown(file, head) if _markdown_names(head) else Delimited(file, head)
    return Trackio(table) if Trackio.has(table.names) else table


def first_rows(head: str) -> list[dict[str, Any]]:
    """Return the first rows of a table that is text, by its head."""
    texts = [text[:LETTERS] for text in head.splitlines()[:FIRST]]
    if _json_names(head):
        return [flat(row) for row in map(json_of, texts) if row is not None]
    if names := _markdown_names(head):
        cells = [_markdown_cells(text) for text in texts if not _RULE.fullmatch(text)]
        rows = [row for row in cells if len(row) == len(names) and row != names]
        return [dict(zip(names, row, strict=True)) for row in rows]
    names, separator = _header(head)
    full = len(names) - 1  # separators of a row, which a remark has by chance only
    lines = [t for t in texts if t.strip() and (t[0] != "#" or t.count(separator) == full)]
    rows = csv.reader(lines, delimiter=separator) if names else ()
    return [dict(zip(names, cells, strict=False)) for cells in rows if cells != names]


def beginning_of(file: Path, head: str) -> list[dict[str, Any]]:
    """Return the first rows of a table: of text by its head, of Parquet from the file."""
    if file.suffix != ".parquet":
        return first_rows(head)
    return Parquet(file).first()


@lru_cache(maxsize=1)
def _json_names(head: str) -> list[str]:
    """Return the keys of the objects in the first lines."""
    if "{" not in head:
        return []
    if head.lstrip().startswith("["):  # refused when it is read
        return re.findall(r'"([^"]+)":', head[:LETTERS])
    rows = [row for text in head.split("\n", FIRST)[:FIRST] if (row := json_of(text))]
    return [*dict.fromkeys(name for row in rows for name in flat(row))]


@lru_cache(maxsize=1)
def _header(head: str) -> tuple[list[str], str]:
    """Return the names in the first line and their separator; no names if it is not a table."""
    texts = (text[:LETTERS] for text in head.splitlines()[:FIRST])
    return _names_of(next(filter(_is_header, texts), ""))


def _is_header(line: str) -> bool:
    return bool(line.strip()) and line[0] != "#"


def _names_of(line: str) -> tuple[list[str], str]:
    try:
        headers = [(next(csv.reader([line], delimiter=s), []), s) for s in "\t;,"]
    except csv.Error:
        return [], ","
    names, separator = max(headers, key=lambda header: len(header[0]))
    return (names, separator) if len(names) > 1 else ([], ",")
