"""Reading and writing the tables of a results directory."""

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from bss.errors import InputError
from bss.files import read_json
from bss.sweeps.table import NOT_RECORDED
from bss.tables import write_table
from experiments.arms import with_arms, without_labels
from experiments.preregister import digest

HINT = "run the experiment first"


def add_directory(parser: argparse.ArgumentParser, default: Path) -> None:
    """Add the results directory, by default the committed one, to a command line."""
    about = f"directory of the tables, or of one part; by default {default}"
    parser.add_argument("results", type=_directory, nargs="?", default=default, help=about)


def _directory(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text}: no such directory; {HINT}")
    return Path(text)


def analyze(description: str | None, write: Callable[[Path], None]) -> None:
    """Run an analysis of the results directory that the command line names.

    Bad input is one line and status 2.
    """
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("results", type=Path, help="directory of the tables")
    try:
        write(parser.parse_args().results)
    except (InputError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(2)


def show_warnings(where: str, texts: Iterable[str]) -> None:
    """Write the warnings of measured points or fits to stderr: each once, with its count."""
    for text, count in Counter(texts).items():
        times = f" ({count} times)" if count > 1 else ""
        print(f"note: {where}: {text}{times}", file=sys.stderr)


@contextmanager
def shown_warnings(where: str) -> Iterator[None]:
    """Write the Python warnings of a block to stderr, each once, also where they are errors."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    show_warnings(where, (str(one.message) for one in caught))


@dataclass(frozen=True)
class Tables:
    """The tables of one experiment or of one part of it.

    Attributes:
        folder: The results directory.

    Raises:
        InputError: If a table that is read is missing.
    """

    folder: Path

    def __contains__(self, name: str) -> bool:
        return (self.folder / name).exists()

    def read(self, name: str) -> pd.DataFrame:
        """Return a CSV or Parquet table by its file name, with labels; run ids are strings."""
        path = self.folder / name
        if not path.is_file():
            raise InputError(f"{path} is not there; {HINT}")
        if path.suffix == ".parquet":
            return with_arms(pd.read_parquet(path))
        return with_arms(pd.read_csv(path, dtype={"run": str}))

    def write(self, name: str, table: pd.DataFrame) -> pd.DataFrame:
        """Write a table, rounded so that it is the same on every machine, and return it."""
        rounded = table.round(7)
        write_table(without_labels(rounded), self.folder / name)
        return rounded

    def json(self, name: str) -> Any:
        """Return a JSON file by its file name."""
        return read_json(self.folder / name, HINT)

    @property
    def config(self) -> dict[str, Any]:
        """The config of the study that wrote the tables."""
        return self.json("experiment.json")["config"]

    def registered(self, name: str, registration: Path) -> pd.DataFrame:
        """Return a table of preregistered runs.

        Raises:
            InputError: If some of its runs name another registration than this file.
        """
        table = self.read(name)
        ours = digest(registration)
        for theirs in sorted({*table["registration"].dropna()} - {ours, NOT_RECORDED}):
            raise InputError(
                f"{self.folder / name}: its runs name registration {theirs[:12]}, "
                f"{registration} is {ours[:12]}; restore the file that they were trained for"
            )
        return table
