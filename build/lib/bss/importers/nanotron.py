"""nanotron: lines of its logger, and what it logs to W&B.

`train_step_logs` of `src/nanotron/trainer.py` (commit 004a89c) and `LoggerWriter`:
    iteration: 10 / 1000 | consumed_tokens: 1.31M | … | lm_loss: 9.81 | lr: 0.0003 | …
Numbers of a line have three digits (`human_format`), and `global_batch_size` is in tokens, before
in sequences. So counts are never taken from a line: tokens follow from --batch and --seq-len, and
the printed ones must be what those round to. The order of what follows the tokens varies. W&B has
the same metrics exactly; there the batch follows from the tokens of a step.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bss.importers.lines import matches, need_rows, number, rows_of
from bss.importers.log import Importer, Log, refuse_line, run_name
from bss.importers.metrics import Metrics

METRICS = Metrics(
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


@dataclass(frozen=True)
class LoggedLines(Importer):
    """What nanotron's logger prints, saved to a file."""

    about: str = "nanotron: lines of its logger"

    def recognises(self, file: Path, head: str) -> bool:
        """By a line of training."""
        return _WHOLE.search(head) is not None

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The run of a file."""
        rows = []
        for line, found in matches(file, _BEGINS, _WHOLE):
            try:
                tokens, loss, rate = (_human(found[i]) for i in (2, 3, 4))
            except (ValueError, KeyError):
                refuse_line(file, line, "holds something else than numbers; correct the line")
            row = {"step": float(found[1]), "rounded_tokens": tokens, "lr": rate, "loss": loss}
            rows.append(row)
        told = need_rows(file, rows_of(rows), "iteration: 10 / 1000 | … | lm_loss: 9.81 | …")
        notes = ("losses and rates are printed to three digits; W&B has them exactly",)
        yield Log(run_name(file), told, str(file), str(file), None, notes)


def _human(text: str) -> float:
    """A number as `human_format` writes it."""
    return number(text) if text[-1] not in SUFFIXES else number(text[:-1]) * SUFFIXES[text[-1]]
