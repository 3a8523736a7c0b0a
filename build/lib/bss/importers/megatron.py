"""Megatron-LM and what was made of it: lines on stdout, old and new; tags of TensorBoard and W&B.

`training_log` and `evaluate_and_print_results` of `megatron/training/training.py` (commit 001b00c):
    [TIME] iteration 10/ 500 | consumed samples: 5120 | … | learning rate: 1.5E-04 |
        global batch size: 512 | lm loss: 9.8E+00 | … number of nan iterations: 0 |
    validation loss at iteration 100 | lm loss value: 3.1E+00 | lm loss PPL: 2.2E+01 |
The oldest lines have no time, samples, batch or count of nan iterations, nor `:` after a name;
Megatron-DeepSpeed has `consumed tokens`, which are not samples × length where a curriculum grows
the length; GPT-NeoX `lm_loss`, `validation results` and, in its arguments, the global batch as
`train_batch_size`. The loss of a line is the mean since the line before, without skipped
iterations, which consume samples too; a line without one had none that was finite. At the end the
validation set is read on (`on validation set`), left out where its iteration was evaluated before.
`seq_length` is in the arguments printed at the start (`  seq_length ..... 2048`). Tags: `lm loss`,
`lm loss validation`, `learning-rate`, `batch-size` by iteration; `lm loss vs samples` is the same
by samples, which says how many a step had consumed. W&B gets the same, and `samples vs steps`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bss.errors import InputError
from bss.importers.lines import lines_of, need_rows, number, rows_of
from bss.importers.log import LOSSES, Importer, Log, refuse_line, run_name
from bss.importers.metrics import Metrics

METRICS = Metrics(
    "megatron",
    {
        "samples": ("samples vs steps",),
        "batch": ("batch-size",),
        "lr": ("learning-rate",),
        "loss": ("lm loss",),
        "eval_loss": ("lm loss validation",),
    },
    {"seq_len": ("seq_length",)},
    twins={"samples": ("lm loss", "lm loss vs samples")},
)
FIELDS = {
    "consumed samples": "samples",
    "consumed tokens": "tokens",
    "global batch size": "batch",
    "learning rate": "lr",
    "lm loss": "loss",
    "lm_loss": "loss",
}

_BEGINS = re.compile(r"\biteration\s+\d+\s*/\s*\d+ \||validation (?:loss|results) at iteration \d+")
_TRAIN = re.compile(r"\biteration\s+(\d+)\s*/\s*\d+ \|(.*elapsed time per iteration \(m?s\).*)\|")
_EVAL = re.compile(
    r"validation (?:loss|results) at iteration (\d+)(?: on (\w+) set)? \|"
    r".*?\blm[ _]loss value: (\S+) \|"
)
_SETTING = re.compile(r"(?:^|[\s:])(seq_length|train_batch_size) \.{3,} (\d+)(?:\.{3,}\w+)?\s*$")


@dataclass(frozen=True)
class StandardOutput(Importer):
    """What the last rank prints, saved to a file."""

    about: str = "Megatron-LM: lines on stdout"

    def recognises(self, file: Path, head: str) -> bool:
        """By its lines of training."""
        return re.search(r"iteration\s+\d+\s*/\s*\d+ \|.*elapsed time per iter", head) is not None

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The run of a file."""
        rows: list[dict[str, float]] = []
        settings: dict[str, set[int]] = {"seq_length": set(), "train_batch_size": set()}
        evaluated = None
        for at, line in lines_of(file):
            if "iteration" in line and _BEGINS.search(line):
                row = _row(file, at, line, evaluated)
                rows += [row] if row else []
                evaluated = row["step"] if row and "eval_loss" in row else evaluated
            elif " ..." in line and (found := _SETTING.search(line)):
                settings[found[1]].add(int(found[2]))
        if len(lengths := settings["seq_length"]) > 1:
            told = " and ".join(map(str, sorted(lengths)))
            raise InputError(f"{file}: seq_length is {told}; give a file to runs of one length")
        told = need_rows(file, rows_of(rows), "iteration 10/ 500 | … | lm loss: 9.8E+00 |")
        if "batch" not in told and len(batches := settings["train_batch_size"]) == 1:
            told["batch"] = np.full(len(rows), float(*batches))
        without = sum(not set(LOSSES) & set(row) for row in rows)
        notes = (f"{without} lines have no loss: skipped, or NaN",) if without else ()
        yield Log(run_name(file), told, str(file), str(file), next(iter(lengths), None), notes)


def _row(file: Path, line: int, text: str, evaluated: float | None) -> dict[str, float] | None:
    """A line's row; None of a loss on the test set, or of a step that was evaluated before."""
    held_out, train = _EVAL.search(text), _TRAIN.search(text)
    try:
        if held_out and not train:
            step = float(held_out[1])
            row = {"step": step, "eval_loss": number(held_out[3])}
            again = held_out[2] is not None and step == evaluated
            return None if again or held_out[2] not in (None, "validation") else row
        if train and len(_BEGINS.findall(text)) == 1:
            parts = (part.split() for part in train[2].split("|"))
            told = {" ".join(part[:-1]).rstrip(":"): part[-1] for part in parts if part}
            row = {FIELDS[name]: number(value) for name, value in told.items() if name in FIELDS}
            if "loss" in row or "number of nan iterations" in told:
                return {"step": float(train[1]), **row}
    except ValueError:
        pass
    return refuse_line(file, line, "is no whole row; delete or complete the line")
