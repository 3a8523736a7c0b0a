"""Run tables, as this package writes them: every column is kept.

A table has the columns run, batch, a count (step or tokens), a length (seq_len or batch_tokens) and
a loss, under these names. Columns that are constant in a run, e.g. model or seed, are its labels.
A table of somebody else may have these columns and a held-out loss under another usual name.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from bss.errors import InputError
from bss.importers.log import COLUMNS, LOSSES, Importer, Log, head_of
from bss.importers.names import held_out_by_name, usual_losses
from bss.importers.table import first_rows, names_in
from bss.tables.columns import Origin, need, numbers
from bss.tables.joining import has_run_columns
from bss.tables.likeness import held_out_name
from bss.tables.reading import Reading
from bss.tables.storage import read_table

REPEATED = "loss repeats eval_loss in every row, so no training loss was logged"


@dataclass(frozen=True)
class RunTables(Importer):
    """Run tables of this package."""

    about: str = "run tables as `bss import` writes them, CSV or Parquet"

    def recognises(self, file: Path, head: str) -> bool:
        """Return whether it has the columns of a run table, and several rows of a run."""
        if file.suffix == ".parquet":
            if not has_run_columns(names_in(file, head)):
                return False
            runs = pq.read_table(file, columns=["run"]).column("run").to_pylist()
        else:
            if not (file.suffix == ".csv" and has_run_columns(_comma_separated(head))):
                return False
            runs = [row["run"] for row in first_rows(head) if "run" in row]
        return len(set(runs)) < len(runs)

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the runs of a table. Names of --columns that it lacks are those of other files."""
        there = names_in(file, head_of(file))
        named = {ours: theirs for ours, theirs in columns.items() if theirs in there}
        frame, origin = read_table(file, Reading(named))
        known = "eval_loss" in frame
        held_out = [] if known else _held_out(map(str, frame.columns))
        frame = frame.rename(columns=dict.fromkeys(held_out, "eval_loss"))
        notes = tuple(f"{name} is read as the held-out loss, by its name" for name in held_out)
        others = [str(name) for name in frame if name != "eval_loss" and not known]
        unread = tuple(name for name in others if held_out_name(name))
        need(frame, origin, "run", "batch", ("step", "tokens"), LOSSES)
        for i in np.flatnonzero(frame["run"].isna())[:1]:
            origin.refuse(i, "run is missing; name the run of every row")
        for column in [name for name in (*COLUMNS, "seq_len") if name in frame]:
            frame[column] = numbers(frame, column, origin, missing_ok=True).astype(float)
        for run, part in frame.groupby("run", sort=False):
            log = _log(file, str(run), part.drop(columns="run"), origin)
            yield replace(log, notes=(*log.notes, *notes), unread=unread)


def _held_out(names: Iterable[str]) -> list[str]:
    """Return the column that is a held-out loss by its name, if there is one such column."""
    there = list(names)
    return usual_losses(there).get("eval_loss") or held_out_by_name(there, ())


def _comma_separated(head: str) -> list[str]:
    """Return the names in the header of a CSV file."""
    lines = (line for line in head.splitlines() if line.strip() and not line.startswith("#"))
    return next(csv.reader(lines), [])


def _log(file: Path, run: str, part: pd.DataFrame, origin: Origin) -> Log:
    """Return one run of a table, with constant columns as labels."""
    part = part.dropna(axis="columns", how="all").reset_index(drop=True)
    notes: tuple[str, ...] = ()
    if "eval_loss" in part and "loss" in part and part["loss"].equals(part["eval_loss"]):
        part = part.drop(columns="loss")
        notes = (REPEATED,)
    others = [name for name in part if name not in COLUMNS]
    labels = {name: _constant(part[name]) for name in others}
    labels = {name: value for name, value in labels.items() if value is not None}
    length = labels.pop("seq_len", None)
    if "seq_len" in part and (length is None or length % 1):
        several = " and ".join(f"{value:g}" for value in np.unique(part["seq_len"]))
        raise InputError(f"{file}: seq_len of run {run} is {several}; expected one count")
    return Log(
        run=run,
        rows=part.drop(columns=[*labels, "seq_len"], errors="ignore"),
        source=str(file),
        place=f"{file}:{run}",
        seq_len=None if length is None else int(length),
        notes=notes,
        labels=labels,
        labelled=True,
    )


def _constant(column: pd.Series) -> Any:
    """Return the one value of a column; None if it has several, or empty cells."""
    values = column.unique()
    if len(values) > 1:
        return None
    value = values[0]
    return value.item() if isinstance(value, np.generic) else value
