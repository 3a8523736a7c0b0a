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

import math
import re
from pathlib import Path

from bss.errors import InputError
from bss.importers.damage import refuse_line
from bss.importers.lines import TextLog, lines_of, log_of, number, only
from bss.importers.log import LOSSES, Log
from bss.importers.metrics import MetricNames

METRICS = MetricNames(
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
_SETTING = re.compile(
    r"(?:^|[\s:])(seq_length|(?:train|global)_batch_size) \.{3,} (\d+)(?:\.{3,}\w+)?\s*$"
)


def _log(file: Path) -> Log:
    """What the last rank prints."""
    rows: list[dict[str, float]] = []
    lengths, batches = set[int](), set[int]()
    evaluated = None
    for at, line in lines_of(file):
        if "iteration" in line and _BEGINS.search(line):
            row = _row(file, at, line, evaluated)
            rows += [row] if row else []
            evaluated = row["step"] if row and "eval_loss" in row else evaluated
        elif " ..." in line and (setting := _SETTING.search(line)):
            (lengths if setting[1] == "seq_length" else batches).add(int(setting[2]))
    if len(lengths) > 1:
        several = " and ".join(map(str, sorted(lengths)))
        raise InputError(f"{file}: seq_length is {several}; give a file to runs of one length")
    batch = None if any("batch" in row for row in rows) else only(batches)
    _diverge(rows)
    without = sum(not set(LOSSES) & set(row) for row in rows)
    notes = [f"{without} lines have no loss: skipped, or NaN"] if without else []
    example = "iteration 10/ 500 | … | lm loss: 9.8E+00 |"
    return log_of(file, rows, example, only(lengths), notes, batch=batch)


def _diverge(rows: list[dict[str, float]]) -> None:
    """Lines without a loss that no finite loss follows, of NaN iterations, have an infinite one."""
    for row in reversed(rows):
        losses = [row[column] for column in LOSSES if column in row]
        if any(map(math.isfinite, losses)) or not (losses or row["nan"]):
            return
        row |= {} if losses else {"loss": math.inf}


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
            texts = {" ".join(part[:-1]).rstrip(":"): part[-1] for part in parts if part}
            row = {FIELDS[name]: number(value) for name, value in texts.items() if name in FIELDS}
            row["nan"] = number(texts.get("number of nan iterations", 0))
            if "loss" in row or "number of nan iterations" in texts:
                return {"step": float(train[1]), **row}
    except ValueError:
        pass
    return refuse_line(file, line, "is no whole row; delete or complete the line")


STANDARD_OUTPUT = TextLog(
    "Megatron-LM: lines on stdout",
    re.compile(r"iteration\s+\d+\s*/\s*\d+ \|.*elapsed time per iter"),
    _log,
)
