"""Tables of runs in CSV, TSV, JSON lines or Parquet, under the usual names.

A plain table is wide: it has a column of steps or tokens and a column of losses. A long table has
one row per value: run, metric, value, step (MLflow's database, W&B archives).

Published loss curves have this format (`step,lr,loss`, MultiPowerLaw's loss_curve_repo). So have
the files of these loggers: CSVLogger of Lightning (`src/lightning/fabric/loggers/csv_logs.py`),
trainer_log.jsonl of LLaMA-Factory and metrics.jsonl of lingua. pandas adds a first column without a
name. Names are compared without case; `/`, `.`, `-` and space are replaced by `_`. A column `run`
distinguishes runs, `seq_len` is the length of their sequences. Lightning's `step` is the index,
from 0, of the last step. If a table has a column of epochs, and every step is one less than a
multiple of the distance between steps, 1 is added to the steps. NaN next to a finite loss is a
value that was not logged. If a column such as `split` marks a row as validation, its `loss` is read
as a held-out loss.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.importers.attempts import parts_of
from bss.importers.batches import ASSUMED, LONG
from bss.importers.counts import (
    accumulation,
    claims_of,
    counted_names,
    named_like_steps,
    step_by_name,
    with_claims,
)
from bss.importers.lines import columns_of, misspelt, number
from bss.importers.log import COLUMNS, COUNTS, LOSSES, Importer, Log, Rows, only, present, some
from bss.importers.names import (
    NAMES,
    MetricNames,
    by_plain_name,
    choose,
    completed,
    held_out_by_source,
    last_test,
    log_of,
    plain_name,
    unread_of,
    with_settings,
)
from bss.importers.restarts import with_loss
from bss.importers.table import beginning_of, names_in, table_of
from bss.importers.unread import rises
from bss.tables.likeness import held_out_label, held_out_name, unit_of

METRICS = NAMES["plain"]
SETTINGS = ("model", "params", "seed", "data_seed", "peak_lr", "beta1", "beta2", "beta2_half_life")
"""Columns of a run table that a table may have for each run."""
EXPERIMENTS = (
    "experiment", "experiment_name", "experiment_id", "exp", "exp_name", "exp_id", "trial",
    "trial_name", "trial_id", "run_label", "config_name",
)  # fmt: skip
"""Columns that distinguish runs if they have several values, in a table without a column `run`."""
FROM_0 = "step counts from 0, as Lightning's does; one more is completed"


@dataclass(frozen=True)
class PlainTable(Importer):
    """A table whose header names a step or tokens, and a loss."""

    about: str = "CSV, TSV, JSON lines or Parquet of step or tokens and loss, lr, val_loss, batch"

    def reader(self, file: Path, head: str, columns: Mapping[str, str]) -> Importer | None:
        """Return itself if there is a loss, and a count that rises, or runs."""
        names = by_plain_name(names_in(file, head))
        given = {ours: plain_name(theirs) for ours, theirs in columns.items() if ours != "run"}
        there = METRICS.named_in(names) | {o: [name] for o, name in given.items() if name in names}
        if not set(LOSSES) & there.keys():
            return None
        cells = columns_of(enumerate(beginning_of(file, head)))
        step = None if "step" in there else step_by_name(names.values(), cells.numbers)
        if step:
            there["step"] = [plain_name(step)]
        counts = [there[column][0] for column in COUNTS if column in there]
        if not counts:
            return None
        values = cells.numbers.get(names[counts[0]], np.zeros(0))
        values = values[np.isfinite(values) & (values >= 0)]
        several = len(values) > 1 or (len(values) and file.suffix in (".jsonl", ".ndjson"))
        return self if several and ("run" in there or rises(values)) else None

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the runs of a table."""
        table = table_of(file)
        names = by_plain_name(table.names)
        given = {ours: plain_name(theirs) for ours, theirs in columns.items()}
        like_steps = named_like_steps(table.names)
        if like_steps and "step" not in {**METRICS.named_in(names), **given}:
            step = step_by_name(like_steps, table.read(like_steps).numbers)
            if step:
                given["step"] = plain_name(step)
        found = choose((METRICS,), names, given, str(file))
        notes = found.notes
        chosen = {ours: names[name] for ours, name in found.names.items()}
        by = chosen.pop("run", None)
        experiments = [] if by else [names[name] for name in EXPERIMENTS if name in names]
        split = chosen.pop("split", None)
        told = {names[name] for name in SETTINGS if name in names} - {*chosen.values()}
        read = {*found.names.values(), *told}
        unread = unread_of(table.names, {names.get(name, name) for name in read}, given)
        counts = [name for name in counted_names(table.names) if name not in told]
        labels = filter(None, (by, split, *told, *experiments))
        cells = table.read([*chosen.values(), *counts], labels)
        by = by or next((name for name in experiments if len({*cells.labels(name)}) > 1), None)
        if result := last_test(chosen, cells.sizes, given):
            del chosen["eval_loss"]
            unread += (result,)
        if cells.texts.get(chosen.get("epoch", "")):  # e.g. 1/3
            del chosen["epoch"]
        notes += (*table.notes, *misspelt(cells.sizes, chosen.values()))
        rows = _held_out(_logged(cells.rows(chosen, file)), cells.labels(split or ""))
        lengths = rows.get("seq_len", pd.Series(np.nan, rows.index)).to_numpy()
        rows = only(rows, (*COLUMNS, "steps_per_second"))
        claims = claims_of(cells, chosen.values())
        texts = {name: cells.labels(name) for name in told}
        left_out = table.left_out
        for run, part in rows.groupby(cells.labels(by or ""), sort=False):
            if {"epoch", "step"} <= names.keys() and _counts_from_0(part):
                part = completed(part)
                notes = tuple(dict.fromkeys((*notes, FROM_0)))
            settings, part = _settings(file, str(run), part, lengths[part.index])
            log = log_of(file, part, settings, notes, table.cut, str(run), unread)
            log = held_out_by_source(log, chosen.get("loss", ""), columns)
            logged = {n: cells.numbers[n][part.index] for n in counts if n in cells.numbers}
            log = replace(
                log,
                rows=with_claims(log.rows, claims),
                left_out=left_out,
                accumulated=accumulation(logged),
            )
            for attempt in parts_of(log):
                at = attempt.rows.index
                labels = _labels({name: column[at] for name, column in texts.items()})
                yield replace(attempt, labels=labels)
            left_out = {}  # of the file, so told once


def _labels(columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the settings that are one in all rows of a run, as numbers if they are numbers."""
    labels: dict[str, Any] = {}
    for name, texts in columns.items():
        values = set(texts) - {""}
        if len(values) == 1:
            [value] = values
            labels[plain_name(name)] = _number_or_text(value)
    return labels


def _number_or_text(text: str) -> float | int | str:
    """Return a number if a text is one, whole if it is whole."""
    try:
        value = number(text)
    except ValueError:
        return text
    return int(value) if value % 1 == 0 else value


def _logged(rows: Rows) -> Rows:
    """Return the rows, without NaN next to a finite loss."""
    finite = np.isfinite(rows.filter(LOSSES)).any(axis=1).to_numpy()
    return rows.mask(np.isinf(rows) & finite[:, None])


def _held_out(rows: Rows, splits: np.ndarray) -> Rows:
    """Return the rows with `loss` as the held-out loss in rows of validation."""
    held_out = {split: held_out_label(split) for split in set(splits)}
    there = np.array([held_out[split] for split in splits], bool)
    if "loss" not in rows or not there.any():
        return rows
    moved = rows["loss"].where(there)
    held_out = rows["eval_loss"].fillna(moved) if "eval_loss" in rows else moved
    return rows.assign(loss=rows["loss"].mask(there), eval_loss=held_out)


def _counts_from_0(rows: Rows) -> bool:
    """Return whether training losses are of steps before a multiple of their distance."""
    steps = np.unique(rows["step"][np.isfinite(rows.get("loss", rows["step"] * np.nan))])
    apart = min(np.diff(steps), default=0)
    return bool(apart and (apart > 1 or not steps[0]) and not ((steps + 1) % apart).any())


def _settings(file: Path, run: str, rows: Rows, lengths: np.ndarray) -> tuple[dict[str, int], Rows]:
    """Return the sequence length of a run, and a batch that only rows without a loss have.

    Also return the rows without such a batch.
    """
    several = np.unique(lengths[np.isfinite(lengths)])
    if len(several) > 1 or (several % 1).any():
        shown = " and ".join(f"{value:g}" for value in several)
        raise InputError(f"{file}: seq_len of run {run} is {shown}; expected one count")
    settings = {"seq_len": int(several[0])} if len(several) else {}
    logged = with_loss(rows)
    for name in {"batch", "batch_tokens"} & {*rows}:
        if not present(rows, name)[logged].any():
            known = np.unique(rows[name][~logged])
            known = known[np.isfinite(known)]
            if len(known) == 1:
                settings[name] = int(known[0])
            rows = rows.drop(columns=name)
    return settings, rows


METRIC = ("metric", "key", "metric_name", "metricname", "attribute_path", "tag", "variable", "name")
VALUE = ("value", "metric_value", "metricvalue", "float_value")
RUN = (*METRICS.names["run"], "experiment", "experiment_id", "experimentkey")
OF_NEPTUNE = ("float_value", "value")
WHOLE_VALUE = "int_value"
"""Column of whole values in a table of Neptune, whose settings have no step."""
SETTING_NAMES = {
    "batch": ("global_batch_size", "total_batch_size", "global_batch"),
    ASSUMED: ("batch_size",),
    "seq_len": METRICS.names["seq_len"],
}
"""Last parts of the names of settings."""
CONTEXT = ("runcontext", "context", "split")
"""Columns of long tables that mark values as training or validation."""
LONG_METRICS = replace(
    METRICS, names={c: METRICS.names.get(c, ()) for c in (*COLUMNS[1:], "steps_per_second")}
)
"""Names of metrics; the step is a column."""


@dataclass(frozen=True)
class LongTable(Importer):
    """A table with a row per value."""

    about: str = "CSV, TSV, JSON lines or Parquet of run, metric, value, step"

    def reader(self, file: Path, head: str, columns: Mapping[str, str]) -> Importer | None:
        """Return itself if there are columns of metric, value and a count.

        Raises:
            InputError: If the table lacks a column that the user named.
        """
        names = names_in(file, head)
        plain = by_plain_name(names)
        named = [role for role in (*LONG, "run") if role in columns] if names else []
        for role in named if set(LONG) & {*named} else ():
            if plain_name(columns[role]) not in plain:
                has = f"it has {some(names)}"
                raise InputError(f"{file}: no column {columns[role]} for {role}; {has}")
        return self if all(_roles(plain, columns)[:3]) else None

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the runs of a table."""
        table = table_of(file)
        names = by_plain_name(table.names)
        metric, value, count, by = _roles(names, columns)
        context = next((names[name] for name in CONTEXT if name in names), "")
        context = context if context not in (metric, value, count, by) else ""
        whole = [names[WHOLE_VALUE]] if WHOLE_VALUE in names and value in OF_NEPTUNE else []
        cells = table.read([value, count, *whole], filter(None, (metric, by, context)))
        numbers = cells.rows({"step": count, "value": value}, file)
        if whole:
            numbers["value"] = numbers["value"].fillna(
                cells.rows({"value": whole[0]}, file)["value"]
            )
        metrics = [
            _in_context(*pair)
            for pair in zip(cells.labels(metric), cells.labels(context), strict=True)
        ]
        values = numbers.assign(run=cells.labels(by), name=metrics)
        counted = _counted_by(names, columns)
        of_table = {"run", *LONG}
        if plain_name(columns.get(counted, "")) in names:
            of_table.add(counted)
        given = {ours: plain_name(o) for ours, o in columns.items() if ours not in of_table}
        told = {"notes": table.notes, "cut": table.cut, "plain": plain_name}
        left_out = table.left_out
        for run, part in values.groupby("run", sort=False):
            log = long_log(file, part, (LONG_METRICS,), given, run=str(run), **told)
            if counted != "step":
                log = replace(log, rows=log.rows.rename(columns={"step": counted}))
            log = _with_settings(log, part[part["step"].isna()])
            yield replace(log, left_out=left_out)
            left_out = {}


def _with_settings(log: Log, settings: pd.DataFrame) -> Log:
    """Return a log with the batch and length among settings, values that have no step.

    A `batch_size` may be of one device, so that a note names it and `--batch` replaces it.
    """
    pairs = zip(settings["name"], settings["value"], strict=True)
    values = {plain_name(str(name)): float(value) for name, value in pairs}
    found: dict[str, float] = {}
    for column, known in SETTING_NAMES.items():
        there = [n for k in known for n in values if n == k or n.endswith(f"config_{k}")]
        size = values[there[0]] if there else math.nan
        if size >= 1 and size % 1 == 0:
            found[column] = size
    assumed = found.pop(ASSUMED, None)
    log = replace(
        with_settings(log, found),
        accumulated={**accumulation(values), **log.accumulated},
    )
    if assumed is None or "batch" in log.rows:
        return log
    note = f"batch is batch_size {assumed:g} of the settings; if that is per device, give --batch"
    return replace(log, rows=log.rows.assign(**{ASSUMED: assumed}), notes=(*log.notes, note))


def _in_context(metric: str, context: str) -> str:
    """Return the name of a metric, with a held-out context before it unless it states that."""
    if not held_out_label(context) or held_out_name(metric):
        return metric
    return f"val_{metric}"


def _counted_by(names: Mapping[str, str], columns: Mapping[str, str]) -> str:
    """Return what a long table counts: the first count whose column the user named, or steps."""
    return next((o for o in COUNTS if o in columns and plain_name(columns[o]) in names), "step")


def _roles(names: Mapping[str, str], columns: Mapping[str, str]) -> list[str]:
    """Return the names of the metric, the value, the count and the run; "" if there is none."""
    count = _counted_by(names, columns)
    usual = {"metric": METRIC, "value": VALUE, count: METRICS.names["step"], "run": RUN}
    given = {role: plain_name(columns[role]) for role in usual if role in columns}
    if given.get(count, "") not in names:  # a metric, and no column
        given.pop(count, None)
    roles = [(given[role],) if role in given else known for role, known in usual.items()]
    return [next((names[name] for name in role if name in names), "") for role in roles]


def long_log(
    file: Path,
    values: pd.DataFrame,
    trainers: tuple[MetricNames, ...],
    columns: Mapping[str, str],
    notes: tuple[str, ...] = (),
    cut: str = "",
    run: str = "",
    plain: Callable[[str], str] = str,
) -> Log:
    """Return the run of a file whose values have a name and a step each.

    Args:
        file: Path of the log.
        values: The columns name, step and value, in the order written.
        trainers: Trainers whose names they may be, the likelier first.
        columns: Names given by --columns.
        notes: Remarks for the report.
        cut: Why the end of the log is missing.
        run: As in `log_of`.
        plain: Returns the name that is compared with those of trainers.

    Raises:
        InputError: If it has no loss of a known name.
    """
    sizes = Counter(values["name"])
    names: dict[str, str] = {}
    for name in sizes:
        names.setdefault(plain(name), name)
    chosen = choose(trainers, names, columns, str(file))
    read = {names[theirs]: column for column, theirs in chosen.names.items()}
    units = {name: unit_of(column, name) for name, column in read.items()}
    known = values[values["name"].isin(read)]
    value = known["value"] * known["name"].map(units)
    rows = _wide(known.assign(name=known["name"].map(read), value=value))
    notes = (*chosen.notes, *misspelt(sizes, read), *notes)
    unread = unread_of(sizes, read, columns)
    log = log_of(file, chosen.trainer.corrected(rows), {}, notes, cut, run, unread)
    return held_out_by_source(log, chosen.names.get("loss", ""), columns)


def _wide(values: pd.DataFrame) -> Rows:
    """Return a row for every step, in the order written; a repeated value makes another row."""
    values = values.dropna(subset="step")
    values = values.assign(time=values.groupby(["name", "step"]).cumcount())
    wide = values.pivot(index=["time", "step"], columns="name", values="value")
    wide = wide.loc[pd.MultiIndex.from_frame(values[["time", "step"]].drop_duplicates())]
    return wide if "step" in wide else wide.reset_index("step")
