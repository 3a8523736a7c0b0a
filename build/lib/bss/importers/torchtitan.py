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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bss.errors import InputError
from bss.importers.lines import lines_of, loss_of, need_rows, rows_of
from bss.importers.log import Importer, Log, refuse_line, run_name
from bss.importers.metrics import Metrics

METRICS = Metrics(
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


@dataclass(frozen=True)
class StandardOutput(Importer):
    """What torchtitan prints, saved to a file."""

    about: str = "torchtitan: lines on stdout"

    def recognises(self, file: Path, head: str) -> bool:
        """By a line of training."""
        return _WHOLE.search(head) is not None

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The run of a file."""
        rows, batches, lengths, stages = [], set(), set(), 0
        for line, text in lines_of(file):
            if found := _SETTINGS.search(text):
                batches.add(int(found[1]))
                lengths.add(int(found[2]))
            elif _BEGINS.search(text):
                step, column, loss = _row(file, line, text)
                row = {"step": step, column: loss}
                stages += loss == NO_LOSS
                rows += [row] if loss != NO_LOSS and row not in rows[-1:] else []
        if stages and not rows:
            told = "give the log of the last stage's ranks (LOG_RANK)"
            raise InputError(f"{file}: loss is -1, of a pipeline stage without one; {told}")
        told = need_rows(file, rows_of(rows), "step: 10  loss:  8.1234  grad_norm: …")
        if len(batches) == len(lengths) == 1:
            told["batch"] = np.full(len(rows), float(*batches))
        notes = (f"{stages} lines are of pipeline stages without a loss",) if stages else ()
        seq_len = next(iter(lengths)) if len(lengths) == 1 else None
        yield Log(run_name(file), told, str(file), str(file), seq_len, notes)


def _row(file: Path, line: int, text: str) -> tuple[float, str, float]:
    """Step, column and loss of a line."""
    found = _WHOLE.search(text)
    if found is None:
        refuse_line(file, line, "is no whole row; delete or complete the line")
    return float(found[2]), "eval_loss" if found[1] else "loss", loss_of(file, line, found[3])
