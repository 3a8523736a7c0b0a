"""Weights & Biases: charts exported as CSV, run histories, and their config.yaml.

- A chart's CSV has a column of the x axis (`Step`, or a metric). Every line of the chart has the
  columns `RUN - METRIC`, `RUN - METRIC__MIN` and `RUN - METRIC__MAX`. The mean of grouped runs has
  the name `Group: NAME - METRIC` (wandb/wandb issues 5222, 5349) or `SETTING: VALUE - METRIC`.
- A history (`Run.history`, `Run.scan_history`, the artifact `run-ID-history`, whose parts are
  numbered) has a row for each `_step`, as CSV, JSON lines or Parquet (docs.wandb.ai, public API
  guide). A row lacks the metrics that were not logged then. `_step` counts calls of `log` unless
  the trainer passed a step. A metric of the trainer that counts steps is therefore preferred. It is
  required if the trainer is known to pass no step. Histories of several runs in one file
  (`Runs.histories`) have a column that names the run.
- `config.yaml` has `KEY: {desc, value}` (wandb/wandb, tests of `wandb_config`). It is read next to
  a history that is named by its directory; next to RUN.csv it is RUN.yaml.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bss.errors import InputError
from bss.importers.beside import read_yaml
from bss.importers.counts import (
    accumulation,
    claims_of,
    counted_names,
    named_like_steps,
    step_by_name,
    with_claims,
)
from bss.importers.lines import misspelt
from bss.importers.log import COUNTS, Importer, Log, named_by_directory, some
from bss.importers.names import (
    Chosen,
    MetricNames,
    choose,
    fitting,
    held_out_by_source,
    last_test,
    log_of,
)
from bss.importers.table import Table, first_rows, flat, names_in, table_of

BOUNDS = ("__MIN", "__MAX")
RUNS = ("run_id", "run_name", "run", "Name", "name")
"""Columns that name the run of a row."""


@dataclass(frozen=True)
class WandbExports(Importer):
    """Exports of runs of some trainers, the likelier first."""

    trainers: tuple[MetricNames, ...]
    about: str = "W&B: chart CSV, wide or grouped; history as CSV, JSON lines or Parquet"

    def recognises(self, file: Path, head: str) -> bool:
        """Return whether there is a column `_step` of several rows, or columns of a chart."""
        if file.suffix == ".json" and head[:1] == "{" and len(first_rows(head)) < 2:
            return False  # wandb-summary.json
        names = names_in(file, head)
        chart = names[:1] == ["Step"] and any(" - " in name for name in names[1:])
        return "_step" in names or chart or any(name.endswith(BOUNDS) for name in names)

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the runs of a chart, or of a history."""
        table = table_of(file)
        if "_step" in table.names:
            yield from _histories(file, table, self.trainers, columns)
        else:
            yield from _chart(file, table, self.trainers, columns)


def _histories(
    file: Path, table: Table, trainers: tuple[MetricNames, ...], columns: Mapping[str, str]
) -> Iterator[Log]:
    """Yield the run of a history, or the runs of one with a column that names them."""
    names = table.names
    by = columns.get("run")
    if by not in (None, *names):
        raise InputError(f"{file}: no column {by} for run; it has {some(names)}")
    by = by or next((name for name in RUNS if name in names), None)
    columns = {ours: theirs for ours, theirs in columns.items() if ours != "run"}
    like_steps = named_like_steps(names)
    values = table.read(like_steps).numbers if like_steps and "step" not in columns else {}
    chosen = _chosen(trainers, names, columns, str(file), step_by_name(like_steps, values))
    counts = counted_names(names)
    cells = table.read([*chosen.names.values(), *counts], [by] if by else [])
    if result := last_test(chosen.names, cells.sizes, columns):
        curves = {ours: name for ours, name in chosen.names.items() if name != result}
        chosen = replace(chosen, names=curves, unread=(*chosen.unread, result))
    rows = cells.rows(chosen.names, file)
    claims = claims_of(cells, chosen.names.values())
    config = {} if by else _config(file)
    settings = chosen.trainer.settings(config)
    chosen_notes = (note.replace("W&B", table.tracker) for note in chosen.notes)
    notes = (*table.notes, *chosen_notes, *misspelt(cells.sizes, chosen.names.values()))
    runs = cells.labels(by or "")
    if by and not runs.all():
        raise InputError(f"{file}: column {by} names no run in some rows; fill it in")
    left_out = table.left_out
    for run, part in rows.groupby(runs, sort=False):
        part = chosen.trainer.corrected(part)
        log = log_of(file, part, settings, notes, table.cut, str(run), chosen.unread)
        logged = {name: cells.numbers[name][part.index] for name in counts if name in cells.numbers}
        log = replace(
            log,
            rows=with_claims(log.rows, claims),
            left_out=left_out,
            accumulated=accumulation({**flat(config), **logged}),
        )
        left_out = {}  # of the file, so told once
        parts = file.parent if file.stem.isdigit() else file  # parts of an export
        yield log if by else replace(log, place=str(parts.resolve()))


def _chosen(
    trainers: tuple[MetricNames, ...],
    names: Iterable[str],
    columns: Mapping[str, str],
    source: str,
    step: str | None = None,
) -> Chosen:
    """Return what `choose` does, with another step if the trainer does not log one.

    Args:
        trainers: Trainers, the likelier first.
        names: Names in the log.
        columns: Names that the user gave.
        source: Path of the log, for messages.
        step: A column that grows evenly and is named like a step; it goes before W&B's own step.

    Raises:
        InputError: If the step is missing, or W&B's step counts the calls of log.
    """
    names = list(names)
    chosen = choose(trainers, names, columns, source)
    if step and "step" not in chosen.names:
        unread = tuple(name for name in chosen.unread if name != step)
        notes = (*chosen.notes, f"steps are {step}, which grows evenly")
        return replace(chosen, names={**chosen.names, "step": step}, notes=notes, unread=unread)
    own = next((name for name in ("_step", "Step") if name in names), None)
    unread = tuple(name for name in chosen.unread if name != own)
    by_own = replace(chosen, names={**chosen.names, "step": own or ""}, unread=unread)
    if set(COUNTS) & set(chosen.names):
        counts_steps = own and "step" not in chosen.names and not chosen.trainer.counts_logs
        return by_own if counts_steps else chosen
    if own is None:
        raise InputError(
            f"{source}: its x axis is {names[0]}; export the chart against Step, or name a count "
            "with --columns step=NAME or tokens=NAME"
        )
    alike = fitting(trainers, names)
    counting = [one for one in alike if one.counts_logs]
    if counting and len(counting) == len(alike):
        count = counting[0].names["step"][0]
        raise InputError(
            f"{source}: W&B's step counts the logs of {counting[0].trainer}; export its {count} "
            "too, or name a count with --columns step=NAME"
        )
    note = "steps are W&B's, which count logs if the trainer gives it no steps"
    return replace(by_own, notes=(*chosen.notes, note)) if counting or not alike else by_own


def _config(file: Path) -> dict[str, Any]:
    """Return the settings of a history's run; empty if it has no file of settings."""
    path = file.with_name("config.yaml") if named_by_directory(file) else file.with_suffix(".yaml")
    if not path.is_file():
        return {}
    return read_yaml(path)


def _chart(
    file: Path, table: Table, trainers: tuple[MetricNames, ...], columns: Mapping[str, str]
) -> Iterator[Log]:
    """Yield one log per run of a chart."""
    if not table.names:
        raise InputError(f"{file}: the chart has no column; export the chart again")
    axis = table.names[0]
    lines = _lines(file, table.names)
    cells = table.read([axis, *(name for metrics in lines.values() for name in metrics.values())])
    known = {name for name, values in cells.numbers.items() if not np.isnan(values).all()}
    empty = [run for run, metrics in lines.items() if not known & set(metrics.values())]
    if len(empty) == len(lines):
        raise InputError(f"{file}: no run of the chart has a value; export the chart again")
    left_out = [f"run {run} has no values and is left out" for run in empty]
    for run, metrics in lines.items():
        if run in empty:
            continue
        there = {axis: axis, **metrics}
        values = {name: cells.numbers[column] for name, column in there.items() if column in known}
        step = None if "step" in columns or axis == "Step" else step_by_name(there, values)
        chosen = _chosen(trainers, there, columns, f"{file}, {run}", step)
        rows = cells.rows({column: there[name] for column, name in chosen.names.items()}, file)
        rows = chosen.trainer.corrected(rows)
        notes = (*chosen.notes, *left_out)
        name = run.removeprefix("Group: ")
        log = log_of(file, rows, {}, notes, table.cut, name, chosen.unread)
        yield held_out_by_source(log, chosen.names.get("loss", ""), columns)
        left_out = []


def _lines(file: Path, names: list[str]) -> dict[str, dict[str, str]]:
    """Return the columns of a chart by run and metric."""
    lines: dict[str, dict[str, str]] = {}
    for name in names[1:]:
        run, _, metric = name.rpartition(" - ")
        if run.strip() and not name.endswith(BOUNDS):
            lines.setdefault(run, {})[metric] = name
    if not lines:
        raise InputError(f"{file}: no column is called RUN - METRIC; export the chart again")
    return lines
