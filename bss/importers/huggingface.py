"""Hugging Face Trainer: trainer_state.json, and the dicts that it prints.

`log_history` (transformers, `src/transformers/trainer_callback.py`, TrainerState) has one entry per
log. Entries of training have `step`, `learning_rate` and `loss`, the mean since the previous log
(`Trainer._maybe_log_save_evaluate`). Entries of evaluation have `eval_loss`, or `eval_NAME_loss`
for each held-out set. With include_num_input_tokens_seen, entries have `num_input_tokens_seen`. The
`train_loss` of the last entry is the mean over the whole training and is not read.
`train_batch_size` is the batch size per device and is not read.

`PrinterCallback` and `ProgressCallback` print the same logs without their step. Since transformers
5, the numbers are printed as text. Between the logs, the progress bar ` 10%|█ | 250/2500 [02:11<…]`
is printed again after each log. ms-swift adds `global_step` or `global_step/max_steps`. A dict
without a step gets the step of the next progress bar, or of the previous one if the bar goes on
below printed dicts. If there are no bars, `logging_steps` gives the steps of training losses. A
held-out loss then gets the step of the training loss of its epoch.
The first bar is the bar of training. A bar with another total is a bar of evaluation, unless the
epoch of the next loss goes back, as in a second training.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bss.errors import InputError
from bss.files import read_json
from bss.importers.lines import Cells, Lines, columns_of
from bss.importers.log import Importer, Log
from bss.importers.names import NAMES, named_log

STATE = NAMES["trainer_state"]
STEPLESS = (
    "the dicts have no step, and no progress bar, global_step or logging_steps gives it; give "
    "trainer_state.json instead, or name a key that is a step with --columns step=NAME"
)

_BEGINS = re.compile(r"\{'(?:eval_(?:\w+_)?)?loss': ")
_WHOLE = re.compile(r"\{'(?:eval_(?:\w+_)?)?loss': [^{}]*\}")
_PAIR = re.compile(r"'([^']+)': '?([^',}]+)'?")
_BAR = re.compile(r"^\s*\d+%\|[^|]*\| *(\d+)/(\d+) \[")
_EVERY = re.compile(r"\blogging_steps['\"]?\s*[=: ]\s*(\d+)\b")
_NEW_RUN = re.compile(r"\*{5} Running training \*{5}|\{'train_runtime': ")
_BATCH = re.compile(r"\bTotal train batch size \(.*\) = ([\d,]+)\s*$")


@dataclass(frozen=True)
class TrainerState(Importer):
    """trainer_state.json of a run's directory or of a checkpoint in it."""

    about: str = "Hugging Face Trainer: trainer_state.json"

    def recognises(self, file: Path, head: str) -> bool:
        """Return whether the file has its keys."""
        return file.suffix == ".json" and ('"log_history"' in head or file.stem == "trainer_state")

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the run. Checkpoints of one directory belong to one run."""
        state = read_json(file, "it may be cut off; copy it again")
        history = state.get("log_history")
        if not isinstance(history, list) or not all(isinstance(e, dict) for e in history):
            raise InputError(f"{file}: log_history is not a list of logs; copy the file again")
        cells = columns_of(enumerate(history, 1))
        log = named_log(file, _unfiltered(cells), (STATE,), columns)
        planned = state.get("max_steps")
        if isinstance(planned, int) and planned > 0:
            log = replace(log, rows=log.rows.assign(planned_steps=float(planned)))
        folder = file.resolve().parent
        place = folder.parent if folder.name.startswith("checkpoint-") else folder
        yield replace(log, place=str(place / log.run))


def _unfiltered(cells: Cells) -> Cells:
    """Return the cells, with NaN losses that the trainer logged as 0 set to infinity.

    The option logging_nan_inf_filter logs 0 instead of NaN. Losses of 0 are NaN if the gradient
    norm is NaN in any row with such a loss.
    """
    loss = cells.numbers.get("loss")
    norm = cells.numbers.get("grad_norm")
    if loss is None or norm is None or not (np.isinf(norm) & (loss == 0)).any():
        return cells
    unfiltered = {**cells.numbers, "loss": np.where(loss == 0, np.inf, loss)}
    return replace(cells, numbers=unfiltered)


@dataclass(frozen=True)
class PrintedDicts(Importer):
    """Dicts on stdout, with or without progress bars."""

    about: str = "Hugging Face Trainer: printed dicts"

    def recognises(self, file: Path, head: str) -> bool:
        """Return whether the head has a dict with a loss and an epoch."""
        return any("'epoch': " in row[0] for row in _WHOLE.finditer(head))

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the run of a file."""
        lines = Lines(file, ("}", "]"))
        printed = _Printed()
        for line, text in lines:
            printed.draw(text)
            if _NEW_RUN.search(text):
                printed.begin()
            if begun := len(_BEGINS.findall(text)):
                wholes = [found[0] for found in _WHOLE.finditer(text)]
                for whole in wholes:
                    lines.whole("eval_" in whole, whole)
                    printed.add(line, dict(_PAIR.findall(whole)))
                if len(wholes) < begun:
                    lines.torn(line, "is not a complete dict")
            elif "'epoch': " in text and "train_runtime" not in text:
                lines.alike.other(line, text)
        rows = printed.dicts()
        step = columns.get("step", "step")
        if not any(step in row for _, row in rows):
            raise InputError(f"{file}: {STEPLESS}")
        cells = _unfiltered(columns_of(rows))
        log = named_log(file, cells, (STATE,), columns, lines.alike.notes, lines.cut)
        yield replace(log, left_out=lines.left_out)


@dataclass
class _Between:
    """A dict without a step, and the steps of the training's bars before and after it."""

    row: dict[str, str]
    before: str
    after: str = ""
    total: str = ""


@dataclass
class _Printed:
    """Dicts as they are printed, and what gives them their step."""

    rows: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    waiting: list[_Between] = field(default_factory=list)
    between: list[_Between] = field(default_factory=list)
    begun: set[int] = field(default_factory=set)
    total: str = ""
    bar: str = ""
    other: tuple[str, str] = ("", "")
    epoch: str = ""
    every: str = ""
    batch: str = ""

    def begin(self) -> None:
        """Note that one training ends or another one begins."""
        self.end()
        self.begun.add(len(self.rows))
        self.total = ""
        self.bar = ""
        self.epoch = ""

    def end(self) -> None:
        """Give the dicts of a training their steps."""
        for one, step in zip(self.between, _steps_between(self.between), strict=True):
            if step:
                one.row |= {"step": step, "max_steps": one.total}
        self.between = []
        self.waiting = []

    def draw(self, text: str) -> None:
        """Note a progress bar or a setting; the bar after a dict is the one printed next."""
        drawn = _BAR.search(text)
        if drawn and drawn[2] == self.total and 2 * int(drawn[1]) < int(self.bar or 0):
            self.begin()  # another training of as many steps
        if drawn:
            self.total = self.total or drawn[2]
            self.other = (drawn[1], drawn[2]) if drawn[2] != self.total else ("", "")
        if drawn and drawn[2] == self.total:
            self.bar = drawn[1]
            for one in self.waiting:
                one.after = self.bar
                one.total = self.total
        if text.strip() and (drawn is None or drawn[2] == self.total):
            self.waiting = []
        for name, setting in (("every", _EVERY), ("batch", _BATCH)):
            if found := setting.search(text):
                setattr(self, name, found[1])

    def add(self, line: int, row: dict[str, str]) -> None:
        """Note a dict; if its epoch goes back after another bar, that is a training's bar."""
        if "loss" in row:
            if self.other[0] and _before(row.get("epoch", ""), self.epoch):
                bar = self.other
                self.begin()
                self.bar, self.total = bar
            self.epoch = row.get("epoch", "")
        self.rows.append((line, row))
        if self.batch:
            row["total_train_batch_size"] = self.batch
        if counted := row.get("global_step", row.get("global_step/max_steps")):
            row["step"] = counted.partition("/")[0]
        elif "step" not in row:
            one = _Between(row, self.bar, total=self.total)
            self.between.append(one)
            self.waiting.append(one)

    def dicts(self) -> list[tuple[int, dict[str, str]]]:
        """Return all dicts; without bars, their steps follow from `logging_steps`."""
        self.end()
        step = 0
        epoch = ""
        for place, (_, row) in enumerate(self.rows):
            if place in self.begun or _before(row.get("epoch", ""), epoch):
                step = 0
                epoch = ""
            if not self.every or "max_steps" in row:
                continue
            if "loss" in row:
                step += int(self.every)
                epoch = row.get("epoch", "")
            if "loss" in row or row.get("epoch") == epoch:
                row.setdefault("step", str(step))
        return self.rows


def _steps_between(dicts: Sequence[_Between]) -> list[str]:
    """Return the step of each dict: of the bar after it, or else of the bar before it.

    The trainer's own bar is drawn again after a dict, at the dict's step. A bar that goes on below
    printed dicts is at a later step then. Losses are logged at multiples of their distance, which
    shows what the bars are: for one loss per step, a bar that is always one ahead goes on.
    """
    either = [one.after or one.before for one in dicts]
    known = [one for one in dicts if one.before and one.after and "loss" in one.row]
    after = [int(one.after) for one in known]
    before = [int(one.before) for one in known]
    ahead = [step - other for step, other in zip(after, before, strict=True)]
    if len(known) < 2 or not any(ahead):
        return either
    each_step = _distance(after) == 1 and set(ahead) == {1}
    places = [place for place, one in enumerate(dicts) if "loss" in one.row]
    losses = [dicts[place] for place in places]
    # The bar before the last loss would be the bar after the loss before it, too.
    goes_on = not losses[-1].after and losses[-1].before == losses[-2].after
    if goes_on and not int(losses[0].before or 0):
        either[places[-1]] = ""  # its bar is missing, as in a log that is cut off
        goes_on = False
    if _regular(before) and (each_step or goes_on or not _regular(after)):
        return [one.before or one.after for one in dicts]
    if _regular(after):
        return either
    return [
        _multiple(one, _distance(after)) or step for one, step in zip(dicts, either, strict=True)
    ]


def _distance(steps: Sequence[int]) -> int:
    """Return the usual distance of steps, at least 1."""
    return max(int(np.median(np.diff(steps))), 1)


def _regular(steps: Sequence[int]) -> bool:
    """Return whether steps are multiples of their distance, except a first step 1 and the last."""
    first = 1 if steps[0] == 1 else 0
    return all(step % _distance(steps) == 0 for step in steps[first:-1]) and bool(steps[first:-1])


def _multiple(one: _Between, distance: int) -> str:
    """Return the multiple of a distance that is next to the bar before a dict; "" without a bar."""
    if not one.before:
        return ""
    step = -(-int(one.before) // distance) * distance
    return "" if one.after and step > int(one.after) else str(step)


def _before(epoch: str, other: str) -> bool:
    """Return whether an epoch is before another one; False if one is not a number."""
    try:
        return float(epoch) < float(other)
    except ValueError:
        return False
