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
from pathlib import Path

from bss.importers.damage import refuse_line
from bss.importers.lines import PREFIX, TextLog, lines_of, log_of, matches, number
from bss.importers.log import Log

_BEGINS = re.compile(r"^s:\d+ (?:tel|trl):")
_WHOLE = re.compile(r"^s:(\d+) (?:tel:(\S+)|trl:(\S+)(?: lr:(\S+) norm:\S+)?)\s*$")
_PRINTED = re.compile(PREFIX + r"(?:step\s+\d+/\d+ \||val loss )")
_STEP = re.compile(PREFIX + r"step\s+(\d+)/\d+ \| (?:train )?loss\s+(\S+) .*\| lr (\S+) \|")
_VAL = re.compile(PREFIX + r"val loss\s+(\S+)\s*$")
_SETTING = re.compile(PREFIX + r"\| (total batch size|sequence length T)\s+\| (\d+)\s+\|")


def _logged(file: Path) -> Log:
    """The log file of a run."""
    rows = []
    for line, row in matches(file, _BEGINS, _WHOLE):
        try:
            if row[2]:
                rows.append({"step": float(row[1]), "eval_loss": number(row[2])})
            else:
                rate = {"lr": number(row[4])} if row[4] else {}
                rows.append({"step": float(row[1]) + 1, "loss": number(row[3]), **rate})
        except ValueError:
            refuse_line(file, line, "holds something else than numbers; correct the line")
    return log_of(file, rows, "s:250 trl:4.2345 lr:0.000600 norm:1.23")


def _printed(file: Path) -> Log:
    """What a run prints, with its settings."""
    rows: list[dict[str, float]] = []
    settings: dict[str, int] = {}
    step = 0.0
    for line, text in lines_of(file):
        if setting := _SETTING.match(text):
            settings[setting[1]] = int(setting[2])
        elif _PRINTED.match(text):
            step, row = _row(file, line, text, step)
            rows.append(row)
    example = "step 251/19560 | loss 4.2 … | lr 6.00e-04 | …"
    size, seq_len = (settings.get(name) for name in ("total batch size", "sequence length T"))
    return log_of(file, rows, example, seq_len, batch_tokens=size)


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


MAIN_LOG = TextLog("llm.c: main.log", re.compile(r"^s:\d+ (tel|trl):\d", re.MULTILINE), _logged)
PRINTED = TextLog("llm.c: lines on stdout", re.compile(_STEP.pattern, re.MULTILINE), _printed)
