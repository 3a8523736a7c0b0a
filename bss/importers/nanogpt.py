"""nanoGPT, llama2.c and build-nanogpt: what they print, and build-nanogpt's log.txt.

`train.py` of karpathy/nanoGPT prints
    tokens per iteration will be: 491,520
    step 250: train loss 5.1234, val loss 5.2345
    iter 250: loss 5.1111, time 123.45ms, mfu 41.23%
and, after `Overriding`, the settings that were given, block_size among them. karpathy/llama2.c
(`train.py`) has `250 | loss 5.1 | lr 5.0e-04 | 123.45ms | mfu 4.1%`, and the length behind `breaks
down as:`. `step` is the steps completed, `iter` the index of the one just done, whose loss is that
of one device's last micro-batch; where no such line is there, the estimate of a `step` line counts.
`train_gpt2.py` of karpathy/build-nanogpt writes `250 val 5.9123`, `250 hella 0.2512` (an accuracy)
and `250 train 5.912345` to log.txt, and prints `validation loss: 5.9123`, of the steps before, and
`step   250 | loss: 5.912345 | lr 6.0000e-04 | norm: … | dt: …`. Their index counts from 0 too, and
their loss is the mean over all devices.
"""

import re
from functools import partial
from pathlib import Path

from bss.importers.lines import PREFIX, TextLog, lines_of, log_of, loss_of, matches, only
from bss.importers.log import AnyOf, Importer, Log

_SIZE = re.compile(r"(?:tokens per iteration(?: will be)?|total desired batch size): ([\d,]+)\s*$")
_LENGTH = re.compile(r"^(?:Overriding: )?block_size\s*=\s*(\d+)\b|\* (\d+) max seq len\b")


def _log(begins: re.Pattern[str], whole: re.Pattern[str], note: str, file: Path) -> Log:
    """The run of lines that say some of index, step, loss, lr, val and train."""
    rows: list[dict[str, float]] = []
    estimates: list[dict[str, float]] = []
    step = 0.0
    for line, row in matches(file, begins, whole):
        said = {name: text for name, text in row.groupdict().items() if text is not None}
        if "index" in said:
            step = float(said["index"]) + 1
            rate = {"lr": loss_of(file, line, said["lr"])} if "lr" in said else {}
            rows.append({"step": step, "loss": loss_of(file, line, said["loss"]), **rate})
            continue
        at = float(said.get("step", step))
        rows.append({"step": at, "eval_loss": loss_of(file, line, said["val"])})
        if "train" in said:
            estimates.append({"step": at, "loss": loss_of(file, line, said["train"])})
    single = any("loss" in row for row in rows)
    notes = [note] if single and note else []
    size, length = _settings(file)
    example = "iter 250: loss 5.1111, time 123.45ms"
    return log_of(file, rows if single else rows + estimates, example, length, notes, **size)


def _settings(file: Path) -> tuple[dict[str, float | None], int | None]:
    """Tokens of a step, and the sequence length; of settings given twice the last holds."""
    sizes, length = set[int](), None
    for _, text in lines_of(file):
        if size := _SIZE.search(text):
            sizes.add(int(size[1].replace(",", "")))
        elif setting := _LENGTH.search(text):
            length = int(setting[1] or setting[2])
    return {"batch_tokens": only(sizes)}, length


def _lines(about: str, begins: str, train: str, held_out: str, note: str = "") -> TextLog:
    """Lines that begin so, and are one of two in full."""
    log = partial(_log, re.compile(begins), re.compile(f"{train}|{held_out}"), note)
    known = train if "step" not in held_out else f"{train}|{held_out}"
    return TextLog(about, re.compile(known, re.MULTILINE), log)


NANOGPT: Importer = AnyOf(
    "nanoGPT, llama2.c, build-nanogpt: what they print, and log.txt",
    (
        _lines(
            "nanoGPT, llama2.c: lines on stdout",
            r"\biter \d+: loss |(?<!\S)\d+ \| loss |\bstep \d+: train loss ",
            r"(?:\biter |(?<!\S))(?P<index>\d+)(?:: | \| )loss (?P<loss>[\d.]+|nan|inf)"
            r"(?:, time | \|(?: lr (?P<lr>\S+) \|)? )[^\s,]+ms\b",
            r"\bstep (?P<step>\d+): train loss (?P<train>[\d.]+|nan|inf),"
            r" val loss (?P<val>[\d.]+|nan|inf)",
            "loss is of one device's last micro-batch",
        ),
        _lines(
            "build-nanogpt: lines on stdout",
            PREFIX + r"(?:step +\d+ \| loss: |validation loss: )",
            r"\bstep +(?P<index>\d+) \| loss: (?P<loss>\S+) \|(?: lr:? (?P<lr>\S+) \|)?"
            r"(?=.* dt: ?\S)",
            r"\bvalidation loss: (?P<val>\S+)\s*$",
        ),
        _lines(
            "build-nanogpt: log.txt",
            r"^\d+ (?:train|val) ",
            r"^(?P<index>\d+) train (?P<loss>[\d.]+|nan|inf)(?: \w+=\S+)*$",
            r"^(?P<step>\d+) val (?P<val>[\d.]+|nan|inf)$",
        ),
    ),
)
