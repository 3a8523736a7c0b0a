"""NeMo 2: lines of its progress printer.

`nemo/lightning/pytorch/callbacks/progress_printer.py` prints a line for every step or a few:
    Training epoch 0, iteration 1/99 | lr: 3e-05 | global_batch_size: 512 | global_step: 1 |
        reduced_train_loss: 11.03 | train_step_timing in s: 10.2 | consumed_samples: 1024
A step is the index of the one just done, from 0 on, and samples are those up to its end; the first
line has none. Losses and rates have four digits. `val_loss` is repeated on every line until the
next validation and says no step, so it is left out.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bss.importers.lines import lines_of, need_rows, number, rows_of
from bss.importers.log import Importer, Log, refuse_line, run_name

FIELDS = {
    "consumed_samples": "samples",
    "global_batch_size": "batch",
    "lr": "lr",
    "reduced_train_loss": "loss",
}

_BEGINS = re.compile(r"\bTraining epoch \d+, iteration \d+/\d+ \| ")


@dataclass(frozen=True)
class ProgressPrinter(Importer):
    """What NeMo prints where it draws no progress bar, saved to a file."""

    about: str = "NeMo 2: lines of its progress printer"

    def recognises(self, file: Path, head: str) -> bool:
        """By a line of training."""
        return _BEGINS.search(head) is not None

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The run of a file."""
        rows, validated = [], False
        for line, text in lines_of(file):
            if begin := _BEGINS.search(text):
                rows.append(_row(file, line, text[begin.end() :]))
                validated |= " val_loss: " in text
        told = need_rows(file, rows_of(rows), "Training epoch 0, … 1/99 | … | global_step: 1 |")
        notes = ["losses and rates are printed to four digits"]
        if validated:
            notes.append("eval_loss left out: val_loss is printed without its step")
        yield Log(run_name(file), told, str(file), str(file), None, tuple(notes))


def _row(file: Path, line: int, text: str) -> dict[str, float]:
    """The row of what a line says."""
    parts = (part.partition(":") for part in text.split("|"))
    told = {name.strip(): value.strip() for name, _, value in parts}
    if not told.get("consumed_samples", "0").isdigit():
        del told["consumed_samples"]  # rounded, as 1.63e+06; the batches tell them
    try:
        row = {column: number(told[name]) for name, column in FIELDS.items() if name in told}
        return {"step": number(told["global_step"]) + 1, "loss": row["loss"], **row}
    except (KeyError, ValueError):
        refuse_line(file, line, "is no whole row; delete or complete the line")
