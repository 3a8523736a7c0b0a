"""The results of an experiment, read from its directory and checked.

Only experiment.json is required. Tables and fits are known by name; every PNG file is a picture of
the report.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from bss.errors import InputError
from bss.files import read_json
from bss.laws import fit_from_dict
from bss.laws.base import Fit
from bss.laws.es.values import CROSS_VALIDATED
from bss.tables import read_points, read_runs
from bss.tables.storage import read_table

CONTENDERS = (
    "name", "batch", "lr_phase", "weights", "run", "seed", "tokens", "steps", "eval_loss",
    "test_loss", "role",
)  # fmt: skip
TEXTS = dict.fromkeys(("name", "batch", "run", "lr_phase", "weights", "role"), str)
HINT = "run the experiment again to rewrite it"


@dataclass(frozen=True)
class Results:
    """The results of an experiment; None or empty for a missing file.

    Attributes:
        experiment: title, question, command, device, versions.
        runs: run table.
        points: table of points of these runs.
        fits: each with the name of its group of runs; "" for all runs.
        contenders: final losses of compared schedules, one row per run.
        pictures: PNG files, by file name.
        warnings: of the measurements.
        missing: why a section is missing, in one line, by its title.
    """

    experiment: dict[str, Any]
    runs: pd.DataFrame | None = None
    points: pd.DataFrame | None = None
    fits: tuple[tuple[str, Fit], ...] = ()
    contenders: pd.DataFrame | None = None
    pictures: dict[str, bytes] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def all_warnings(self) -> list[str]:
        """Warnings of the measurements and of every fit, each once."""
        lines = [f"{fit.law_name}: {text}" for _, fit in self.fits for text in fit.warnings]
        return list(dict.fromkeys([*self.warnings, *lines]))


def read_results(directory: Path) -> Results:
    """Read a results directory.

    Raises:
        InputError: a file is damaged, or experiment.json is missing.
    """
    experiment = read_json(directory / "experiment.json", HINT)
    files = {path.name: path for path in sorted(directory.iterdir())}
    fits = [
        one for name in ("fits.json", "fit.json") if name in files for one in _fits(files[name])
    ]
    fitted = any(not group and fit.KIND == "es" for group, fit in fits)
    tables: dict[str, Any] = {}
    if "runs.parquet" in files:
        tables["runs"] = read_runs(files["runs.parquet"])
    if fitted and "points.csv" in files:
        tables["points"] = read_points(files["points.csv"])
    if "contenders.csv" in files:
        tables["contenders"] = _contenders(files["contenders.csv"])
    pictures = {name: path.read_bytes() for name, path in files.items() if path.suffix == ".png"}
    return Results(experiment=experiment, fits=tuple(fits), pictures=pictures, **tables)


def _fits(path: Path) -> list[tuple[str, Fit]]:
    """Return the fit of each group in a file: the cross-validated one, else the first."""
    entries: dict[str, Any] = {}
    try:
        for names, entry in _entries(read_json(path, HINT)):
            group = ", ".join(names[:-1])
            if group not in entries or entry.get("choice") == CROSS_VALIDATED:
                entries[group] = entry
        return [(group, fit_from_dict(entry)) for group, entry in entries.items()]
    except (InputError, TypeError, AttributeError, KeyError) as error:
        raise InputError(f"{path}: {error}; write the fits again") from None


def _entries(entry: dict[str, Any], names: tuple[str, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """Yield fits at any depth, each with the names that lead to it."""
    if "kind" in entry:
        yield names, entry
        return
    for name, value in entry.items():
        if isinstance(value, dict):
            yield from _entries(value, names if name == "fits" else (*names, name))


def _contenders(path: Path) -> pd.DataFrame | None:
    """Return the compared schedules; None for a table of variations of one run."""
    table = read_table(path)[0]
    if "variation" in table:
        return None
    missing = [column for column in CONTENDERS if column not in table]
    if missing or table.empty:
        raise InputError(f"{path}: lacks {', '.join(missing) or 'rows'}; {HINT}")
    return table.astype(TEXTS)
