"""Tables read from CSV and Parquet, and written whole or not at all."""

import csv
import io
from pathlib import Path

import pandas as pd

from bss.errors import InputError
from bss.files import replacing
from bss.tables.columns import Origin, row_names


def write_table(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a table as CSV or Parquet, whole or not at all.

    Raises:
        InputError: the name ends in neither .csv nor .parquet, or its directory does not exist.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"table: {path.parent} is no directory; make it, or write elsewhere")
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"table: {path} has an unknown ending; write it as .csv or .parquet")
    with replacing(path) as temporary:
        if path.suffix == ".csv":
            frame.to_csv(temporary, index=False)
        else:
            frame.to_parquet(temporary, index=False)


def read_table(path: str | Path) -> tuple[pd.DataFrame, Origin]:
    """A table as it stands, and its origin; lines of CSV that begin with # are comments.

    Raises:
        InputError: the file cannot be read, or a line has too many or too few values.
    """
    path = Path(path)
    try:
        if path.suffix == ".parquet":
            frame = pd.read_parquet(path).reset_index(drop=True)
            return frame, Origin(str(path), row_names(frame))
        numbered = [
            (number, line)
            for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1)
            if line.strip() and not line.startswith("#")
        ]
        _refuse_ragged(path, numbered)
        text = "\n".join(line for _, line in numbered)
        frame = pd.read_csv(io.StringIO(text), dtype={"run": str, "model": str}, index_col=False)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, ValueError, csv.Error) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{path}: cannot be read as CSV or Parquet: {reason}") from None
    return frame, Origin(str(path), [f"line {number}" for number, _ in numbered[1:]])


def _refuse_ragged(path: Path, numbered: list[tuple[int, str]]) -> None:
    widths = [len(values) for values in csv.reader(line for _, line in numbered)]
    for (number, _), width in zip(numbered, widths, strict=False):
        if width != widths[0]:
            raise InputError(
                f"{path}, line {number}: {width} values for {widths[0]} columns; correct the line"
            )
