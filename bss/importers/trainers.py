"""Declarations of the lines that trainers print, each after the source that prints them.

- Megatron-LM (`megatron/training/training.py`, training_log and evaluate_and_print_results, commit
  001b00c), Megatron-DeepSpeed, GPT-NeoX and Primus. The loss of a line is the mean since the line
  before, without skipped iterations, which consume samples too. Lines after the last finite loss
  that have none, but NaN iterations, are of a run that diverged.
- torchtitan (`torchtitan/components/metrics.py`, commit 00fbaaf) and flame. Every rank prints the
  same mean; stages of a pipeline without a loss print -1.
- nanotron (`src/nanotron/trainer.py`, train_step_logs, commit 004a89c). Numbers have three digits
  (human_format), and `global_batch_size` is in tokens or sequences and not read.
- NeMo 2 (`nemo/lightning/pytorch/callbacks/progress_printer.py`). A step is the index of the one
  just done; `val_loss` is repeated until the next validation and not read.
- nanoGPT (`train.py`), llama2.c (`train.py`), build-nanogpt (`train_gpt2.py`, stdout and log.txt).
  `step` counts completed steps; `iter` and the first column are the index of the step just done.
- nanochat (`scripts/base_train.py`). A loss is an exponential average of weight 0.9 over one
  device's last micro-batches; held-out losses are in bits per byte.
- parameter-golf (`train_gpt.py`, `train_gpt_mlx.py`, and its records).
- modded-nanogpt (`train_gpt.py`, commit 0016a3c, and records). The log begins with the program;
  its batch is read from the assignments of the program's text, which is never executed.
- llm.c (`llmc/logger.h`, commit 046d001; `train_gpt2.cu`, `train_gpt2.py`). In main.log a training
  line is of step s counted from 0, a held-out one comes before step s.
- MaxText (`metric_logger.py`). "completed step: 0" is the index of the step done. total_weights
  are target tokens without padding, not batch × length.
- torchtune (`torchtune/training/metric_logging.py`, DiskLogger).
- fairseq (`fairseq/logging/progress_bar.py`, SimpleProgressBar). Losses are in bits; `wpb` is the
  batch in tokens, `bsz` in sequences.
"""

import numpy as np

from bss.importers.log import LOSSES, AnyOf, Rows
from bss.importers.text import PREFIX, LineFormat


def _diverged(rows: Rows) -> Rows:
    """Return the rows, with an infinite loss in NaN iterations after the last finite loss."""
    losses = [rows[name] for name in LOSSES if name in rows]
    if "nan" not in rows or not losses:
        return rows
    finite = np.flatnonzero(np.any([np.isfinite(values) for values in losses], axis=0))
    lost = np.all([np.isnan(values) for values in losses], axis=0) & (rows["nan"] > 0)
    lost[: finite[-1] + 1 if len(finite) else 0] = False
    loss = rows.get("loss", np.full(len(lost), np.nan))
    return {**rows, "loss": np.where(lost, np.inf, loss)}


_ITERATION = r"\biteration\s+{}\s*/\s*\d+ \|"
MEGATRON = LineFormat(
    "Megatron-LM: lines on stdout",
    train=r"^(?!(?:.*\biteration\s+\d+\s*/){2}).*?"
    + _ITERATION.format(r"(?P<step>\d+)")
    + r"(?=.*\|)(?=.*\belapsed time per iteration \(m?s\))(?=.*(?:\blm[ _]loss|\bnan iterations))"
    r"(?=.*\bconsumed samples:\s+(?P<samples>\d+) \||)"
    r"(?=.*\bconsumed tokens:\s+(?P<tokens>\d+) \||)"
    r"(?=.*\bglobal batch size:\s+(?P<batch>\d+) \||)"
    r"(?=.*\blearning rate:?\s+(?P<lr>\S+) \||)"
    r"(?=.*\blm[ _]loss:?\s+(?P<loss>\S+) \||)"
    r"(?=.*\bnumber of nan iterations:\s+(?P<nan>\d+) \||)",
    evaluation=r"\bvalidation (?:loss|results) at iteration (?P<step>\d+)"
    r"(?: on validation set)? \|.*?\blm[ _]loss value: (?P<eval_loss>\S+) \|",
    settings=(
        r"(?:^|[\s:])seq_length \.{3,} (?P<seq_len>\d+)(?:\.{3,}\w+)?\s*$",
        r"(?:^|[\s:])(?:train|global)_batch_size \.{3,} (?P<batch>\d+)(?:\.{3,}\w+)?\s*$",
        r"(?:^|[\s:])padded_vocab_size \.{3,} (?P<vocabulary>\d+)(?:\.{3,}\w+)?\s*$",
    ),
    begins=_ITERATION.format(r"\d+")
    + r"|\bvalidation (?:loss|results) at iteration \d+\b(?! on test set)",
    known_by=_ITERATION.format(r"\d+") + r".*elapsed time per iter",
    ignored=r" on test set \|",
    finish=_diverged,
)
_TITAN = r"\bstep:\s*{}(?:/\d+ = \S+%)?\s+loss:"
TORCHTITAN = LineFormat(
    "torchtitan: lines on stdout",
    train=r"(?<!validate )"
    + _TITAN.format(r"(?P<step>\d+)")
    + r"\s*(?P<loss>\S+)\s+(?:grad_norm|memory): ",
    evaluation="validate " + _TITAN.format(r"(?P<step>\d+)") + r"\s*(?P<eval_loss>\S+)\s+memory: ",
    settings=(r"global batch size:? (?P<batch>\d+), .*?sequence length:? (?P<seq_len>\d+)",),
    begins=_TITAN.format(r"\d+"),
    ignored=r"\bloss:\s*-1\.0*\s",
)
NANOTRON = LineFormat(
    "nanotron: lines of its logger",
    train=r"\biteration: (?P<step>\d+) / \d+ \| consumed_tokens: (?P<rounded_tokens>\S+) \|"
    r"(?=.*\blm_loss: (?P<loss>\S+) \|)(?=.*\blr: (?P<lr>\S+) \|)",
    begins=r"\biteration: \d+ / \d+ \|",
    notes={"lm_loss: ": "losses and rates are printed to three digits; W&B has them exactly"},
)
NEMO = LineFormat(
    "NeMo 2: lines of its progress printer",
    train=r"\bTraining epoch (?P<epoch>\d+), iteration \d+/\d+ \| "
    r"(?=.*\bglobal_step: (?P<index>\d+)(?:\s|$))(?=.*\breduced_train_loss: (?P<loss>\S+))"
    r"(?=.*\bconsumed_samples: (?P<samples>\d+)(?:\s|$)|)"
    r"(?=.*\bglobal_batch_size: (?P<batch>\d+)|)(?=.*\blr: (?P<lr>\S+)|)",
    begins=r"\bTraining epoch \d+, iteration \d+/\d+ \| ",
    notes={
        r"\breduced_train_loss: ": "losses and rates are printed to four digits",
        r"\bval_loss: ": "eval_loss left out: val_loss is printed without its step",
    },
)

_LOSS = r"[\d.]+|nan|inf"
_SIZES = (
    r"(?:tokens per iteration(?: will be)?|total desired batch size): (?P<batch_tokens>[\d,]+)\s*$",
    r"^Overriding: block_size\s*=\s*(?P<seq_len>\d+)\b",
    r"^block_size\s*=\s*(?P<seq_len>\d+)\b",
    r"\* (?P<seq_len>\d+) max seq len\b",
    r"\bvocab_size = (?P<vocabulary>\d+) \(inside ",
)
NANOGPT = AnyOf(
    "nanoGPT, llama2.c, build-nanogpt: what they print, and log.txt",
    (
        LineFormat(
            "nanoGPT, llama2.c: lines on stdout",
            train=rf"(?:\biter |(?<!\S))(?P<index>\d+)(?:: | \| )loss (?P<loss>{_LOSS})"
            r"(?:, time | \|(?: lr (?P<lr>\S+) \|)? )[^\s,]+ms\b",
            evaluation=rf"\bstep (?P<step>\d+): train loss (?P<estimate>{_LOSS}),"
            rf" val loss (?P<eval_loss>{_LOSS})",
            settings=_SIZES,
            begins=r"\biter \d+: loss |(?<!\S)\d+ \| loss |\bstep \d+: train loss ",
            notes={
                r"\biter \d+: loss |(?<!\S)\d+ \| loss ": "loss is of one device's last micro-batch"
            },
        ),
        LineFormat(
            "build-nanogpt: lines on stdout",
            train=r"\bstep +(?P<index>\d+) \| loss: (?P<loss>\S+) \|(?: lr:? (?P<lr>\S+) \|)?"
            r"(?=.* dt: ?\S)",
            evaluation=r"\bvalidation loss: (?P<eval_loss>\S+)\s*$",
            settings=_SIZES,
            begins=PREFIX + r"(?:step +\d+ \| loss: |validation loss: )",
        ),
        LineFormat(
            "build-nanogpt: log.txt",
            train=rf"^(?P<index>\d+) train (?P<loss>{_LOSS})(?: \w+=\S+)*$",
            evaluation=rf"^(?P<step>\d+) val (?P<eval_loss>{_LOSS})$",
            begins=r"^\d+ (?:train|val) ",
        ),
    ),
)
NANOCHAT = LineFormat(
    "nanochat: lines of base_train",
    train=r"\bstep (?P<index>\d+)/\d+ \([\d.]+%\) \| loss: (?P<loss>\S+) \|.* lrm: \S+ \|"
    r" dt: \S+ \| tok/sec: \S+ \|(?=.* epoch: (?P<epoch>\d+) |)",
    settings=(
        r"\bTotal batch size (?P<batch_tokens>[\d,]+) => gradient accumulation steps: \d",
        r"\bTokens / micro-batch / rank: \d+ x (?P<seq_len>\d+) = ",
        r"\bVocab size: (?P<vocabulary>[\d,]+)",
    ),
    begins=r"\bstep \d+/\d+ \(\d",
    notes={
        r"\bstep \d+/\d+ \(\d": "loss is averaged over some ten steps",
        r"\bStep \d+ \| Validation bpb: ": "eval_loss left out: it is in bits per byte",
    },
)
_GOLF = r"(?:\bstep:|^\s*){}/\d+ "
PARAMETER_GOLF = LineFormat(
    "parameter-golf: its programs' logs",
    train=_GOLF.format(r"(?P<step>\d+)") + r"train_loss: ?(?P<loss>\S+) train_time: ?\S+",
    evaluation=_GOLF.format(r"(?P<step>\d+)") + r"val_loss: ?(?P<eval_loss>\S+) val_bpb: ?\S+",
    settings=(
        r"\btrain_batch_tokens: ?(?P<batch_tokens>\d+)\b",
        r"\b(?:train_)?seq_len: ?(?P<seq_len>\d+)\b",
        r"\bvocab_size: ?(?P<vocabulary>\d+)\b",
    ),
    begins=_GOLF.format(r"\d+") + r"(?:train|val)_loss: ?",
    known_by=r"(?:\bstep:|^)\d+/\d+ val_loss: ?\S+ val_bpb:|^\d+/\d+ train_loss: \S+ train_time: "
    r"|\btrain_batch_tokens: ?\d[\s\S]*\bstep:\d+/\d+ train_loss:",
    notes={_GOLF.format(r"\d+") + "train_loss": "loss is of one device's micro-batches"},
)
_SET = r"^[ \t]+{} *(?:: *int *)?= *(?P<{}>\d{{1,15}}(?: *\* *\d{{1,15}})*) *"
_TIMED = r" train_time:\S+ step_avg:\S+ms(?:\s.*)?$"
MODDED_NANOGPT = LineFormat(
    "modded-nanogpt: log of the program and its run",
    train=PREFIX + r"step:(?P<step>\d+)/\d+ train_loss:(?P<loss>\S+)" + _TIMED,
    evaluation=PREFIX + r"step:(?P<step>\d+)/\d+ val_loss:(?P<eval_loss>\S+)" + _TIMED,
    settings=(
        _SET.format("batch_size", "batch_tokens") + "#.*in tokens",
        _SET.format("batch_size", "batch") + "#.*in sequences",
        _SET.format("(?:sequence_length|train_seq_len)", "seq_len") + "(?:#.*)?$",
        r"^\s*grad_accum_steps\s*=\s*(?P<batch>\d{1,15})\s*//",
    ),
    begins=PREFIX + r"step:\d+/\d+ (?:val|train)_loss:",
    notes={r"step:\d+/\d+ train_loss:": "train_loss is of one device's last micro-batch"},
)
LLM_C = AnyOf(
    "llm.c: main.log, or what it prints",
    (
        LineFormat(
            "llm.c: main.log",
            train=r"^s:(?P<index>\d+) trl:(?P<loss>\S+)(?: lr:(?P<lr>\S+) norm:\S+)?\s*$",
            evaluation=r"^s:(?P<step>\d+) tel:(?P<eval_loss>\S+)\s*$",
            begins=r"^s:\d+ (?:tel|trl):",
            known_by=r"^s:\d+ (tel|trl):\d",
        ),
        LineFormat(
            "llm.c: lines on stdout",
            train=PREFIX + r"step\s+(?P<step>\d+)/\d+ \| (?:train )?loss\s+(?P<loss>\S+) "
            r".*\| lr (?P<lr>\S+) \|",
            evaluation=PREFIX + r"val loss\s+(?P<eval_loss>\S+)\s*$",
            settings=(
                PREFIX + r"\| total batch size\s+\| (?P<batch_tokens>\d+)\s+\|",
                PREFIX + r"\| sequence length T\s+\| (?P<seq_len>\d+)\s+\|",
                PREFIX + r"\| vocab_size V\s+\| (?P<vocabulary>\d+)\s+\|",
            ),
            begins=PREFIX + r"(?:step\s+\d+/\d+ \||val loss )",
        ),
    ),
)
MAXTEXT = LineFormat(
    "MaxText: lines of its metric logger",
    train=r"\bcompleted step: (?P<index>\d+), .*?(?:\blm_loss|(?!.*\blm_loss)\bloss): "
    r"(?P<loss>[^\s,]+)",
    evaluation=r"\beval metrics after step: (?P<index>\d+), loss=(?P<eval_loss>[^\s,]+), ",
    settings=(
        r"\bConfig param max_target_length: (?P<seq_len>\d+)\s*$",
        r"\bConfig param global_batch_size_to_train_on: (?P<batch>\d+)\s*$",
        r"\bConfig param vocab_size: (?P<vocabulary>\d+)\s*$",
    ),
    begins=r"\bcompleted step: \d+, |\beval metrics after step: \d+, ",
)
TORCHTUNE = LineFormat(
    "torchtune: lines of its disk logger",
    train=r"^Step (?P<step>\d+) \| (?=.*\bloss:(?P<loss>\S+) )(?=.*\blr:(?P<lr>\S+) |)",
    begins=r"^Step \d+ \| (?=.*\bloss:)",
)
_IS = r"""["']?[=: ]+["']?"""
_BITS = r"(?=(?:.*\bnll_loss|(?!.*nll_loss).*?\b(?:valid_)?loss)" + _IS + r"(?P<{}>{}))"
FAIRSEQ = LineFormat(
    "fairseq: lines of its progress bars, simple or JSON",
    train=r"\btrain_inner \|(?=.*\bnum_updates"
    + _IS
    + r"(?P<step>\d+)\b)"
    + _BITS.format("loss_bits", r"[^,\s\"]+")
    + r"(?=.*\bwpb"
    + _IS
    + r"(?P<batch_tokens>[\d.]+)|)"
    r"(?=.*\bbsz" + _IS + r"(?P<batch>[\d.]+)|)(?=.*\blr" + _IS + r"(?P<lr>[^,\s\"]+)|)",
    evaluation=r"\| valid \|(?=.*num_updates"
    + _IS
    + r"(?P<step>\d+)\b)"
    + _BITS.format("eval_loss_bits", r"[\d.]+|nan|inf"),
    begins=r"\btrain_inner \||\| valid \|",
    ignored=r"begin validation|\|\s+valid_epoch",
    notes={r"\btrain_inner \|": "losses are in bits and converted to nats"},
)
