"""Hugging Face Trainer: trainer_state.json, and what it logs to trackers.

`log_history` (transformers, `src/transformers/trainer_callback.py`, TrainerState) has an entry
for each log: `step`, `loss` (the mean since the log before, `Trainer._maybe_log_save_evaluate`) and
`learning_rate`, or `eval_loss`, or `eval_NAME_loss` for each of several held-out sets; with
include_num_input_tokens_seen also `num_input_tokens_seen`.
The last one's `train_loss` is the mean over the whole training and no loss of a step.
`train_batch_size` is the batch of a device. Trackers get `train/…` and `eval/…`
(`integrations/integration_utils.py`, rewrite_logs), and W&B `train/global_step`.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bss.errors import InputError
from bss.files import read_json
from bss.importers.lines import epochs, is_number, number, rows_of
from bss.importers.log import Importer, Log, run_name
from bss.importers.metrics import MetricNames, choose

METRICS = MetricNames(
    "huggingface",
    {
        "step": ("train/global_step",),
        "tokens": ("train/num_input_tokens_seen",),
        "lr": ("train/learning_rate",),
        "loss": ("train/loss",),
        "eval_loss": ("eval/loss", "eval/*_loss"),
    },
    per_device=("per_device_train_batch_size",),
    counts_logs=True,
)
STATE = MetricNames(
    "huggingface",
    {
        "step": ("step",),
        "tokens": ("num_input_tokens_seen",),
        "lr": ("learning_rate",),
        "loss": ("loss",),
        "eval_loss": ("eval_loss", "eval_*_loss"),
    },
)


@dataclass(frozen=True)
class TrainerState(Importer):
    """trainer_state.json of a run's directory or of a checkpoint in it."""

    about: str = "Hugging Face Trainer: trainer_state.json"

    def recognises(self, file: Path, head: str) -> bool:
        """By its keys."""
        return file.suffix == ".json" and ('"log_history"' in head or file.stem == "trainer_state")

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The run; checkpoints of one directory are one."""
        state = read_json(file, "it may be cut off; copy it again")
        history = state.get("log_history")
        if not isinstance(history, list) or not all(isinstance(e, dict) for e in history):
            raise InputError(f"{file}: log_history is no list of logs; copy the file again")
        if not history:
            raise InputError(f"{file}: log_history is empty; give the state of a later checkpoint")
        logged = dict.fromkeys(name for entry in history for name in entry)
        _, chosen, notes = choose((STATE,), logged, columns, str(file))
        rows = rows_of(unfiltered([_row(file, entry, chosen) for entry in history], history))
        notes = (*notes, *epochs(entry.get("epoch") for entry in history))
        batch = state.get("train_batch_size")
        device = (f"train_batch_size {batch} is the batch of a device",) if batch else ()
        folder = file.resolve().parent
        place = folder.parent if folder.name.startswith("checkpoint-") else folder
        name = run_name(file)
        yield Log(name, rows, str(file), str(place / name), None, (*notes, *device))


def unfiltered(
    rows: Sequence[dict[str, float]], logged: Sequence[Mapping[str, Any]]
) -> list[dict[str, float]]:
    """The rows, infinite where a loss of 0 stands for NaN, which logging_nan_inf_filter hides.

    So it does where a gradient's norm is NaN.
    """
    pairs = zip(rows, logged, strict=True)
    nan = any(r.get("loss") == 0 and str(e.get("grad_norm")) in ("nan", "inf") for r, e in pairs)
    return [{**row, "loss": math.inf} if nan and row.get("loss") == 0 else row for row in rows]


def _row(file: Path, entry: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, float]:
    row: dict[str, float] = {}
    for column, name in names.items():
        if (value := entry.get(name)) is not None:
            if not is_number(value):
                shown = json.dumps(value)[:40]
                raise InputError(f"{file}: {name} is {shown}; expected a number")
            row[column] = number(value)
    return row
