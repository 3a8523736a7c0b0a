"""torchtitan: lines on stdout, and what it logs to TensorBoard and W&B.

`torchtitan/components/metrics.py` (commit 00fbaaf) prints, in colours,
    step: 10  loss:  8.1234  grad_norm:  1.2345  memory: …
    validate step: 10  loss:  8.2345  memory: …
and logs `loss_metrics/global_avg_loss`, `validation_metrics/loss`; `lr` and `n_tokens_seen` come
from `train.py` (`ntokens_seen` before). Steps are completed steps; every rank prints the same mean.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bss.importers.lines import loss_of, matches, need_rows, rows_of
from bss.importers.log import Importer, Log, run_name
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

_BEGINS = re.compile(r"\bstep:\s*\d+\s+loss:")
_WHOLE = re.compile(r"(validate )?\bstep:\s*(\d+)\s+loss:\s*(\S+)\s+(?:grad_norm|memory): ")


@dataclass(frozen=True)
class StandardOutput(Importer):
    """What torchtitan prints, saved to a file."""

    about: str = "torchtitan: lines on stdout"

    def recognises(self, file: Path, head: str) -> bool:
        """By a line of training."""
        return _WHOLE.search(re.sub(r"\x1b\[[0-9;]*m", "", head)) is not None

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The run of a file."""
        rows = []
        for line, found in matches(file, _BEGINS, _WHOLE):
            column = "eval_loss" if found[1] else "loss"
            rows.append({"step": float(found[2]), column: loss_of(file, line, found[3])})
        told = need_rows(file, rows_of(rows), "step: 10  loss:  8.1234  grad_norm: …")
        yield Log(run_name(file), told, str(file), str(file))
