"""NeMo 2: lines of its progress printer.

`nemo/lightning/pytorch/callbacks/progress_printer.py` prints a line for every step or a few:
    Training epoch 0, iteration 1/99 | lr: 3e-05 | global_batch_size: 512 | global_step: 1 |
        reduced_train_loss: 11.03 | train_step_timing in s: 10.2 | consumed_samples: 1024
A step is the index of the one just done, from 0 on, and samples are those up to its end; the first
line has none. Losses and rates have four digits. `val_loss` is repeated on every line until the
next validation and says no step, so it is left out.
"""

import re
from pathlib import Path

from bss.importers.damage import refuse_line
from bss.importers.lines import TextLog, epochs, lines_of, log_of, number
from bss.importers.log import Log

FIELDS = {
    "consumed_samples": "samples",
    "global_batch_size": "batch",
    "lr": "lr",
    "reduced_train_loss": "loss",
}

_BEGINS = re.compile(r"\bTraining epoch (\d+), iteration \d+/\d+ \| ")


def _log(file: Path) -> Log:
    """What NeMo prints where it draws no progress bar."""
    rows, read, validated = [], [], False
    for line, text in lines_of(file):
        if begin := _BEGINS.search(text):
            rows.append(_row(file, line, text[begin.end() :]))
            read.append(begin[1])
            validated |= " val_loss: " in text
    notes = ["losses and rates are printed to four digits", *epochs(read)]
    if validated:
        notes.append("eval_loss left out: val_loss is printed without its step")
    return log_of(file, rows, "Training epoch 0, … 1/99 | … | global_step: 1 |", notes=notes)


def _row(file: Path, line: int, text: str) -> dict[str, float]:
    """The row of what a line says."""
    parts = (part.partition(":") for part in text.split("|"))
    texts = {name.strip(): value.strip() for name, _, value in parts}
    if not texts.get("consumed_samples", "0").isdigit():
        del texts["consumed_samples"]  # rounded, as 1.63e+06; the batches tell them
    try:
        row = {column: number(texts[name]) for name, column in FIELDS.items() if name in texts}
        return {"step": number(texts["global_step"]) + 1, "loss": row["loss"], **row}
    except (KeyError, ValueError):
        refuse_line(file, line, "is no whole row; delete or complete the line")


PROGRESS_PRINTER = TextLog("NeMo 2: lines of its progress printer", _BEGINS, _log)
