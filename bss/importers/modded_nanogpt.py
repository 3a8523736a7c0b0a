"""modded-nanogpt: its log of a run, which begins with the program that ran.

The log (KellerJordan/modded-nanogpt, `train_gpt.py` commit 0016a3c; logs under `records/`) is the
source, a line of 100 `=`, and lines
    step:125/1390 val_loss:4.2345 train_time:12345ms step_avg:98.76ms
The batch is in the source's `Hyperparameters`, read as text and never executed: `batch_size` in
tokens or sequences as its comment says ("batch size in tokens"; "in sequences, across all
devices"), `sequence_length` or `train_seq_len`; with `grad_accum_steps = 8 // world_size` a step
has 8 sequences. What cannot be read so, a schedule for one, is left to --batch. The oldest logs
begin with a line of `=` too, and have a `train_loss`, of one device's last micro-batch.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bss.importers.lines import PREFIX, lines_of, log_of, loss_of, matches, refuse_columns
from bss.importers.log import Importer, Log

RULE = "=" * 100
SEQ_LENS = ("sequence_length", "train_seq_len")

_BEGINS = re.compile(PREFIX + r"step:\d+/\d+ (?:val|train)_loss:")
_WHOLE = re.compile(
    r"step:(\d+)/\d+ (val|train)_loss:(\S+) train_time:\S+ step_avg:\S+ms(?:\s.*)?$"
)
_CLASS = re.compile(r"^class Hyperparameters\b.*\n((?:[ \t].*\n|\n)*)", re.MULTILINE)
_SETTING = re.compile(
    r"^[ \t]+(\w+) *(?:: *int *)?= *(\d{1,15}(?: *\* *\d{1,15})*) *(?:#(.*))?$", re.MULTILINE
)
"""A whole number, or a product of them, and the comment behind it."""
_SEQUENCES = re.compile(r"^\s*grad_accum_steps\s*=\s*(\d{1,15})\s*//", re.MULTILINE)


@dataclass(frozen=True)
class RecordedRun(Importer):
    """A log of the program and its run."""

    about: str = "modded-nanogpt: log of the program and its run"

    def recognises(self, file: Path, head: str) -> bool:
        """By the settings in its source, or its lines."""
        lines = re.search(_BEGINS.pattern, head, re.MULTILINE)
        program = file.suffix in (".txt", ".log") and "import torch" in head and "val_loss" in head
        return lines is not None or program

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The run of a file."""
        refuse_columns(file, columns)
        rows = []
        for line, row in matches(file, _BEGINS, _WHOLE):
            column = "eval_loss" if row[2] == "val" else "loss"
            rows.append({"step": float(row[1]), column: loss_of(file, line, row[3])})
        batch, seq_len, notes = _settings(file)
        if any("loss" in row for row in rows):
            notes = (*notes, "train_loss is of one device's last micro-batch")
        example = "step:125/1390 val_loss:4.2345 train_time:…"
        yield log_of(file, rows, example, seq_len, notes, **batch)


def _settings(file: Path) -> tuple[dict[str, float], int | None, tuple[str, ...]]:
    """The batch's column, the sequence length, and what could not be read."""
    program = "".join(f"{line}\n" for line in _program(file))
    hyperparameters = _CLASS.search(program)
    values: dict[str, tuple[int, str]] = {}
    for name, product, comment in _SETTING.findall(hyperparameters[1] if hyperparameters else ""):
        value = math.prod(map(int, product.split("*")))
        if 0 < value < 2**53:
            values[name] = value, comment
    seq_len = next((values[name][0] for name in SEQ_LENS if name in values), None)
    size, comment = values.get("batch_size", (0, ""))
    if "in tokens" in comment:
        return {"batch_tokens": float(size)}, seq_len, ()
    if "in sequences" in comment:
        return {"batch": float(size)}, seq_len, ()
    if "train_seq_len" in values and (sequences := _SEQUENCES.search(program)):
        return {"batch": float(sequences[1])}, seq_len, ()
    return {}, seq_len, ("the program does not say its batch in a way that can be read",)


def _program(file: Path) -> Iterator[str]:
    """The lines before the first rule, or between the first two where one comes first."""
    begun = False
    for _, line in lines_of(file):
        if not line.startswith(RULE):
            begun = True
            yield line
        elif begun:
            return
