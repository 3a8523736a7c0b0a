"""Hugging Face Trainer: the dicts that it prints.

`PrinterCallback` and `ProgressCallback` of transformers (`src/transformers/trainer_callback.py`)
print the logs of TrainerState without their step, as
    {'loss': 3.2123, 'grad_norm': 1.23, 'learning_rate': 5e-05, 'epoch': 0.1}
    {'eval_loss': 3.1234, 'eval_runtime': 12.3, …, 'epoch': 0.1}
(with numbers as text, to four digits, since transformers 5), among the progress bar ` 10%|█ |
250/2500 [02:11<…]`, which is drawn again after each. ms-swift adds `global_step` or
`global_step/max_steps`. Where a dict has no step, it is that of the bar drawn next, or else before;
without bars `logging_steps` tells the training losses', and a held-out one has the step of the
training loss of its epoch. A bar of evaluation counts to another total than the first, which is
training's. `train_loss`, of the whole training, is no loss of a step.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bss.errors import InputError
from bss.importers.damage import damage, refuse_line
from bss.importers.huggingface import STATE, unfiltered
from bss.importers.lines import epochs, lines_of, log_of, loss_of
from bss.importers.log import Importer, Log
from bss.importers.metrics import choose

STEPLESS = (
    "the dicts have no step, and no progress bar, global_step or logging_steps tells it; give "
    "trainer_state.json instead, or name a key that is a step with --columns step=NAME"
)

_BEGINS = re.compile(r"\{'(?:eval_(?:\w+_)?)?loss': ")
_WHOLE = re.compile(r"\{'(?:eval_(?:\w+_)?)?loss': [^{}]*\}")
_PAIR = re.compile(r"'([^']+)': '?([^',}]+)'?")
_BAR = re.compile(r"^\s*\d+%\|[^|]*\| *(\d+)/(\d+) \[")
_EVERY = re.compile(r"\blogging_steps['\"]?\s*[=: ]\s*(\d+)\b")
_BATCH = re.compile(r"\bTotal train batch size \(.*\) = ([\d,]+)\s*$")


@dataclass(frozen=True)
class PrintedDicts(Importer):
    """Lines on stdout, with or without progress bars."""

    about: str = "Hugging Face Trainer: printed dicts"

    def recognises(self, file: Path, head: str) -> bool:
        """By a dict with a loss and an epoch."""
        return any("'epoch': " in row[0] for row in _WHOLE.finditer(head))

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The run of a file."""
        dicts, batch = _dicts(file)
        names = dict.fromkeys(name for _, row in dicts for name in row)
        _, chosen, notes = choose((STATE,), names, columns, str(file))
        if "step" not in chosen:
            raise InputError(f"{file}: {STEPLESS}")
        stepless = sum(chosen["step"] not in row for _, row in dicts)
        dicts = [(line, row) for line, row in dicts if chosen["step"] in row]
        rows = [
            {c: loss_of(file, line, row[name]) for c, name in chosen.items() if name in row}
            for line, row in dicts
        ]
        rows = unfiltered(rows, [row for _, row in dicts])
        notes = (*notes, *epochs(row.get("epoch") for _, row in dicts))
        if stepless:
            notes = (*notes, f"{stepless} dicts have no step and are left out")
        yield log_of(file, rows, "{'loss': 3.2123, …, 'epoch': 0.1}", None, notes, batch=batch)


def _dicts(file: Path) -> tuple[list[tuple[int, dict[str, str]]], int | None]:
    """The dicts of a log with their line, and with a step where something tells it; the batch."""
    dicts: list[tuple[int, dict[str, str]]] = []
    total, bar, every, batch = None, None, None, None
    waiting: list[dict[str, str]] = []
    for line, text in lines_of(file):
        if drawn := _BAR.search(text):
            total = total or drawn[2]
            if drawn[2] == total:
                bar = drawn[1]
                for row in waiting:
                    row["step"] = bar
                waiting = []
        elif text.strip():
            waiting = []
        if _BEGINS.search(text):
            whole = _WHOLE.search(text)
            if whole is None:
                refuse_line(file, line, "is no whole dict; delete or complete the line")
            row = dict(_PAIR.findall(whole[0]))
            dicts.append((line, row))
            if counted := row.get("global_step", row.get("global_step/max_steps")):
                row["step"] = counted.partition("/")[0]
            elif "step" not in row:
                row |= {"step": bar} if bar else {}
                waiting.append(row)
        every = every or _EVERY.search(text)
        batch = batch or _BATCH.search(text)
    if every and total is None:
        if damage().lines:
            raise InputError(f"{file}: steps are counted by dicts, and one is broken; {STEPLESS}")
        _count(dicts, int(every[1]))
    return dicts, int(batch[1].replace(",", "")) if batch else None


def _count(dicts: list[tuple[int, dict[str, str]]], every: int) -> None:
    """Steps of the training losses, one each so many steps, and of what is held out beside."""
    step, epoch = 0, None
    for _, row in dicts:
        if "loss" in row:
            step, epoch = step + every, row.get("epoch")
        if "loss" in row or row.get("epoch") == epoch:
            row.setdefault("step", str(step))


PRINTED = PrintedDicts()
