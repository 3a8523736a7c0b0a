"""Megatron-LM: lines on stdout, old and new, and its tags of TensorBoard and W&B.

`training_log` and `evaluate_and_print_results` of `megatron/training/training.py` (commit 001b00c):
    [TIME] iteration 10/ 500 | consumed samples: 5120 | … | learning rate: 1.5E-04 |
        global batch size: 512 | lm loss: 9.8E+00 | … number of nan iterations: 0 |
    validation loss at iteration 100 | lm loss value: 3.1E+00 | lm loss PPL: 2.2E+01 |
Older lines have no time. The loss of a line is the mean since the line before, without skipped
iterations, which consume samples too; a line without one had none that was finite. `seq_length` is
in the arguments printed at the start (`  seq_length ..... 2048`). Tags: `lm loss`, `lm loss
validation`, `learning-rate`, `batch-size` by iteration; `lm loss vs samples` is the same by
samples, which says how many a step had consumed. W&B gets the same names, and `samples vs steps`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

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
    "samples": "consumed samples",
    "batch": "global batch size",
    "lr": "learning rate",
    "loss": "lm loss",
}

_BEGINS = re.compile(r"\biteration\s+\d+\s*/\s*\d+ \||validation loss at iteration \d+")
_TRAIN = re.compile(r"\biteration\s+(\d+)\s*/\s*\d+ \|(.*number of nan iterations:\s*\d+)")
_EVAL = re.compile(
    r"validation loss at iteration (\d+)(?: on (\w+) set)? \|.*?\blm loss value: (\S+) \|"
)
_SEQ_LEN = re.compile(r"^\s*(?:\S+:\s*)?seq_length \.{3,} (\d+)\s*$")


@dataclass(frozen=True)
class StandardOutput(Importer):
    """What the last rank prints, saved to a file."""

    about: str = "Megatron-LM: lines on stdout"

    def recognises(self, file: Path, head: str) -> bool:
        """By its lines of training."""
        return re.search(r"iteration\s+\d+\s*/\s*\d+ \|.*elapsed time per iter", head) is not None

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The run of a file."""
        rows, seq_len = [], None
        for at, line in lines_of(file):
            if _BEGINS.search(line):
                row = _row(file, at, line)
                rows += [row] if row else []
            elif found := _SEQ_LEN.match(line):
                if seq_len not in (None, int(found[1])):
                    refuse_line(file, at, f"seq_length is {found[1]} after {seq_len}; give runs "
                                "of one sequence length each in a file")  # fmt: skip
                seq_len = int(found[1])
        told = need_rows(file, rows_of(rows), "iteration 10/ 500 | … | lm loss: 9.8E+00 |")
        without = sum(not set(LOSSES) & set(row) for row in rows)
        notes = (f"{without} lines have no loss",) if without else ()
        yield Log(run_name(file), told, str(file), str(file), seq_len, notes)


def _row(file: Path, line: int, text: str) -> dict[str, float] | None:
    """A line's row; None of a loss on the test set."""
    held_out, train = _EVAL.search(text), _TRAIN.search(text)
    try:
        if held_out:
            row = {"step": float(held_out[1]), "eval_loss": number(held_out[3])}
            return row if held_out[2] in (None, "validation") else None
        fields = (part.partition(":") for part in train[2].split("|")) if train else ()
        told = {name.strip(): value.strip() for name, _, value in fields}
        if train and "elapsed time per iteration (ms)" in told:
            row = {c: number(told[name]) for c, name in FIELDS.items() if name in told}
            return {"step": float(train[1]), **row}
    except ValueError:
        pass
    return refuse_line(file, line, "is no whole row; delete or complete the line")
