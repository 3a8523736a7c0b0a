"""What an experiment leaves in its results directory, read and checked."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.es.values import EsFit
from bss.plots.contenders import RATES, ROLES
from bss.tables import read_points, read_runs

EXPERIMENT = (
    "title", "question", "command", "commit", "date", "device", "cores", "seconds",
    "trained_tokens", "evaluated_tokens", "versions", "config",
)  # fmt: skip
SCHEDULE = ("batch", "law", "tokens", "seq_len", "lr", "warmup", "note")
CONTENDERS = (
    "name", "batch", "rate", "run", "seed", "tokens", "steps", "eval_loss", "test_loss", "role",
)  # fmt: skip
THROUGHPUT = (
    "run", "name", "batch", "tokens", "tokens_per_second", "mfu", "programs", "recompilations",
)  # fmt: skip
COMPARISON = ("table", "winner", "left_out")
NAMES = {"name": str, "batch": str, "run": str, "rate": str, "role": str}


@dataclass(frozen=True)
class Results:
    """An experiment's results.

    Attributes:
        experiment: what was asked, and with what it was answered.
        runs: run table of the constant batches at constant rate.
        points: table of points of these runs.
        fits: fitted laws by name.
        comparison: of the laws, as `bss.laws.es.compare.Comparison.to_dict` has it.
        schedule: the derived schedule and the settings it was trained with.
        contenders: final losses, a row per run.
        throughput: speed, a row per batch of a run.
    """

    experiment: dict[str, Any]
    runs: pd.DataFrame
    points: pd.DataFrame
    fits: dict[str, EsFit]
    comparison: dict[str, Any]
    schedule: dict[str, Any]
    contenders: pd.DataFrame
    throughput: pd.DataFrame


def read_results(directory: Path) -> Results:
    """Read a results directory.

    Raises:
        InputError: a file is missing or damaged, or lacks something; it names the file.
    """
    fits = _json(directory / "fits.json", ())
    try:
        laws = {name: EsFit.from_dict(entry) for name, entry in fits.items()}
    except (InputError, TypeError, AttributeError, KeyError) as error:
        raise InputError(f"{directory / 'fits.json'}: {error}; write the fits again") from None
    contenders = _table(directory / "contenders.csv", CONTENDERS, NAMES)
    for column, known in (("rate", RATES), ("role", ROLES)):
        for value in set(contenders[column]) - set(known):
            raise InputError(
                f"{directory / 'contenders.csv'}: {column} {value!r} is unknown; "
                f"write {' or '.join(known)}"
            )
    for row in np.flatnonzero(contenders.duplicated(["name", "rate", "seed"]))[:1]:
        raise InputError(
            f"{directory / 'contenders.csv'}: {contenders['name'][row]!r} is there twice for one "
            "rate and seed; drop one row"
        )
    return Results(
        experiment=_json(directory / "experiment.json", EXPERIMENT),
        runs=read_runs(directory / "runs.parquet"),
        points=read_points(directory / "points.csv"),
        fits=laws,
        comparison=_json(directory / "comparison.json", COMPARISON),
        schedule=_json(directory / "schedule.json", SCHEDULE),
        contenders=contenders,
        throughput=_table(directory / "throughput.csv", THROUGHPUT, {"run": str, "name": str}),
    )


def _json(path: Path, needed: Sequence[str]) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; run the experiment to its end") from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: is damaged ({error}); run the experiment again to rewrite it"
        ) from None
    if not isinstance(value, dict):
        raise InputError(f"{path}: holds no JSON object; run the experiment again to rewrite it")
    missing = [key for key in needed if key not in value]
    if missing:
        raise InputError(f"{path}: lacks {', '.join(missing)}; run the experiment again")
    return value


def _table(path: Path, columns: Sequence[str], types: dict[str, type]) -> pd.DataFrame:
    try:
        table = pd.read_csv(path, dtype=types)  # type: ignore[arg-type]
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; run the experiment to its end") from None
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{path}: is damaged ({reason}); run the experiment again") from None
    missing = [column for column in columns if column not in table]
    if missing or table.empty:
        lacks = f"columns {', '.join(missing)}" if missing else "rows"
        raise InputError(f"{path}: lacks {lacks}; run the experiment again")
    for column in set(columns) - set(NAMES) | {"batch"} - set(types):
        if not pd.api.types.is_numeric_dtype(table[column]):
            raise InputError(f"{path}: {column} holds text that is no number; correct it")
    return table
