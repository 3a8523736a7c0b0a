"""Tables read from CSV and Parquet, and written whole or not at all."""

import csv
import io
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bss.errors import InputError, check_type
from bss.files import PACKED, as_path, refuse_stream, replacing
from bss.tables.columns import Origin
from bss.tables.reading import Reading

NAMES = ("run", "model", "commit", "registration")
"""Columns of text, though all of it may be digits."""
MISSING = (
    *("", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "null"),
    *("None", "#N/A N/A", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
"""Texts of a missing value, as pandas has them, in columns that are not names."""
PART = 2**16
"""Rows up to which frames are written together. Writing many small ones takes the longest."""
_NO_TEXT = {
    **{begin: f"is compressed; unpack it with {program}" for begin, program in PACKED.items()},
    b"PK\x03\x04": "is a zip archive or a spreadsheet; unpack it, or save it as CSV",
    b"PAR1": "is Parquet; name it .parquet",
    b"\xff\xfe": "is in UTF-16; save it in UTF-8",
    b"\xfe\xff": "is in UTF-16; save it in UTF-8",
}
"""By how a file begins that is no CSV, what to do with it."""
_PANDAS = tuple(int(part) for part in pd.__version__.split(".")[:2])


def write_table(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a table as CSV or Parquet, whole or not at all.

    Raises:
        InputError: the name ends in neither .csv nor .parquet, or its directory does not exist.

    Args:
        frame: The table; its index is not written.
        path: Name of the file, whose suffix is its format.

    Examples:
        >>> import tempfile
        >>> path = f"{tempfile.mkdtemp()}/table.csv"
        >>> write_table(pd.DataFrame({"batch": [4, 8]}), path)
        >>> pd.read_csv(path)["batch"].tolist()
        [4, 8]
    """
    check_type("frame", frame, pd.DataFrame, "a table")
    path = as_path(path, "path")
    check_name(path)
    with replacing(path) as temporary:
        if path.suffix == ".csv":
            frame.to_csv(temporary, index=False)
        else:
            frame.to_parquet(temporary, index=False)


@contextmanager
def appending(path: str | Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    """A writer that appends frames to a table, which may be larger than memory.

    A column that only some frames have is null in the others. Frames are kept in a temporary
    directory. The table is at `path` whole when the block ends, or not at all.

    Raises:
        InputError: the name ends in neither .csv nor .parquet, its directory does not exist, or
            nothing was appended.
    """
    path = Path(path)
    check_name(path)
    waiting: list[pd.DataFrame] = []
    rows = 0
    schemas: list[pa.Schema] = []
    with replacing(path) as temporary, TemporaryDirectory(dir=temporary.parent) as folder:

        def write() -> None:
            table = pa.Table.from_pandas(pd.concat(waiting), preserve_index=False, nthreads=1)
            table = table.replace_schema_metadata()
            pq.write_table(table, Path(folder, f"{len(schemas)}.parquet"))
            schemas.append(table.schema)
            waiting.clear()

        def append(frame: pd.DataFrame) -> None:
            nonlocal rows
            if waiting and (rows >= PART or not frame.dtypes.equals(waiting[0].dtypes)):
                write()
                rows = 0
            waiting.append(frame)
            rows += len(frame)

        yield append
        if waiting:
            write()
        if not schemas:
            raise InputError(f"{path}: there are no rows to write")
        schema = pa.unify_schemas(schemas, promote_options="permissive")
        # Only text repeats itself enough for a dictionary.
        text: Any = [field.name for field in schema if not pa.types.is_primitive(field.type)]
        with pq.ParquetWriter(temporary, schema, use_dictionary=text) as writer:
            for i in range(len(schemas)):
                part = pq.ParquetFile(Path(folder, f"{i}.parquet")).read(use_threads=False)
                both = [schema.empty_table(), part]  # missing columns are null
                writer.write_table(
                    pa.concat_tables(both, promote_options="permissive").cast(schema)
                )
        if path.suffix == ".csv":
            pd.read_parquet(temporary).to_csv(temporary, index=False)


def check_name(path: Path) -> None:
    """Refuses a name that no table can be written to.

    Raises:
        InputError: it ends in neither .csv nor .parquet, its directory does not exist, or it is
            one.
    """
    if not path.parent.is_dir():
        raise InputError(f"table: {path.parent} is not a directory; make it, or write elsewhere")
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"table: {path} has an unknown extension; write it as .csv or .parquet")
    if path.is_dir():
        raise InputError(f"table: {path} is a directory; name a file in it, or another")


def read_table(path: str | Path, reading: Reading | None = None) -> tuple[pd.DataFrame, Origin]:
    """Return a table, and its origin; lines of CSV that begin with # are comments.

    Args:
        path: CSV or Parquet.
        reading: Column names of the file. Default: the names of this package.

    Raises:
        InputError: the file cannot be read, a line has too many or too few values, a column is
            there twice, or `Reading.read` refuses it.
    """
    path = as_path(path)
    reading = reading or Reading()
    lines: list[int] | None = None
    with _readable(path):
        if path.suffix == ".parquet":
            frame = pd.read_parquet(path).reset_index(drop=True)
        else:
            frame, lines = _csv(path, reading)
    origin = Origin(str(path), lines)
    return reading.read(frame, origin), origin


def read_header(path: str | Path, reading: Reading | None = None) -> pd.DataFrame:
    """Return the columns of a table without its rows, whose errors are not found.

    Args and errors are those of `read_table`.
    """
    path = as_path(path)
    reading = reading or Reading()
    with _readable(path):
        if path.suffix == ".parquet":
            frame = pq.read_schema(path).empty_table().to_pandas()
        else:
            _refuse_no_text(path)
            with path.open(encoding="utf-8-sig") as lines:
                _, first = next(_rows(lines), (0, ""))
            _refuse_separators(path, first)
            header = next(csv.reader([first]))
            _refuse_twice(path, header)
            frame = pd.DataFrame(columns=header)
    return reading.read(frame, Origin(str(path)))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise InputError for the errors of a file that cannot be read as a table."""
    refuse_stream(path)
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text; save it as CSV in UTF-8") from None
    except (OSError, ValueError, csv.Error) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{path}: cannot be read as CSV or Parquet: {reason}") from None


def _csv(path: Path, reading: Reading) -> tuple[pd.DataFrame, list[int]]:
    """Return a frame, its names as they are written, and the lines of its rows."""
    _refuse_no_text(path)
    numbered = [*_rows(path.read_text(encoding="utf-8-sig").splitlines())]
    _refuse_separators(path, numbered[0][1] if numbered else "")
    _refuse_ragged(path, numbered)
    names: dict[Hashable, type[str]] = {reading.theirs(name): str for name in NAMES}
    text = io.StringIO("\n".join(line for _, line in numbered))
    # A run or a model may be called NA or None; only an empty cell is a missing name.
    header = next(csv.reader([numbered[0][1]]))
    missing = {name: [""] if name in names else [*MISSING] for name in header}
    # Before 3.1, pandas by default rounds some numbers wrongly in their last digit.
    exact: dict[str, Any] = {} if _PANDAS >= (3, 1) else {"float_precision": "round_trip"}
    frame = pd.read_csv(
        text, dtype=names, index_col=False, keep_default_na=False, na_values=missing, **exact
    )
    return frame, [number for number, _ in numbered[1:]]


def _rows(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the rows of a text with their line numbers, without empty lines and comments.

    A comment begins with #. So does a row of a run with such a name, but it has the same number of
    values as the header.
    """
    width = 0
    for number, line in enumerate(lines, 1):
        comment = line.startswith("#") and (width < 2 or line.count(",") != width - 1)
        if line.strip() and not comment:
            width = width or line.count(",") + 1
            yield number, line


def _refuse_no_text(path: Path) -> None:
    """Refuse a file that is compressed or of another kind, by its first bytes."""
    with open(path, "rb") as file:
        head = file.read(8)
    for magic, mend in _NO_TEXT.items():
        if head.startswith(magic):
            raise InputError(f"{path}: {mend}")


def _refuse_separators(path: Path, header: str) -> None:
    if not header:
        raise InputError(f"{path}: has no rows; write at least one")
    for name, separator in (("semicolons", ";"), ("tabs", "\t")):
        if "," not in header and separator in header:
            raise InputError(
                f"{path}: its values have {name} between them; write commas, and decimal points, "
                "or let `bss import plain` read it"
            )


def _refuse_twice(path: Path, header: list[str]) -> None:
    for column in header:
        if header.count(column) > 1:
            raise InputError(f"{path}: column {column!r} occurs twice; rename one")


def _refuse_ragged(path: Path, numbered: list[tuple[int, str]]) -> None:
    lines = [line for _, line in numbered]
    _refuse_twice(path, next(csv.reader(lines[:1])))
    if any('"' in line for line in lines):
        widths = [len(values) for values in csv.reader(lines)]
    else:
        widths = [line.count(",") + 1 for line in lines]
    for (number, _), width in zip(numbered, widths, strict=False):
        if width != widths[0]:
            commas = "; a decimal comma separates, so write points" if width > widths[0] else ""
            raise InputError(
                f"{path}, line {number}: {width} values for {widths[0]} columns; correct the line"
                f"{commas}"
            )
