"""Columns of a CSV file without damage, read at once; other files are read by rows."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from bss.importers.lines import NOTHING, Cells
from bss.importers.log import HEAD, encoding_of

_FORMS = (str.lower, str.upper, str.capitalize, str.title)
_EMPTY = sorted({form(text) for form, text in product(_FORMS, NOTHING)})
_ODD = (b'"', b"\0", b"\x1b", b"\n\n", b"\n\r")
"""Bytes of quoted cells, of zeros that a crash leaves, of colours and of empty lines."""


def columns_at_once(
    file: Path, header: Sequence[str], numbers: Sequence[str], labels: Sequence[str]
) -> Cells | None:
    """Return columns as `columns_of` does if each line of a file is a whole row.

    Return None if a line needs a closer look, e.g. a comment or a number with thousands commas.

    Args:
        file: Path of a CSV file.
        header: Names of all columns.
        numbers: Columns of numbers.
        labels: Columns that are kept as texts.
    """
    data = file.read_bytes()
    first = data[: data.find(b"\n")].decode("utf-8-sig", errors="replace").rstrip("\r")
    if not numbers or not _has_only_rows(data) or first.split(",") != [*header]:
        return None
    types = {name: pa.float64() for name in numbers} | {name: pa.string() for name in labels}
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(data),
            pa.csv.ReadOptions(use_threads=False),
            pa.csv.ParseOptions(quote_char=False),
            pa.csv.ConvertOptions(column_types=types, include_columns=[*types], null_values=_EMPTY),
        )
    except pa.ArrowInvalid:
        return None
    if any(np.isinf(table[name].to_numpy()).any() for name in numbers):
        return None  # "inf", or a number too large, e.g. 3e999
    columns = {name: _numbers(table[name]) for name in numbers}
    there = {name: column for name, column in columns.items() if not np.isnan(column).all()}
    texts = {name: dict(enumerate(_texts(table[name]))) for name in labels}
    return Cells(there, texts, np.arange(2, len(table) + 2))


def _has_only_rows(data: bytes) -> bool:
    """Return whether each line ends, none is empty, and no cell is quoted, coloured or binary."""
    return (
        data.endswith(b"\n")
        and encoding_of(data[:HEAD]) == "utf-8-sig"
        and data.count(b"\r") == data.count(b"\r\n")
        and not any(odd in data for odd in _ODD)
    )


def _numbers(cells: pa.ChunkedArray) -> np.ndarray:
    """Return numbers [rows]: NaN if a cell is empty, infinite for NaN."""
    values = np.array(cells.to_numpy())
    values[np.isnan(values) & cells.is_valid().to_numpy()] = np.inf
    return values


def _texts(cells: pa.ChunkedArray) -> list[str]:
    """Return texts [rows]; equal ones are one object."""
    encoded = cells.combine_chunks().dictionary_encode()
    texts = np.array(encoded.dictionary.to_pylist(), dtype=object)
    return texts[encoded.indices.to_numpy()].tolist()
