"""The results directory of a study: tables, figures, and the record of how they were made."""

import datetime
import json
import sys
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pandas as pd

from bss.errors import InputError
from bss.files import read_json, replacing, write_json
from bss.installation import version as own_version
from bss.provenance import commit, machine
from bss.sweeps.cost import estimate_cost
from bss.sweeps.table import origins
from bss.sweeps.trainer import Trainer
from bss.tables import write_table
from bss.training.distributed import log_primary
from bss.training.hardware import cores
from bss.values import dotted, to_dict

RECORD = "experiment.json"
"""The record of a results directory. It is written last: while it is there, so are its tables."""


@runtime_checkable
class Extendable(Protocol):
    """A study that may go on in the directory of an earlier one, of which it has all runs."""

    def extends(self, earlier: Mapping[str, Any]) -> bool:
        """Return True if every run of an earlier config with this setup is a run of this study."""
        ...


class Results:
    """The results directory of a study, with the start time of the call that fills it.

    Attributes:
        directory: Path of the results directory.
    """

    def __init__(self, study: Any, title: str = "", *, option: str = "--config.results") -> None:
        """Start a study.

        Args:
            study: A dataclass with a results directory, and with a title if `title` is not given.
            title: Title of the results.
            option: Option that sets the directory, for error messages.

        Raises:
            InputError: If the directory has results of another study, whose field is named, or a
                damaged record.
        """
        self.directory = Path(study.results)
        self._study = study
        self._title = title or study.title
        self._started = time.monotonic()
        _check_same(self.directory, study, option)

    def write(self, files: dict[str, Any], trainer: Trainer | None = None, **facts: Any) -> None:
        """Write the files, in the format of their suffix, and then the record.

        Args:
            files: Values (JSON), data frames (CSV or Parquet) and figures (PNG) by file name.
            trainer: Trainer of the runs that the results are computed from.
            facts: Further fields of the record, in addition to title and provenance.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        record: Any = {"title": self._title, **facts, **self._provenance(trainer)}
        for name, value in {**files, RECORD: record}.items():
            path = self.directory / name
            columns = {*value} if trainer and isinstance(value, pd.DataFrame) else set()
            if trainer and {"run", "test_loss"} <= columns and "commit" not in columns:
                value = value.merge(origins(trainer.runs, value["run"].tolist()), on="run")
            if path.suffix == ".json":
                write_json(path, to_dict(value))
            elif path.suffix == ".png":
                with replacing(path) as temporary:
                    value.savefig(temporary, dpi=150, format="png")
            else:
                write_table(value, path)
        minutes = (time.monotonic() - self._started) / 60
        log_primary(f"done in {minutes:.1f} min; tables in {self.directory}")

    def _provenance(self, trainer: Trainer | None) -> dict[str, Any]:
        """Return command, commit, device, date and cost.

        `seconds` is the duration of this call, in which finished runs take no time.
        `training_seconds` is the sum over all steps of all runs, without evaluation, compilation
        and saving.
        """
        runs = [*trainer.finished.values()] if trainer else []
        spent = [trainer.statuses[run.id].seconds for run in runs] if trainer else []
        cost = estimate_cost(runs)
        return {
            "command": " ".join([program(), *sys.argv[1:]]),
            "commit": commit(),
            "date": datetime.date.today().isoformat(),
            "device": machine(),
            "cores": cores(),
            "seconds": round(time.monotonic() - self._started, 1),
            "training_seconds": round(sum(spent)),
            "trained_tokens": cost.trained,
            "evaluated_tokens": cost.evaluated,
            "versions": {
                "bss": own_version(),
                **{p: version(p) for p in ("jax", "flax", "optax", "numpy")},
            },
            "config": to_dict(self._study),
        }


def program() -> str:
    """Return the name of the module (as in `python -m`) or script that is being run."""
    spec = sys.modules["__main__"].__spec__
    return f"python -m {spec.name.removesuffix('.__main__')}" if spec else Path(sys.argv[0]).name


def _check_same(directory: Path, study: Any, option: str) -> None:
    """Raise an InputError if the directory has the results of another study, or a damaged record.

    Without a record the directory has no results.
    """
    file = directory / RECORD
    if not file.exists():
        return
    away = f"choose another {option}, or move {directory} away"
    held = read_json(file, away, "results:").get("config")
    if not isinstance(held, dict):
        raise InputError(f"results: {file}: has no config of a study; {away}")
    ours = json.loads(json.dumps(to_dict(study)))
    compared = [name for name in ours if name != "results"]
    if isinstance(study, Extendable):
        compared = [name for name in compared if name not in AXES]
    for name in compared:
        if _differ(held.get(name, ours[name]), ours[name], name):
            raise InputError(
                f"results: {directory} holds another study ({name} differs); "
                f"choose another {option}, or move that one away"
            )
    if isinstance(study, Extendable) and not study.extends(held):
        runs = dict(dotted(held)).get("setup.engine.runs", directory / "runs")
        raise InputError(
            f"results: {directory} holds another study (axes differ): give axes with all of its "
            f"values to extend it, or choose another {option} with --set engine.runs={runs}, which "
            "trains no run again"
        )


AXES = ("axes", "axis")
"""Fields that `Extendable.extends` compares."""


def _differ(held: Any, ours: Any, name: str) -> bool:
    """Return whether two configs differ. New fields and the engine are not compared.

    A model is compared as a whole, as model families have different fields.
    """
    if name == "model" or not isinstance(held, dict) or not isinstance(ours, dict):
        return held != ours
    shared = ours.keys() & held.keys() - {"engine"}
    return any(_differ(held[name], ours[name], name) for name in shared)
