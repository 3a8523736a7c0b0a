"""parameter-golf: what its programs print, and their logs.

`train_gpt.py` and `train_gpt_mlx.py` of openai/parameter-golf print their settings, as
`train_batch_tokens:524288 train_seq_len:1024` or, in records, one a line behind `Hyperparameters:`;
a log may begin with the program. Then
    step:200/20000 train_loss:2.8041 train_time:8677ms step_avg:43.38ms
    step:200/20000 val_loss:2.8397 val_bpb:1.6774 train_time:8699ms step_avg:43.49ms
or, in records, `200/20000 train_loss: 2.8041 train_time: 0.1m tok/s: 6547690` and
`200/20000 val_loss: 2.8397 val_bpb: 1.6774`. Both are of steps completed. val_loss is in nats per
token, val_bpb in bits per byte, which is not read; train_loss is the mean of one device's
micro-batches. What is evaluated after the run (`final_…`, quantized) is of no step.
"""

import re
from pathlib import Path

from bss.importers.lines import TextLog, lines_of, log_of, loss_of, matches, only
from bss.importers.log import Log

_STEP = r"(?:\bstep:|^\s*)(\d+)/\d+ (train|val)_loss: ?"
_BEGINS = re.compile(_STEP)
_WHOLE = re.compile(_STEP + r"(\S+) (?:val_bpb|train_time): ?\S+")
_RECOGNISED = re.compile(
    r"(?:\bstep:|^)\d+/\d+ val_loss: ?\S+ val_bpb:|^\d+/\d+ train_loss: \S+ train_time: "
    r"|\btrain_batch_tokens: ?\d[\s\S]*\bstep:\d+/\d+ train_loss:",
    re.MULTILINE,
)
_SETTING = re.compile(r"\b(train_batch_tokens|train_seq_len|seq_len): ?(\d+)\b")


def _log(file: Path) -> Log:
    """The run of a log."""
    rows = [
        {
            "step": float(row[1]),
            "eval_loss" if row[2] == "val" else "loss": loss_of(file, line, row[3]),
        }
        for line, row in matches(file, _BEGINS, _WHOLE)
    ]
    sizes, lengths = set[int](), set[int]()
    for _, text in lines_of(file):
        for setting in _SETTING.finditer(text):
            (sizes if setting[1] == "train_batch_tokens" else lengths).add(int(setting[2]))
    notes = ["loss is of one device's micro-batches"] if any("loss" in row for row in rows) else []
    example = "step:200/20000 train_loss:2.8041 train_time:8677ms step_avg:43.38ms"
    return log_of(file, rows, example, only(lengths), notes, batch_tokens=only(sizes))


PRINTED = TextLog("parameter-golf: its programs' logs", _RECOGNISED, _log)
