"""OLMo and OLMo-core: their console logs, and what they log to trackers.

OLMo (allenai/OLMo, `olmo/train.py`: log_metrics_to_console, LRMonitor, SpeedMonitor) and OLMo-core
(`src/olmo_core/train/callbacks/console_logger.py`, commit 00e2b7b; `speed_monitor.py`,
`scheduler.py`; `train/common.py`) print a block after `[step=10/1000,epoch=1]`, a line
`    NAME=VALUE` a metric. Steps are completed steps, total tokens are exact up to the step.
Held-out losses have names of their own (`eval/LABEL/CrossEntropyLoss`, `eval/lm/LABEL/CE loss`),
one for each set: where there are several, --columns chooses. OLMo prints them after the block of
their step; OLMo-core's `evaluator_callback.py` prints `    LABEL/CE loss=…` without a step, before
the block of it, so they are left out. A console rounds the learning rate to four decimals, so it is
not read from there.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bss.importers.damage import damage, refuse_line
from bss.importers.lines import epochs, lines_of, log_of, number
from bss.importers.log import Importer, Log
from bss.importers.metrics import MetricNames, choose

CORE = MetricNames(
    "olmo-core",
    {
        "tokens": ("throughput/total tokens",),
        "lr": ("optim/LR (group 0)",),
        "loss": ("train/CE loss",),
        "eval_loss": ("eval/lm/*/CE loss",),
    },
    {
        "seq_len": ("dataset.sequence_length",),
        "batch_tokens": ("data_loader.global_batch_size",),
    },
)
OLMO = MetricNames(
    "olmo",
    {
        "tokens": ("throughput/total_tokens",),
        "lr": ("optim/learning_rate_group0",),
        "loss": ("train/CrossEntropyLoss",),
        "eval_loss": ("eval/*/CrossEntropyLoss",),
    },
    {"seq_len": ("model.max_sequence_length",), "batch": ("global_train_batch_size",)},
)

_BLOCK = re.compile(r"\[step=(\d+)/(?:\d+|\?\?\?)(?:,epoch=(\d+))?[^\]]*\]\s*$")
_METRIC = re.compile(r"(?:^|\s)\s{2,}([^\s=]+(?: [^\s=]+)*)=(\S+)\s*$")
_ROOM = re.compile(r"(?:train|eval|optim|throughput)/")


@dataclass(frozen=True)
class Console(Importer):
    """A console log."""

    about: str = "OLMo, OLMo-core: console logs"

    def recognises(self, file: Path, head: str) -> bool:
        """By a block of the two losses' names."""
        return re.search(r"\s{2}train/(CE loss|CrossEntropyLoss)=", head) is not None

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The run of a file."""
        blocks = list(_blocks(file))
        printed = {name for _, block in blocks for name in block}
        names = {name for name in printed if _ROOM.match(name)}
        stepless = {name for name in printed - names if name.endswith("/CE loss")}
        _, chosen, notes = choose((CORE, OLMO), sorted(names), columns, str(file))
        chosen.pop("lr", None)
        rows = [
            {"step": step, **{c: block[name] for c, name in chosen.items() if name in block}}
            for step, block in blocks
        ]
        if rows and set.intersection(*map(set, rows[:-1] or rows)) - rows[-1].keys():
            rows.pop()
            damage().end = damage().end or "is cut off in its last block; read to there"
        read = epochs(block.get("epoch") for _, block in blocks)
        notes = (*notes, "losses are printed to four digits", *read)
        if stepless:
            notes = (*notes, f"eval_loss left out: {min(stepless)} is printed without its step")
        yield log_of(file, rows, "    train/CE loss=3.214", notes=notes)


def _blocks(file: Path) -> Iterator[tuple[float, dict[str, float]]]:
    """Step and metrics of every block; held-out losses belong to the step before them."""
    step, block = None, {}
    for line, text in lines_of(file):
        if begin := _BLOCK.search(text):
            if step is not None and block:
                yield step, block
            step, block = float(begin[1]), {"epoch": float(begin[2])} if begin[2] else {}
        elif (metric := _METRIC.search(text)) and step is not None:
            value = _value(file, line, metric[1], metric[2])
            if value is not None:
                block[metric[1]] = value
    if step is not None and block:
        yield step, block


def _value(file: Path, line: int, name: str, text: str) -> float | None:
    """A metric's number; None where it is none that is read, or rounded with a suffix."""
    try:
        return number(text)
    except ValueError:
        if _ROOM.match(name) and "loss" in name.lower():
            refuse_line(file, line, f"{name} is {text!r}; expected a number")
        return None
