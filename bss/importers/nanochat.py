"""nanochat: what base_train prints.

`scripts/base_train.py` of karpathy/nanochat prints
    Tokens / micro-batch / rank: 32 x 2048 = 65,536
    Total batch size 524,288 => gradient accumulation steps: 1
    Step 00250 | Validation bpb: 1.1234
    step 00250/21400 (1.17%) | loss: 3.912345 | lrm: 1.00 | dt: 487.57ms | tok/sec: 1,075,308 | …
where the first versions have `grad norm: 0.1234 |` behind the loss, `mfu` for `bf16_mfu` and no
epoch. A step is the index of the one just done, from 0 on; its loss is an exponential average of
weight .9 over one device's last micro-batches. What is held out is told in bits per byte, which are
no nats per token. `lrm` is what the rates are multiplied by, not a rate.
"""

import re
from pathlib import Path

from bss.importers.lines import TextLog, epochs, lines_of, log_of, loss_of, matches, only
from bss.importers.log import Log

_BEGINS = re.compile(r"\bstep \d+/\d+ \(\d")
_WHOLE = re.compile(
    r"\bstep (\d+)/\d+ \([\d.]+%\) \| loss: (\S+) \|.* lrm: \S+ \| dt: \S+ \| tok/sec: \S+ \|"
)
_SIZE = re.compile(r"\bTotal batch size ([\d,]+) => gradient accumulation steps: \d")
_LENGTH = re.compile(r"\bTokens / micro-batch / rank: \d+ x (\d+) = ")
_EPOCH = re.compile(r" \| epoch: (\d+) ")
_BITS = re.compile(r"\bStep \d+ \| Validation bpb: ")


def _log(file: Path) -> Log:
    """What base_train prints."""
    whole = list(matches(file, _BEGINS, _WHOLE))
    rows = [{"step": float(row[1]) + 1, "loss": loss_of(file, line, row[2])} for line, row in whole]
    sizes, lengths, bits = set[int](), set[int](), 0
    for _, text in lines_of(file):
        if size := _SIZE.search(text):
            sizes.add(int(size[1].replace(",", "")))
        elif length := _LENGTH.search(text):
            lengths.add(int(length[1]))
        bits += _BITS.search(text) is not None
    read = (epoch[1] for _, row in whole if (epoch := _EPOCH.search(row.string)))
    notes = ["loss is averaged over some ten steps", *epochs(read)]
    notes += [f"eval_loss left out: {bits} are told in bits per byte"] if bits else []
    example = "step 00250/21400 (1.17%) | loss: 3.912345 | …"
    return log_of(file, rows, example, only(lengths), notes, batch_tokens=only(sizes))


BASE_TRAIN = TextLog("nanochat: lines of base_train", _WHOLE, _log)
