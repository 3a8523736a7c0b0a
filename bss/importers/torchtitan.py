"""torchtitan: lines on stdout, and what it logs to TensorBoard and W&B.

`torchtitan/components/metrics.py` (commit 00fbaaf) prints, in colours,
    Trainer is initialized with local batch size 8, global batch size 64, … sequence length 2048, …
    step: 10  loss:  8.1234  grad_norm:  1.2345  memory: …
    validate step: 10  loss:  8.2345  memory: …
and logs `loss_metrics/global_avg_loss`, `validation_metrics/loss`; `lr` and `n_tokens_seen` come
from `train.py` (`ntokens_seen` before). Steps are completed steps (flame writes `step: 640/644 =
99.4%`). Every rank prints the same mean, read once, but for stages of a pipeline without a loss:
those print -1, which is left out.
"""

import re
from pathlib import Path

from bss.errors import InputError
from bss.importers.damage import refuse_line
from bss.importers.lines import TextLog, lines_of, log_of, loss_of, only
from bss.importers.log import Log
from bss.importers.metrics import MetricNames

METRICS = MetricNames(
    "torchtitan",
    {
        "tokens": ("n_tokens_seen", "ntokens_seen"),
        "lr": ("lr",),
        "loss": ("loss_metrics/global_avg_loss",),
        "eval_loss": ("validation_metrics/loss",),
    },
    {"seq_len": ("training.seq_len",), "batch": ("training.global_batch_size",)},
    per_device=("training.local_batch_size",),
)

NO_LOSS = -1.0
"""What a pipeline stage without a loss prints."""

_STEP = r"\bstep:\s*(\d+)(?:/\d+ = \S+%)?\s+loss:"
_BEGINS = re.compile(_STEP)
_WHOLE = re.compile(rf"(validate )?{_STEP}\s*(\S+)\s+(?:grad_norm|memory): ")
_SETTINGS = re.compile(r"global batch size:? (\d+), .*?sequence length:? (\d+)")


def _log(file: Path) -> Log:
    """What torchtitan prints."""
    rows, batches, lengths, stages = [], set[int](), set[int](), 0
    for line, text in lines_of(file):
        if setting := _SETTINGS.search(text):
            batches.add(int(setting[1]))
            lengths.add(int(setting[2]))
        elif _BEGINS.search(text):
            row = _row(file, line, text)
            stages += NO_LOSS in row.values()
            rows += [row] if NO_LOSS not in row.values() and row not in rows[-1:] else []
    if stages and not rows:
        raise InputError(
            f"{file}: loss is -1, of a pipeline stage without one; give the log of the last "
            "stage's ranks (LOG_RANK)"
        )
    notes = [f"{stages} lines are of pipeline stages without a loss"] if stages else []
    example, seq_len = "step: 10  loss:  8.1234  grad_norm: …", only(lengths)
    return log_of(file, rows, example, seq_len, notes, batch=seq_len and only(batches))


def _row(file: Path, line: int, text: str) -> dict[str, float]:
    """The row of a line."""
    row = _WHOLE.search(text)
    if row is None:
        refuse_line(file, line, "is no whole row; delete or complete the line")
    column = "eval_loss" if row[1] else "loss"
    return {"step": float(row[2]), column: loss_of(file, line, row[3])}


STANDARD_OUTPUT = TextLog("torchtitan: lines on stdout", _WHOLE, _log)
