"""Levanter and marin: the JSON tracker's lines, and what they log to W&B.

Names are those of marin's `lib/levanter/docs` (logged metrics) and `callbacks`:
`train/loss`, `eval/loss`, `optim/learning_rate`, `throughput/total_tokens`, `global_step`. A step
is the index of the one just done, from 0 on (`log_step_info`), so one more is completed; total
tokens are those up to its end (`log_performance_stats`: global_data_offset_by_step(step + 1)), in
old versions up to its start (batch × step), and then the step is left as it is. The JSON tracker
(`tracker/json_logger.py`) writes a line with "tracker": "json_logger", "event": "log", "step" and
"metrics" for each log, and the settings under "hparams", where the length is `train_seq_len`, or
the model's longest where that is none (`main/train_lm.py`). `tracker_metrics.jsonl` holds a summary
and no curve.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bss.errors import InputError
from bss.importers.damage import refuse_line
from bss.importers.lines import is_number, lines_of, log_of, number
from bss.importers.log import Importer, Log, Rows
from bss.importers.metrics import MetricNames, choose

TRACKER = '"tracker": "json_logger"'


def completed(rows: Rows) -> Rows:
    """The rows with completed steps, one more than the index, unless the tokens say otherwise."""
    if "step" not in rows:
        return rows
    if "tokens" in rows:
        known = ~np.isnan(rows["tokens"]) & ~np.isnan(rows["step"])
        step, tokens = rows["step"][known], rows["tokens"][known]
        if len(step) > 1 and step[1] > step[0]:
            size = (tokens[1] - tokens[0]) / (step[1] - step[0])
            if tokens[0] == size * step[0]:
                return rows
    return {**rows, "step": rows["step"] + 1}


METRICS = MetricNames(
    "levanter",
    {
        "step": ("global_step",),
        "tokens": ("throughput/total_tokens",),
        "lr": ("optim/learning_rate",),
        "loss": ("train/loss",),
        "eval_loss": ("eval/loss",),
    },
    {
        "seq_len": ("train_seq_len", "model.max_seq_len", "model.seq_len"),
        "batch": ("trainer.train_batch_size",),
    },
    corrected=completed,
)


@dataclass(frozen=True)
class JsonTracker(Importer):
    """Lines of the JSON tracker, whatever the logger puts before them."""

    about: str = "Levanter, marin: lines of the JSON tracker"

    def recognises(self, file: Path, head: str) -> bool:
        """By the tracker's name, or the name of marin's summary."""
        return TRACKER in head or file.name == "tracker_metrics.jsonl"

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The run of a file."""
        logged, config = [], {}
        for line, text in lines_of(file):
            if TRACKER in text:
                event = _event(file, line, text)
                if event.get("event") == "log" and event.get("step") is not None:
                    logged.append({"_step": event["step"], **_flat(event.get("metrics", {}))})
                elif event.get("event") == "hparams":
                    config = event.get("hparams", {})
        if not logged:
            raise InputError(f"{file}: holds a summary and no curve; export the run's history")
        names = dict.fromkeys(name for row in logged for name in row)
        trainer, chosen, notes = choose((METRICS,), names, columns, str(file))
        chosen = {**chosen, "step": columns.get("step", "_step")}
        rows = [
            {c: _number(row[name]) for c, name in chosen.items() if row.get(name) is not None}
            for row in logged
        ]
        settings, more = trainer.settings(config)
        batch, seq_len = settings.get("batch"), settings.get("seq_len")
        example, notes = '{"tracker": "json_logger", …}', (*notes, *more)
        log = log_of(file, rows, example, seq_len, notes, batch=batch)
        yield replace(log, rows=trainer.corrected(log.rows))


def _event(file: Path, line: int, text: str) -> dict[str, Any]:
    try:
        event = json.loads(text[text.index("{") :])
    except ValueError:
        refuse_line(file, line, "is no whole JSON object; delete or complete the line")
    return event


def _flat(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{name}/"))
        else:
            flat[prefix + name] = value
    return flat


def _number(value: Any) -> float:
    """A number, infinite where it is NaN; NaN for what is none."""
    return number(value) if is_number(value) else np.nan
