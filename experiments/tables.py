"""How every experiment reads its own tables: of a directory of results, when asked for."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from bss.errors import InputError
from bss.files import read_json
from bss.sweeps.table import NOT_RECORDED
from experiments.preregister import digest

HINT = "run the experiment first"


def folder_asked(description: str | None) -> Path:
    """The directory of results that the command line names; status 2 without one that is there."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("results", type=Path, help="the directory of its tables")
    folder = parser.parse_args().results
    if not folder.is_dir():
        parser.error(f"{folder}: there is no such directory")
    return folder


@dataclass(frozen=True)
class Tables:
    """A directory of results.

    Attributes:
        folder: of one experiment, or of one part of it.

    Raises:
        InputError: where something is read that is not there.
    """

    folder: Path

    def __contains__(self, name: str) -> bool:
        return (self.folder / name).exists()

    def read(self, name: str) -> pd.DataFrame:
        """A table, CSV or Parquet, by its file name; run ids are texts."""
        path = self.folder / name
        if not path.is_file():
            raise InputError(f"{path} is not there; {HINT}")
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        return pd.read_csv(path, dtype={"run": str})

    def json(self, name: str) -> Any:
        """A JSON file, by its file name."""
        return read_json(self.folder / name, HINT)

    @property
    def config(self) -> dict[str, Any]:
        """Of the study that wrote it."""
        return self.json("experiment.json")["config"]

    def registered(self, name: str, registration: Path) -> pd.DataFrame:
        """A table of runs that were registered.

        Raises:
            InputError: some of its runs name another registration than this file.
        """
        table, ours = self.read(name), digest(registration)
        for theirs in sorted({*table["registration"].dropna()} - {ours, NOT_RECORDED}):
            raise InputError(
                f"{self.folder / name}: its runs name registration {theirs[:12]}, "
                f"{registration} is {ours[:12]}; judge them by the one that they were trained for"
            )
        return table
