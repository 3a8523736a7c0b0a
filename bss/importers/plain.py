"""Plain tables: CSV or TSV of a step and a loss, under whatever names are usual.

Loss curves are published so (`step,lr,loss`, MultiPowerLaw's loss_curve_repo), loggers write them
(`epoch,step,train_loss,val_loss`, cells empty where nothing was logged: CSVLogger of Lightning,
`src/lightning/fabric/loggers/csv_logs.py`), and so does pandas, with a first column that has no
name. Columns are separated by `,`, `;` or tabs; beside the last two, a comma in a number is of
decimals. Names are compared without case, and `/`, `.`, `-` and space are `_`. A column `run` tells
runs apart, `seq_len` how long their sequences are. Lightning's step is the index of the one just
done: with an epoch, where every step is one less than a multiple of their distance, one more is
completed. NaN beside a finite loss is what was not logged. Lines that begin with `#`, and a header
that is there again, say nothing.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bss.errors import InputError
from bss.importers.damage import refuse_line
from bss.importers.lines import epochs, lines_of, log_of, number
from bss.importers.log import LOSSES, Importer, Log, Rows, run_name
from bss.importers.metrics import MetricNames, choose, completed

MONITORED = ("lr_adam*", "lr_sgd*", "lr_lion*", "lr_muon*", "lr_adafactor*", "lr_rmsprop*")
"""Lightning's LearningRateMonitor names the optimizer: `lr-AdamW`."""
METRICS = MetricNames(
    "plain",
    {
        "step": ("step", "steps", "global_step", "trainer_global_step", "iter", "iteration"),
        "tokens": ("tokens", "total_tokens", "tokens_seen", "consumed_tokens"),
        "batch": ("batch", "global_batch_size"),
        "lr": ("lr", "learning_rate", *MONITORED),
        "loss": ("loss", "train_loss", "training_loss", "train_loss_step", "lm_loss"),
        "eval_loss": ("eval_loss", "val_loss", "valid_loss", "validation_loss"),
    },
)
FROM_0 = "step counts from 0, as Lightning's does; one more is completed"
RUNS = ("run", "run_id", "run_name")
LENGTHS = ("seq_len", "seq_length", "sequence_length")
NOTHING = ("", "-", "none", "null", "na", "n/a")
COUNT = re.compile(r"\d[\d,]*(?:\.\d*)?(?:e\+?\d+)?")
DECIMAL = re.compile(r"\s*[-+]?\d*,\d")
LINES, LETTERS = 30, 2**16
"""Lines of a head, and letters of a line, that are looked at."""


@dataclass(frozen=True)
class PlainTable(Importer):
    """A table whose header names a step or tokens, and a loss."""

    about: str = "CSV or TSV of step or tokens and loss, lr, val_loss, batch"
    columns: Mapping[str, str] = field(default_factory=dict)

    def with_columns(self, columns: Mapping[str, str]) -> "PlainTable":
        """One that knows tables by these names too."""
        return replace(self, columns=columns)

    def recognises(self, file: Path, head: str) -> bool:
        """By its header, and a count that rises, or runs."""
        metrics = _metrics(self.columns)
        separator, names, rows = _parsed(enumerate(head.splitlines()[:LINES]), metrics)
        if not separator:
            return False
        there = metrics.named_in(names)
        at = names.index((there.get("step") or there["tokens"])[0])
        counts = [number(row[at]) for _, row in rows if COUNT.fullmatch("".join(row[at : at + 1]))]
        more, runs = np.diff(counts), not set(RUNS).isdisjoint(names)
        rises = 2 * (more > 0).sum() >= max(len(more), 1) and (more < 0).sum() < 2
        return bool(counts and (runs or rises))

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The run of a table, or its runs."""
        separator, names, table = _parsed(lines_of(file), _metrics(columns))
        given = {ours: _plain(theirs) for ours, theirs in columns.items()}
        _, chosen, notes = choose((METRICS,), [*filter(None, names)], given, str(file))
        by = chosen.pop("run", next((name for name in RUNS if name in names), None))
        length = next((name for name in LENGTHS if name in names), None)
        rows: dict[str, list[dict[str, float]]] = {}
        lengths: dict[str, set[str]] = {}
        epoch = names.index("epoch") if "epoch" in names else len(names)
        for line, cells in table:
            if len(cells) != len(names):
                refuse_line(file, line, f"has {len(cells)} cells; expected {len(names)}")
            texts = dict(zip(names, cells, strict=True))
            row = _row(file, line, {c: texts[name] for c, name in chosen.items()}, separator)
            run = texts[by] if by else run_name(file)
            rows.setdefault(run, []).append(row)
            if length:
                lengths.setdefault(run, set()).add(texts[length])
        notes = (*notes, *epochs("".join(cells[epoch : epoch + 1]) for _, cells in table))
        if separator != "," and (comma := [c for _, row in table for c in row if DECIMAL.match(c)]):
            notes = (*notes, f"commas are of decimals: {comma[0]} is {comma[0].replace(',', '.')}")
        for run, part in rows.items():
            log = log_of(file, part, "step,loss", _length(file, run, lengths), notes)
            if {"epoch", "step"} <= set(names) and _counts_from_0(log.rows):
                log = replace(log, rows=completed(log.rows), notes=(*notes, FROM_0))
            yield replace(log, run=run, place=f"{file}:{run}") if by else log


def _length(file: Path, run: str, lengths: Mapping[str, set[str]]) -> int | None:
    """Tokens per sequence of a run, where its rows say it."""
    told = " and ".join(sorted(lengths.get(run, ())))
    try:
        return int(number(told)) if told else None
    except ValueError:
        raise InputError(f"{file}: seq_len of run {run} is {told}; expected one count") from None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _metrics(columns: Mapping[str, str]) -> MetricNames:
    """The usual names, and before them those that the user gave."""
    given = {ours: (_plain(theirs),) for ours, theirs in columns.items() if ours != "run"}
    names = {c: (*given.get(c, ()), *METRICS.names.get(c, ())) for c in {**METRICS.names, **given}}
    return replace(METRICS, names=names)


def _parsed(
    lines: Iterable[tuple[int, str]], metrics: MetricNames
) -> tuple[str, list[str], list[tuple[int, list[str]]]]:
    """What separates cells, plain names, and the cells of every row; nothing of no table."""
    texts = [(n, text[:LETTERS]) for n, text in lines if text.strip() and text[0] != "#"]
    for separator in "\t;," if texts else ():
        header = next(csv.reader([texts[0][1]], delimiter=separator))
        names = list(map(_plain, header))
        there = metrics.named_in(names).keys()
        if {"step", "tokens"} & there and set(LOSSES) & there:
            rows = ((n, next(csv.reader([text], delimiter=separator))) for n, text in texts)
            return separator, names, [row for row in rows if row[1] != header]
    return "", [], []


def _row(file: Path, line: int, texts: Mapping[str, str], separator: str) -> dict[str, float]:
    row: dict[str, float] = {}
    for column, text in texts.items():
        if text.strip().lower() not in NOTHING:
            try:
                row[column] = number(text if separator == "," else text.replace(",", "."))
            except ValueError:
                refuse_line(file, line, f"{column} is {text!r}; expected a number")
    finite = any(np.isfinite(row.get(column, np.inf)) for column in LOSSES)
    return {c: value for c, value in row.items() if not finite or np.isfinite(value)}


def _counts_from_0(rows: Rows) -> bool:
    """Whether training losses are of steps before a multiple of their distance."""
    steps = np.unique(rows["step"][np.isfinite(rows.get("loss", rows["step"] * np.nan))])
    apart = min(np.diff(steps), default=0)
    return bool(apart and (apart > 1 or not steps[0]) and not ((steps + 1) % apart).any())
