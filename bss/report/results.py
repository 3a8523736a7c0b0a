"""The results of an experiment, read from its directory and checked.

Only experiment.json is required. Tables, fits and schedules are known by name; every PNG file is
a picture of the report.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from bss.errors import InputError
from bss.files import read_json
from bss.laws import CurveFit, EsFit, TableFit
from bss.laws.es.values import REQUESTED
from bss.laws.step_time import StepTime
from bss.tables import read_points, read_runs

CONTENDERS = (
    "name", "batch", "ending", "run", "seed", "tokens", "steps", "eval_loss", "test_loss", "role",
)  # fmt: skip
TEXTS = dict.fromkeys(("name", "batch", "run", "ending", "role"), str)
HINT = "run the experiment again to rewrite it"


@dataclass(frozen=True)
class Results:
    """The results of an experiment; None or empty for a missing file.

    Attributes:
        experiment: title, question, command, device, versions.
        runs: run table.
        points: table of points of these runs.
        fits: fitted laws E(S) by name of their group and name of the law; "" for a single group.
        curve_fit: the functional law of loss curves.
        contenders: final losses of compared schedules, one row per run.
        pictures: PNG files, by file name.
        table_fit: the law of final losses.
        varied: of a run table, the runs whose batch or rate changes.
        step_time: seconds per step, for a section of time and cost.
        warnings: of the measurements.
        missing: why a section is missing, in one line, by its title.
    """

    experiment: dict[str, Any]
    runs: pd.DataFrame | None = None
    points: pd.DataFrame | None = None
    fits: dict[str, dict[str, EsFit]] = field(default_factory=dict)
    curve_fit: CurveFit | None = None
    contenders: pd.DataFrame | None = None
    pictures: dict[str, bytes] = field(default_factory=dict)
    table_fit: TableFit | None = None
    varied: pd.DataFrame | None = None
    step_time: StepTime | None = None
    warnings: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def chosen_es(self) -> EsFit | None:
        """The E(S) fit that cross-validation chose, else the first."""
        fits = [*self.fits.get("", {}).values()]
        return next((fit for fit in fits if fit.choice != REQUESTED), fits[0] if fits else None)

    @property
    def all_warnings(self) -> list[str]:
        """Warnings of the measurements and of every fit, each once."""
        fits = [fit for group in self.fits.values() for fit in group.values()]
        others = [fit for fit in (self.curve_fit, self.table_fit) if fit is not None]
        lines = [f"{fit.law_name}: {text}" for fit in (*fits, *others) for text in fit.warnings]
        return list(dict.fromkeys([*self.warnings, *lines]))


def read_results(directory: Path) -> Results:
    """Read a results directory.

    Raises:
        InputError: a file is damaged, or experiment.json is missing.
    """
    experiment = read_json(directory / "experiment.json", HINT)
    files = {path.name: path for path in sorted(directory.iterdir())}
    fits = _fits(directory / "fits.json") if "fits.json" in files else {}
    curve = read_json(files["fit.json"], HINT) if "fit.json" in files else {}
    fitted = "" in fits and "points.csv" in files
    return Results(
        experiment=experiment,
        runs=read_runs(files["runs.parquet"]) if "runs.parquet" in files else None,
        points=read_points(files["points.csv"]) if fitted else None,
        fits=fits,
        curve_fit=CurveFit.from_dict(curve) if curve.get("kind") == "curve" else None,
        contenders=_contenders(files["contenders.csv"]) if "contenders.csv" in files else None,
        pictures={name: path.read_bytes() for name, path in files.items() if path.suffix == ".png"},
        table_fit=TableFit.from_dict(curve) if curve.get("kind") == "table" else None,
    )


def _fits(path: Path) -> dict[str, dict[str, EsFit]]:
    """The E(S) fits of a file, by group."""
    fits: dict[str, dict[str, EsFit]] = {}
    try:
        for names, entry in _entries(read_json(path, HINT)):
            if entry["kind"] == "es":
                fits.setdefault(", ".join(names[:-1]), {})[names[-1]] = EsFit.from_dict(entry)
    except (InputError, TypeError, AttributeError, KeyError) as error:
        raise InputError(f"{path}: {error}; write the fits again") from None
    return fits


def _entries(entry: dict[str, Any], names: tuple[str, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """Yield fits at any depth, each with the names that lead to it."""
    if "kind" in entry:
        yield names, entry
        return
    for name, value in entry.items():
        if isinstance(value, dict):
            yield from _entries(value, names if name in ("fits", "fit") else (*names, name))


def _contenders(path: Path) -> pd.DataFrame | None:
    """Return the compared schedules; None for a table of variations of one run."""
    try:
        table = pd.read_csv(path, dtype=TEXTS)  # type: ignore[arg-type]
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{path}: is damaged ({reason}); {HINT}") from None
    if "variation" in table:
        return None
    missing = [column for column in CONTENDERS if column not in table]
    if missing or table.empty:
        raise InputError(f"{path}: lacks {', '.join(missing) or 'rows'}; {HINT}")
    return table
