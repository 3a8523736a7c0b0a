"""Columns of numbers of CSV, JSON lines and Parquet files, read by Arrow."""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from bss.errors import InputError
from bss.importers.damage import BrokenLines, Damage, damage
from bss.importers.log import Rows


def names_of(file: Path, head: str) -> list[str]:
    """The columns of a file of rows; those of JSON lines are the keys of its beginning.

    Raises:
        InputError: the file is damaged.
    """
    if file.suffix == ".parquet":
        try:
            with pq.ParquetFile(file) as opened:
                return opened.schema_arrow.names
        except (pa.ArrowException, OSError) as error:
            raise _damaged(file, error) from None
    if file.suffix == ".csv":
        return _header(head)
    return list(_first_keys(head))


@lru_cache(maxsize=1)
def _first_keys(head: str) -> dict[str, None]:
    """The keys of the first lines; a file is asked for them until its format is known."""
    return _keys(head.split("\n", 200)[:200])


def all_names_of(file: Path) -> list[str]:
    """The columns of a file of rows, whatever row of it they are in.

    Raises:
        InputError: the file is damaged, or a column is there twice.
    """
    if file.suffix == ".parquet":
        return names_of(file, "")
    if file.suffix != ".csv":
        data = file.read_bytes()
        shapes = data.translate(None, b"0123456789+-.eE").split(b"\n")
        distinct = dict(zip(shapes, data.split(b"\n"), strict=True)).values()
        lines = (line.decode(errors="replace") for line in distinct)
        return list(_keys(lines))
    with file.open(encoding="utf-8-sig", errors="replace") as opened:
        names = _header(opened.readline())
    for name, times in Counter(names).items():
        if times > 1:
            raise InputError(f"{file}: column {name!r} is there twice; rename one")
    return names


def _header(text: str) -> list[str]:
    """The cells of a text's first line; none where it is no CSV."""
    try:
        return next(csv.reader(text.splitlines()[:1]), [])
    except csv.Error:
        return []


def _keys(lines: Iterable[str]) -> dict[str, None]:
    return dict.fromkeys(key for line in lines for key in _object(line) or {})


def numbers_of(file: Path, columns: Sequence[str]) -> Rows:
    """Some columns of a file of rows as float64: NaN where empty, infinite where NaN is written.

    Raises:
        InputError: the file is damaged or cut off, or holds something else than numbers.
    """
    table = _table(file, list(dict.fromkeys(columns)), pa.float64())
    return {name: _numbers(file, name, table[name]) for name in table.column_names}


def texts_of(file: Path, column: str) -> np.ndarray:
    """A column of a file of rows as text; empty where a row has none.

    Raises:
        InputError: the file is damaged or cut off.
    """
    values = _table(file, [column], pa.string())[column].cast(pa.string())
    return values.fill_null("").to_numpy()


def _table(file: Path, columns: list[str], kind: pa.DataType) -> pa.Table:
    try:
        return _read(file, columns, kind)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(file, error) from None


def _read(file: Path, columns: list[str], kind: pa.DataType) -> pa.Table:
    if file.suffix == ".parquet":
        with pq.ParquetFile(file) as opened:
            return opened.read(columns, use_threads=False)
    content = pa.BufferReader(_data(file))
    if file.suffix == ".csv":
        options = pyarrow.csv.ConvertOptions(
            include_columns=columns,
            column_types=dict.fromkeys(columns, kind),
            null_values=[""],
            quoted_strings_can_be_null=True,
        )
        try:
            return pyarrow.csv.read_csv(content, convert_options=options)
        except pa.ArrowException:
            _refuse_rows(file, columns if pa.types.is_floating(kind) else [])
            raise
    schema = pa.schema([(name, kind) for name in columns])
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        return pyarrow.json.read_json(content, parse_options=options)
    except pa.ArrowException:  # NaN, which Python writes and JSON does not have
        return _python_table(file, columns, kind)


def _python_table(file: Path, columns: list[str], kind: pa.DataType) -> pa.Table:
    lines = ((n, line.decode(errors="replace")) for n, line in _lines(file) if line.strip())
    rows = {number: _object(line) for number, line in lines}
    if broken := [number for number, row in rows.items() if row is None]:
        reason = "is no JSON object; delete or complete the line"
        raise BrokenLines(file, dict.fromkeys(broken, reason))
    read = _text if pa.types.is_string(kind) else _number
    columns_of_numbers = {
        name: [read(row.get(name)) for row in rows.values() if row] for name in columns
    }
    return pa.table({name: pa.array(values, kind) for name, values in columns_of_numbers.items()})


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _number(value: Any) -> float | None:
    """A number, also as text, as W&B writes NaN; None for what is none (a histogram)."""
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _numbers(file: Path, name: str, column: pa.ChunkedArray) -> np.ndarray:
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        if column.null_count == len(column):
            return np.full(len(column), np.nan)
        raise InputError(f"{file}: column {name} holds {column.type}; expected numbers")
    values = column.cast(pa.float64())
    numbers = values.to_numpy().copy()
    if values.null_count < int(np.isnan(numbers).sum()):
        written = pc.call_function("is_nan", [values]).fill_null(False)
        numbers[written.to_numpy()] = np.inf
    return numbers


def _object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _data(file: Path) -> bytes:
    """A text without what is left out of it."""
    data = file.read_bytes()
    whole = data.endswith(b"\n") and damage() == Damage()
    return data if whole else b"\n".join(line for _, line in _lines(file))


def _lines(file: Path) -> list[tuple[int, bytes]]:
    """The lines of a text by number, without those left out and a last one that may be cut off.

    That one has no line end, bracket or pair of quotes behind it.
    """
    data, left = file.read_bytes(), damage()
    lines = data.split(b"\n" if b"\n" in data else b"\r")
    last = lines[-1]
    quoted = last.endswith(b'"') and last.count(b'"') % 2 == 0
    if last and not (quoted or last.endswith(b"}")):
        left.end = f"is cut off in line {len(lines)}, which has no end; read to there"
        del lines[-1]
    return [(n, line) for n, line in enumerate(lines, 1) if not left.leaves_out(n)]


def _refuse_rows(file: Path, columns: Sequence[str]) -> None:
    """Refuse the rows of a CSV that have too many cells, too few, or no number in a column."""
    lines = _lines(file) or [(1, b"")]
    names, broken = _header(lines[0][1].decode("utf-8-sig", errors="replace")), dict[int, str]()
    places = [(names.index(column), column) for column in columns if column in names]
    for number, line in lines[1:]:
        cells = _header(line.decode(errors="replace"))
        if line.strip() and len(cells) != len(names):
            broken[number] = f"has {len(cells)} cells; expected {len(names)}"
        elif line.strip():
            for at, column in places:
                if cells[at] and _number(cells[at]) is None:
                    broken[number] = f"{column} is {cells[at]!r}; expected a number"
    if broken:
        raise BrokenLines(file, broken)


def _damaged(file: Path, error: Exception) -> InputError:
    reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else "no reason told"
    return InputError(f"{file}: cannot be read: {reason}")
