"""Trainers that are known by what they log to W&B and TensorBoard alone.

- GPT-NeoX (`megatron/logging.py`, tb_wandb_log): `train/lm_loss`, `validation/lm_loss` by the
  iteration completed.
- MaxText (`common/metric_logger.py`): `learning/loss`, `eval/avg_loss` by the index of the step
  just done, from 0 on.
- composer and llm-foundry (`composer/trainer/trainer.py`, `_train_loop`): the training loss is
  logged before the batch is counted, held-out losses after. So a loss is of one step more, and
  `time/token`, which is of before the batch, is not read.
- nanoGPT (`train.py`): `iter`, steps completed, with the losses of each evaluation, by a W&B step
  that counts them. `batch_size` of its settings is that of a device and micro-step.
- nanochat (`scripts/base_train.py`): `step`, the index from 0 on; `train/loss` is an exponential
  average of weight .9, and what is held out is told in bits per byte.
- LitGPT (`litgpt/pretrain.py`): a tracker's step counts micro-batches, `step` steps completed.
- Lightning (`loops/training_epoch_loop.py`, `_batches_that_stepped`): losses are named by users,
  `train_loss` and `val_loss` in its own examples, by the index of the step just done; W&B gets it
  as `trainer/global_step`. What ends in `_epoch` is a mean and not read. NeMo logs by it.
"""

import numpy as np

from bss.importers.log import LOSSES, Rows
from bss.importers.metrics import MetricNames, completed

LIGHTNING = ("reduced_train_loss", "train_loss", "train_loss_step", "train/loss", "train/loss_step")


def _losses_completed(rows: Rows) -> Rows:
    """Training losses one step on, and held-out ones where they are."""
    if not {"step", "loss"} <= set(rows):
        return rows
    count = len(rows["step"])
    apart = {column: np.concatenate([values, values]) for column, values in rows.items()}
    apart["step"][:count] += 1
    for column, part in zip(LOSSES, (slice(count, None), slice(count)), strict=True):
        if column in apart:
            apart[column][part] = np.nan
    return apart


TRACKED = (
    MetricNames(
        "gpt-neox",
        {
            "lr": ("train/learning_rate",),
            "loss": ("train/lm_loss",),
            "eval_loss": ("validation/lm_loss",),
        },
        {"seq_len": ("seq_length",), "batch": ("train_batch_size",)},
    ),
    MetricNames(
        "maxtext",
        {
            "lr": ("learning/current_learning_rate",),
            "loss": ("learning/lm_loss", "learning/loss"),
            "eval_loss": ("eval/avg_loss",),
        },
        {"seq_len": ("max_target_length",)},
        per_device=("per_device_batch_size",),
        corrected=completed,
        marks=("learning/loss",),
    ),
    MetricNames(
        "composer",
        {
            "lr": ("lr-*/group0",),
            "loss": ("metrics/train/LanguageCrossEntropy", "loss/train/total"),
            "eval_loss": ("metrics/eval/LanguageCrossEntropy",),
        },
        {"seq_len": ("max_seq_len",), "batch": ("global_train_batch_size",)},
        corrected=_losses_completed,
    ),
    MetricNames(
        "nanogpt",
        {"step": ("iter",), "lr": ("lr",), "loss": ("train/loss",), "eval_loss": ("val/loss",)},
        {"seq_len": ("block_size",)},
        per_device=("batch_size",),
        marks=("iter",),
        counts_logs=True,
    ),
    MetricNames(
        "nanochat",
        {"step": ("step",), "loss": ("train/loss",)},
        {"seq_len": ("max_seq_len",), "batch_tokens": ("total_batch_size",)},
        per_device=("device_batch_size",),
        corrected=completed,
        marks=("train/lrm", "total_training_flops"),
        counts_logs=True,
        notes=("train/loss is averaged over some ten steps; bits per byte are not read",),
    ),
    MetricNames(
        "litgpt",
        {
            "step": ("step",),
            "tokens": ("total_tokens",),
            "lr": ("learning_rate",),
            "loss": ("loss",),
            "eval_loss": ("val_loss",),
        },
        {"batch": ("train.global_batch_size",)},
        per_device=("train.micro_batch_size",),
        marks=("iter_time", "remaining_time"),
        counts_logs=True,
    ),
    MetricNames(
        "lightning",
        {
            "step": ("trainer/global_step",),
            "lr": ("lr-*",),  # LearningRateMonitor's, of one optimizer
            "loss": LIGHTNING,
            "eval_loss": ("val_loss", "val/loss"),
        },
        {"batch": ("global_batch_size", "data.global_batch_size")},
        corrected=completed,
        marks=("trainer/global_step", *(name for name in LIGHTNING if name != "train/loss")),
        counts_logs=True,
    ),
)
"""Trainers by what they log."""
