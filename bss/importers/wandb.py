"""Weights & Biases: charts exported as CSV, run histories, and the config.yaml beside them.

- A chart's CSV has a column of the x axis (`Step`, or a metric) and for every line `RUN - METRIC`,
  `RUN - METRIC__MIN` and `RUN - METRIC__MAX`; of grouped runs `Group: NAME - METRIC`, the mean
  (wandb/wandb issues 5222, 5349), or `SETTING: VALUE - METRIC`. Where minimum and maximum differ a
  point is a mean, over runs or over a bin of steps.
- A history (`Run.history`, `Run.scan_history`, the artifact `run-ID-history`, whose parts are
  numbered) has a row for each `_step`, as CSV, JSON lines or Parquet (docs.wandb.ai, public API
  guide). A row lacks the metrics that were not logged then. `_step` counts calls of `log` unless
  the trainer gave a step, so the trainer's own metric of steps goes first, and is needed where the
  trainer is known to give none. Histories of several runs in one file (`Runs.histories`) have a
  column that names the run.
- `config.yaml` has `KEY: {desc, value}` (wandb/wandb, tests of `wandb_config`). It is read beside a
  history that is named by its directory; beside RUN.csv it is RUN.yaml.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bss.errors import InputError
from bss.importers.arrow import all_names_of, names_of, numbers_of, texts_of
from bss.importers.lines import epochs
from bss.importers.log import (
    COLUMNS,
    LOSSES,
    Importer,
    Log,
    Rows,
    named_by_directory,
    run_name,
)
from bss.importers.metrics import MetricNames, choose, fitting

ENDINGS = (".csv", ".jsonl", ".ndjson", ".parquet")
LOW, HIGH = "__MIN", "__MAX"
EPOCHS = ("train/epoch", "epoch")
RUNS = ("run_id", "run_name", "run", "Name", "name")
"""Columns that name the run of a row."""


@dataclass(frozen=True)
class WandbExports(Importer):
    """Exports of runs of some trainers, the likelier first."""

    trainers: tuple[MetricNames, ...]
    about: str = "W&B: chart CSV, wide or grouped; history as CSV, JSON lines or Parquet"

    def recognises(self, file: Path, head: str) -> bool:
        """By a column `_step`, or columns of a chart; a JSON array too, to refuse it."""
        if file.suffix == ".json":
            return head.lstrip().startswith("[") and '"_step"' in head
        if file.suffix not in ENDINGS:
            return False
        try:
            names = names_of(file, head)
        except InputError:
            return file.suffix == ".parquet"
        return "_step" in names or _is_chart(names)

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The runs of a chart, or of a history."""
        if file.suffix == ".json":
            reason = "is one JSON array; write a row a line, as by: jq -c '.[]' FILE > FILE.jsonl"
            raise InputError(f"{file}: {reason}")
        names = all_names_of(file)
        if "_step" in names:
            yield from _histories(file, names, self.trainers, columns)
        else:
            yield from _chart(file, names, self.trainers, columns)


def _is_chart(names: list[str]) -> bool:
    low = any(name.endswith(LOW) for name in names)
    return low or (names[:1] == ["Step"] and any(" - " in name for name in names[1:]))


def _histories(
    file: Path, names: list[str], trainers: tuple[MetricNames, ...], columns: Mapping[str, str]
) -> Iterator[Log]:
    """The run of a history, or the runs of one with a column that names them."""
    runs = _runs(file, names, columns.get("run"))
    columns = {ours: theirs for ours, theirs in columns.items() if ours != "run"}
    trainer, chosen, notes = choose(trainers, names, columns, str(file))
    if not {"step", "tokens", "samples"} & set(chosen):
        notes += _counted_logs(str(file), trainers, names)
        chosen["step"] = "_step"
    elif "step" not in chosen and not trainer.counts_logs:
        chosen["step"] = "_step"
    epoch = [name for name in EPOCHS if name in names][:1]
    read = numbers_of(file, [*chosen.values(), *epoch])
    notes = (*notes, *(note for name in epoch for note in epochs(read[name])))
    rows = {c: read[chosen[c]] for c in COLUMNS if c in chosen}
    settings, more = trainer.settings({} if runs is not None else _config(file))
    for column in ("batch", "batch_tokens"):
        if column in settings and column not in rows:
            rows[column] = np.full(len(next(iter(rows.values()))), float(settings[column]))
    seq_len, notes = settings.get("seq_len"), (*notes, *more, *_uncounted(rows))
    if runs is None:
        rows = trainer.corrected(rows)
        place = file.parent if file.stem.isdigit() else file  # parts of an export
        yield Log(run_name(file), rows, str(file), str(place.resolve()), seq_len, notes)
        return
    for run in dict.fromkeys(runs):
        part = {column: values[runs == run] for column, values in rows.items()}
        yield Log(run, trainer.corrected(part), str(file), f"{file}:{run}", seq_len, notes)


def _runs(file: Path, names: list[str], given: str | None) -> np.ndarray | None:
    """The run of every row, None where no column says it."""
    if given not in (None, *names):
        raise InputError(f"{file}: no column {given} for run; it has {', '.join(names[:8])}")
    column = given or next((name for name in RUNS if name in names), None)
    if column is None:
        return None
    runs = texts_of(file, column)
    if not runs.all():
        raise InputError(f"{file}: column {column} names no run in some rows; fill it in")
    return runs


def _counted_logs(
    source: str, trainers: tuple[MetricNames, ...], names: Iterable[str]
) -> tuple[str, ...]:
    """Refuse W&B's own step where it counts logs; a note where it may."""
    alike = fitting(trainers, names)
    counting = [trainer for trainer in alike if trainer.counts_logs]
    if not counting and alike:
        return ()
    if alike and len(counting) == len(alike):
        own = counting[0].names["step"][0]
        raise InputError(
            f"{source}: W&B's step counts the logs of {counting[0].trainer}; export its {own} too, "
            "or name a count with --columns step=NAME"
        )
    return ("steps are W&B's, which count logs where the trainer gives it no steps",)


def _uncounted(rows: Rows) -> Iterator[str]:
    """How many losses stand in rows without any count."""
    counts = [rows[column] for column in ("step", "tokens", "samples") if column in rows]
    without = np.all([np.isnan(values) for values in counts], axis=0)
    for column in LOSSES:
        if column in rows and (lost := int((without & ~np.isnan(rows[column])).sum())):
            yield f"{lost} values of {column} have no step and are left out"


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
    file: Path, names: list[str], trainers: tuple[MetricNames, ...], columns: Mapping[str, str]
) -> Iterator[Log]:
    """The lines of a chart, those of one run together."""
    axis, everything = names[0], numbers_of(file, names)
    lines = _lines(file, names)
    empty = [
        run
        for run, metrics in lines.items()
        if all(np.isnan(everything[name]).all() for name in metrics.values())
    ]
    if len(empty) == len(lines):
        raise InputError(f"{file}: no run of the chart has a value; export the chart again")
    left_out = [f"run {run} has no values and is left out" for run in empty]
    for run, metrics in lines.items():
        if run in empty:
            continue
        there, source = {axis: axis, **metrics}, f"{file}, {run}"
        trainer, chosen, notes = choose(trainers, there, columns, source)
        if not {"step", "tokens", "samples"} & set(chosen):
            chosen["step"] = _steps(file, axis, there)
            notes += _counted_logs(source, trainers, there)
        picked = {c: everything[there[chosen[c]]] for c in COLUMNS if c in chosen}
        rows = trainer.corrected(picked)
        means = _means([there[chosen[c]] for c in chosen if "loss" in c], everything)
        name = run.removeprefix("Group: ")
        yield Log(name, rows, str(file), f"{file}:{run}", None, (*notes, *means, *left_out))
        left_out = []


def _lines(file: Path, names: list[str]) -> dict[str, dict[str, str]]:
    """The columns of a chart by run and metric."""
    lines: dict[str, dict[str, str]] = {}
    known = set(names)
    for name in names[1:]:
        whole = name.removesuffix(LOW).removesuffix(HIGH)
        if whole not in known:
            raise InputError(f"{file}: has a column {name!r} and none {whole!r}; name it so")
        run, _, metric = name.rpartition(" - ")
        if run.strip() and name == whole:
            lines.setdefault(run, {})[metric] = name
    if not lines:
        raise InputError(f"{file}: no column is called RUN - METRIC; export the chart again")
    return lines


def _steps(file: Path, axis: str, there: Mapping[str, str]) -> str:
    for name in ("_step", "Step"):
        if name in there:
            return name
    raise InputError(
        f"{file}: its x axis is {axis}; export the chart against Step, or name a count with "
        "--columns step=NAME or tokens=NAME"
    )


def _means(losses: list[str], table: Rows) -> Iterator[str]:
    """How many points are means, of a group's runs or of a bin's steps."""
    for name in losses:
        if name + LOW in table and name + HIGH in table:
            means = int(np.sum(table[name + HIGH] > table[name + LOW]))
            if means:
                what = "the runs of a group" if name.startswith("Group: ") else "runs or steps"
                yield f"{means} points are means over {what}"
