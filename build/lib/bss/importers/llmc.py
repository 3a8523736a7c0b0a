"""llm.c: main.log, and what it prints.

`llmc/logger.h` (commit 046d001) writes `s:250 tel:4.1234` (held-out), `s:250 trl:4.2345
lr:0.000600 norm:1.23` and `s:250 eval:0.2501`, the accuracy on HellaSwag, which is no loss. A
training line is of step s, counted from 0, so s + 1 are completed after it; a held-out one comes
before step s (`train_gpt2.cu`). On stdout, `train_gpt2cu` prints its settings
(`| total batch size | 524288 |`, in tokens, `| sequence length T | 1024 |`), then `val loss 4.1`
and `step 251/19560 | loss 4.2 (…`, counted from 1; `train loss` in older versions and
`train_gpt2.py`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bss.importers.lines import PREFIX, lines_of, matches, need_rows, number, rows_of
from bss.importers.log import Importer, Log, refuse_line, run_name

_BEGINS = re.compile(r"^s:\d+ (?:tel|trl):")
_WHOLE = re.compile(r"^s:(\d+) (?:tel:(\S+)|trl:(\S+)(?: lr:(\S+) norm:\S+)?)\s*$")
_PRINTED = re.compile(PREFIX + r"(?:step\s+\d+/\d+ \||val loss )")
_STEP = re.compile(PREFIX + r"step\s+(\d+)/\d+ \| (?:train )?loss (\S+) .*\| lr (\S+) \|")
_VAL = re.compile(PREFIX + r"val loss (\S+)\s*$")
_SETTING = re.compile(PREFIX + r"\| (total batch size|sequence length T)\s+\| (\d+)\s+\|")


@dataclass(frozen=True)
class MainLog(Importer):
    """The log file of a run."""

    about: str = "llm.c: main.log"

    def recognises(self, file: Path, head: str) -> bool:
        """By lines of both losses."""
        return re.search(r"^s:\d+ (tel|trl):\d", head, re.MULTILINE) is not None

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The run of a file."""
        rows = []
        for line, found in matches(file, _BEGINS, _WHOLE):
            try:
                if found[2]:
                    rows.append({"step": float(found[1]), "eval_loss": number(found[2])})
                else:
                    rate = {"lr": number(found[4])} if found[4] else {}
                    loss = number(found[3])
                    rows.append({"step": float(found[1]) + 1, "loss": loss, **rate})
            except ValueError:
                refuse_line(file, line, "holds something else than numbers; correct the line")
        told = need_rows(file, rows_of(rows), "s:250 trl:4.2345 lr:0.000600 norm:1.23")
        yield Log(run_name(file), told, str(file), str(file))


@dataclass(frozen=True)
class Printed(Importer):
    """What a run prints, with its settings."""

    about: str = "llm.c: lines on stdout"

    def recognises(self, file: Path, head: str) -> bool:
        """By a line of training."""
        return re.search(_STEP.pattern, head, re.MULTILINE) is not None

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The run of a file."""
        rows: list[dict[str, float]] = []
        settings: dict[str, int] = {}
        step = 0.0
        for line, text in lines_of(file):
            if found := _SETTING.match(text):
                settings[found[1]] = int(found[2])
            elif _PRINTED.match(text):
                step, row = _row(file, line, text, step)
                rows.append(row)
        told = need_rows(file, rows_of(rows), "step 251/19560 | loss 4.2 … | lr 6.00e-04 | …")
        if size := settings.get("total batch size"):
            told["batch_tokens"] = np.full(len(rows), float(size))
        seq_len = settings.get("sequence length T")
        yield Log(run_name(file), told, str(file), str(file), seq_len)


def _row(file: Path, line: int, text: str, step: float) -> tuple[float, dict[str, float]]:
    """The completed steps, and the row of a line; a held-out loss is of the steps before it."""
    val, train = _VAL.match(text), _STEP.match(text)
    try:
        if val:
            return step, {"step": step, "eval_loss": number(val[1])}
        if train:
            step = float(train[1])
            return step, {"step": step, "loss": number(train[2]), "lr": number(train[3])}
    except ValueError:
        pass
    return refuse_line(file, line, "is no whole row; delete or complete the line")
