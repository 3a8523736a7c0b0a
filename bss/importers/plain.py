"""Plain tables: CSV or TSV of a step and a loss, under whatever names are usual.

Loss curves are published so (`step,lr,loss`, MultiPowerLaw's loss_curve_repo), loggers write them
(`epoch,step,train_loss,val_loss`, cells empty where nothing was logged: CSVLogger of Lightning,
`src/lightning/fabric/loggers/csv_logs.py`), and so does pandas, with a first column that has no
name. Columns are separated by `,`, `;` or tabs; beside the last two, a comma in a number is of
decimals. Names are compared without case, and `/`, `.`, `-` and space are `_`. A column `run` tells
runs apart. Lightning's step is the index of the one just done: with an epoch, where every step is
one less than a multiple of their distance, one more is completed. NaN beside a finite loss is what
was not logged. Lines that begin with `#`, and a header that is there again, say nothing.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bss.importers.lines import lines_of, log_of, number
from bss.importers.log import LOSSES, Importer, Log, refuse_line, run_name
from bss.importers.metrics import MetricNames, choose, completed

METRICS = MetricNames(
    "plain",
    {
        "step": ("step", "steps", "global_step", "trainer_global_step", "iter", "iteration"),
        "tokens": ("tokens", "total_tokens", "tokens_seen", "consumed_tokens"),
        "batch": ("batch", "global_batch_size"),
        "lr": ("lr", "learning_rate"),
        "loss": ("loss", "train_loss", "training_loss", "train_loss_step", "lm_loss"),
        "eval_loss": ("eval_loss", "val_loss", "valid_loss", "validation_loss"),
    },
)
SEPARATORS = "\t;,"
RUNS = ("run", "run_id", "run_name")
NOTHING = ("", "-", "none", "null", "na", "n/a")

_OTHER = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class PlainTable(Importer):
    """A table whose header names a step or tokens, and a loss."""

    about: str = "CSV or TSV of step or tokens and loss, lr, val_loss, batch"

    def recognises(self, file: Path, head: str) -> bool:
        """By its header and the number of cells below; a run table of ours needs no import."""
        lines = [line for line in head.splitlines()[:9] if line.strip() and line[0] != "#"][:2]
        separator = _separator(lines[0]) if len(lines) == 2 else None
        if separator is None:
            return False
        names, cells = (_cells(line, separator) for line in lines)
        return len(names) == len(cells) and not {"run", "seq_len"} <= set(map(_plain, names))

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The run of a table, or its runs."""
        separator, names, table = _table(file)
        given = {ours: _plain(theirs) for ours, theirs in columns.items()}
        by = given.pop("run", next((name for name in RUNS if name in names), None))
        _, chosen, notes = choose((METRICS,), [name for name in names if name], given, str(file))
        rows: dict[str, list[dict[str, float]]] = {}
        for line, cells in table:
            texts = dict(zip(names, cells, strict=True))
            row = _row(file, line, {c: texts[name] for c, name in chosen.items()}, separator)
            rows.setdefault(texts[by] if by else run_name(file), []).append(row)
        for run, part in rows.items():
            log = log_of(file, part, "step,loss", notes=notes)
            if "epoch" in names and _counts_from_0(log):
                more = (*notes, "step counts from 0, as Lightning's does; one more is completed")
                log = replace(log, rows=completed(log.rows), notes=more)
            yield replace(log, run=run, place=f"{file}:{run}") if by else log


def _plain(name: str) -> str:
    return _OTHER.sub("_", name.lower()).strip("_")


def _cells(text: str, separator: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([text], delimiter=separator))]


def _separator(header: str) -> str | None:
    """What separates names that a count and a loss are among; None where nothing does."""
    for separator in SEPARATORS:
        there = METRICS.named_in(map(_plain, _cells(header, separator)))
        if {"step", "tokens"} & set(there) and set(LOSSES) & set(there):
            return separator
    return None


def _table(file: Path) -> tuple[str, list[str], list[tuple[int, list[str]]]]:
    """Separator, plain names, and the cells of every row with their line."""
    texts = [(n, text) for n, text in lines_of(file) if text.strip() and text[0] != "#"]
    separator = _separator(texts[0][1]) or ","
    header = _cells(texts[0][1], separator)
    rows = [(line, _cells(text, separator)) for line, text in texts[1:]]
    for line, cells in rows:
        if len(cells) != len(header):
            refuse_line(file, line, f"has {len(cells)} cells; expected {len(header)}; complete it")
    return separator, list(map(_plain, header)), [row for row in rows if row[1] != header]


def _row(file: Path, line: int, texts: Mapping[str, str], separator: str) -> dict[str, float]:
    row: dict[str, float] = {}
    for column, text in texts.items():
        if text.lower() not in NOTHING:
            try:
                row[column] = number(text if separator == "," else text.replace(",", "."))
            except ValueError:
                refuse_line(file, line, f"{column} is {text!r}; expected a number")
    if any(np.isfinite(row.get(column, np.inf)) for column in LOSSES):
        return {column: value for column, value in row.items() if np.isfinite(value)}
    return row


def _counts_from_0(log: Log) -> bool:
    """Whether training losses are of steps before a multiple of their distance."""
    rows = log.rows
    if not {"step", "loss"} <= set(rows):
        return False
    steps = np.unique(rows["step"][np.isfinite(rows["loss"])])
    apart = np.diff(steps).min() if len(steps) > 1 else 0
    return bool(apart and (apart > 1 or steps[0] == 0) and not ((steps + 1) % apart).any())
