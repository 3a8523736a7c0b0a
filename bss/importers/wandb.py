"""Weights & Biases: charts exported as CSV, run histories, and the config.yaml beside them.

- A chart's CSV has a column of the x axis (`Step`, or a metric) and for every line `RUN - METRIC`,
  `RUN - METRIC__MIN` and `RUN - METRIC__MAX`; of grouped runs `Group: NAME - METRIC`, the mean
  (wandb/wandb issues 5222, 5349). Where minimum and maximum differ a point is a mean, over runs or
  over a bin of steps.
- A history (`Run.history`, `Run.scan_history`, the artifact `run-ID-history`) has a row for each
  `_step`, as CSV, JSON lines or Parquet (docs.wandb.ai, public API guide). A row lacks the metrics
  that were not logged then. `_step` counts calls of `log` unless the trainer gave a step, so the
  trainer's own metric of steps goes first.
- `config.yaml` has `KEY: {desc, value}` (wandb/wandb, tests of `wandb_config`). It is read beside a
  history that is named by its directory; beside RUN.csv it is RUN.yaml.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bss.errors import InputError
from bss.importers.arrow import names_of, numbers_of
from bss.importers.log import COLUMNS, Importer, Log, Rows, head_of, named_by_directory, run_name
from bss.importers.metrics import Metrics, choose

ENDINGS = (".csv", ".jsonl", ".ndjson", ".parquet")
LOW, HIGH = "__MIN", "__MAX"


@dataclass(frozen=True)
class WandbExports(Importer):
    """Exports of runs of some trainers, the likelier first."""

    trainers: tuple[Metrics, ...]
    about: str = "W&B: chart CSV, wide or grouped; history as CSV, JSON lines or Parquet"

    def recognises(self, file: Path, head: str) -> bool:
        """By a column `_step`, or columns that end in __MIN."""
        if file.suffix not in ENDINGS:
            return False
        try:
            names = names_of(file, head)
        except InputError:
            return file.suffix == ".parquet"
        return "_step" in names or any(name.endswith(LOW) for name in names)

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The runs of a chart, or the run of a history."""
        names = names_of(file, head_of(file))
        if "_step" in names:
            yield _history(file, names, self.trainers, columns)
        else:
            yield from _chart(file, names, self.trainers, columns)


def _history(
    file: Path, names: list[str], trainers: tuple[Metrics, ...], columns: Mapping[str, str]
) -> Log:
    trainer, chosen, notes = choose(trainers, names, columns, str(file))
    chosen = {"step": "_step", **chosen}
    read = numbers_of(file, list(chosen.values()))
    rows = {c: read[chosen[c]] for c in COLUMNS if c in chosen}
    settings, told = trainer.settings(_config(file))
    for column in ("batch", "batch_tokens"):
        if column in settings and column not in rows:
            rows[column] = np.full(len(read[chosen["step"]]), float(settings[column]))
    seq_len = settings.get("seq_len")
    rows = trainer.corrected(rows)
    return Log(run_name(file), rows, str(file), str(file), seq_len, (*notes, *told))


def _config(file: Path) -> dict[str, Any]:
    """The settings of a history's run; none where there is no such file."""
    path = file.with_name("config.yaml") if named_by_directory(file) else file.with_suffix(".yaml")
    if not path.is_file():
        return {}
    import yaml

    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        raise InputError(f"{path}: is not YAML; correct it, or move it away") from None
    return config if isinstance(config, dict) else {}


def _chart(
    file: Path, names: list[str], trainers: tuple[Metrics, ...], columns: Mapping[str, str]
) -> Iterator[Log]:
    """The lines of a chart, those of one run together."""
    lines: dict[str, dict[str, str]] = {}
    for name in names[1:]:
        run, cut, metric = name.rpartition(" - ")
        if cut and not metric.endswith((LOW, HIGH)):
            lines.setdefault(run, {})[metric] = name
    axis, everything = names[0], numbers_of(file, names)
    for run, metrics in lines.items():
        there = {axis: axis, **metrics}
        trainer, chosen, notes = choose(trainers, there, columns, f"{file}, {run}")
        if not {"step", "tokens", "samples"} & set(chosen):
            chosen["step"] = _steps(file, axis, there)
        picked = {c: everything[there[chosen[c]]] for c in COLUMNS if c in chosen}
        rows = trainer.corrected(picked)
        told = _means(run, [there[chosen[c]] for c in chosen if "loss" in c], everything)
        name = run.removeprefix("Group: ")
        yield Log(name, rows, str(file), f"{file}:{run}", None, (*notes, *told))


def _steps(file: Path, axis: str, there: Mapping[str, str]) -> str:
    for name in ("_step", "Step"):
        if name in there:
            return name
    raise InputError(
        f"{file}: its x axis is {axis}; export the chart against Step, or name a count with "
        "--columns step=NAME or tokens=NAME"
    )


def _means(run: str, losses: list[str], table: Rows) -> Iterator[str]:
    """How many points are means, of a group's runs or of a bin's steps."""
    for name in losses:
        if name + LOW in table and name + HIGH in table:
            means = int(np.sum(table[name + HIGH] > table[name + LOW]))
            if means:
                what = "the runs of a group" if run.startswith("Group: ") else "bins of steps"
                yield f"{means} points are means over {what}"
