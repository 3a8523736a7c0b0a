"""nanotron: lines of its logger, and what it logs to W&B.

`train_step_logs` of `src/nanotron/trainer.py` (commit 004a89c) and `LoggerWriter`:
    iteration: 10 / 1000 | consumed_tokens: 1.31M | … | lm_loss: 9.81 | lr: 0.0003 | …
Numbers of a line have three digits (`human_format`), and `global_batch_size` is in tokens, before
in sequences. So counts are never taken from a line: tokens follow from --batch and --seq-len, and
the printed ones must be what those round to. The order of what follows the tokens varies. W&B has
the same metrics exactly; there the batch follows from the tokens of a step.
"""

import re
from pathlib import Path

from bss.importers.damage import refuse_line
from bss.importers.lines import TextLog, log_of, matches, number
from bss.importers.log import Log
from bss.importers.metrics import MetricNames

METRICS = MetricNames(
    "nanotron",
    {
        "step": ("iteration_step",),
        "tokens": ("consumed_tokens",),
        "lr": ("lr",),
        "loss": ("lm_loss",),
    },
    {"seq_len": ("tokens.sequence_length",)},
    counts_logs=True,
)
SUFFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}
"""What `human_format` writes, with G or B for billions by its version."""

_BEGINS = re.compile(r"\biteration: \d+ / \d+ \|")
_WHOLE = re.compile(
    r"\biteration: (\d+) / \d+ \| consumed_tokens: (\S+) \|"
    r"(?=.*\blm_loss: (\S+) \|)(?=.*\blr: (\S+) \|)"
)


def _log(file: Path) -> Log:
    """What nanotron's logger prints."""
    rows = []
    for line, row in matches(file, _BEGINS, _WHOLE):
        try:
            tokens, loss, rate = (_human(row[i]) for i in (2, 3, 4))
        except (ValueError, KeyError):
            refuse_line(file, line, "holds something else than numbers; correct the line")
        step = float(row[1])
        rows.append({"step": step, "rounded_tokens": tokens, "lr": rate, "loss": loss})
    notes = ["losses and rates are printed to three digits; W&B has them exactly"]
    return log_of(file, rows, "iteration: 10 / 1000 | … | lm_loss: 9.81 | …", notes=notes)


def _human(text: str) -> float:
    """A number as `human_format` writes it."""
    return number(text) if text[-1] not in SUFFIXES else number(text[:-1]) * SUFFIXES[text[-1]]


LOGGED_LINES = TextLog("nanotron: lines of its logger", _WHOLE, _log)
