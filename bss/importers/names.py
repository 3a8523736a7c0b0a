"""Trainers by the names that they log to trackers and JSON, and their settings by name.

- GPT-NeoX (`megatron/logging.py`, tb_wandb_log): `train/lm_loss`, `validation/lm_loss` by the
  iteration completed.
- MaxText (`common/metric_logger.py`): `learning/loss`, `eval/avg_loss` by the index of the step
  just done, from 0 on.
- composer and llm-foundry (`composer/trainer/trainer.py`, `_train_loop`): the training loss is
  logged before the batch is counted, held-out losses after. So a loss is of one step more, and
  `time/token`, which is of before the batch, is not read. `loss/train/total` may be divided by
  tokens, so the cross-entropy goes first.
- nanoGPT (`train.py`): `iter`, steps completed, with the losses of each evaluation, by a W&B step
  that counts them. `batch_size` of its settings is the batch of a device and micro-step.
- nanochat (`scripts/base_train.py`): `step`, the index from 0 on; `train/loss` is an exponential
  average of weight 0.9; held-out losses are in bits per byte.
- LitGPT (`litgpt/pretrain.py`): a tracker's step counts micro-batches, `step` steps completed.
- Lightning (`loops/training_epoch_loop.py`, `_batches_that_stepped`): losses are named by users,
  `train_loss` and `val_loss` in its examples, by the index of the step just done; W&B gets it
  as `trainer/global_step`. Names that end in `_epoch` are means and not read. NeMo logs by it.
- OLMo (`olmo/train.py`) and OLMo-core (`callbacks/speed_monitor.py`, `scheduler.py`): completed
  steps, exact tokens, one held-out loss per set.
- Levanter, marin (`lib/levanter/docs`; `callbacks`): the index of the step just done, and the
  tokens up to its end.
- nanotron (`trainer.py`), torchtitan (`components/metrics.py`, `train.py`), Megatron-LM
  (`training.py`): completed steps. Megatron's `lm loss vs samples` is its `lm loss` by samples.
- Hugging Face Trainer (`integrations/integration_utils.py`, rewrite_logs): `train/global_step`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from bss.errors import InputError
from bss.importers.log import LOSSES, Correction, Rows, as_logged, completed, some


@dataclass(frozen=True)
class MetricNames:
    """The names that a trainer logs.

    Attributes:
        trainer: Name of the trainer.
        names: Names of each column of a Log, the first one present being used; `*` matches
            anything, and is used if it matches one metric.
        config: Paths, by dots, of settings for seq_len, batch, batch_tokens or vocabulary.
        per_device: Settings that are batches of a device, never used as the global batch.
        twins: A tag logged by step, and its twin of the same values whose step is another count,
            by the count's column.
        corrected: Gives steps and tokens their meaning in a Log.
        marks: Names of which one must be present, if the others could be any trainer's.
        counts_logs: Whether W&B's step counts calls of log, because the trainer gives it none.
        notes: Remarks on its losses.
    """

    trainer: str
    names: Mapping[str, tuple[str, ...]]
    config: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    per_device: tuple[str, ...] = ()
    twins: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    corrected: Correction = as_logged
    marks: tuple[str, ...] = ()
    counts_logs: bool = False
    notes: tuple[str, ...] = ()

    @classmethod
    def declared(cls, trainer: str, names: str, config: str = "", **others: Any) -> "MetricNames":
        """Return the names written as in --columns, alternatives separated by |.

        Examples:
            >>> MetricNames.declared("mine", "step=iter, loss=train/ce|train/loss").names
            {'step': ('iter',), 'loss': ('train/ce', 'train/loss')}
        """
        return cls(trainer, _declared(names), _declared(config), **others)

    def named_in(self, available: Iterable[str]) -> dict[str, list[str]]:
        """Return the names that are present by column: one, or all that a pattern matches."""
        available = list(available)
        by_column: dict[str, list[str]] = {}
        if self.marks and not set(self.marks) & set(available):
            return by_column
        for column, names in self.names.items():
            for name in names:
                pattern = name.replace("[", "[[]")
                there = [a for a in available if a == name or fnmatchcase(a, pattern)]
                if there:
                    by_column[column] = there if "*" in name else there[:1]
                    break
        return by_column

    def settings(self, config: Mapping[str, Any]) -> tuple[dict[str, int], tuple[str, ...]]:
        """Return the settings of a config that are whole numbers, and notes."""
        settings: dict[str, int] = {}
        for column, paths in self.config.items():
            values = [value for path in paths if (value := at_path(config, path)) is not None]
            if values and type(values[0]) is int and values[0] > 0:
                settings[column] = values[0]
        notes = tuple(
            f"{path} {value} is the batch of a device"
            for path in self.per_device
            if (value := at_path(config, path)) is not None
        )
        return settings, notes


def at_path(config: Any, path: str) -> Any:
    """Return the value of a nested dict at a path of keys joined by dots; None if it has none."""
    for key in path.split("."):
        if not isinstance(config, Mapping):
            return None
        config = config.get(key)
        if isinstance(config, Mapping) and "value" in config and set(config) <= {"value", "desc"}:
            config = config["value"]
    return config


def choose(
    trainers: Iterable[MetricNames],
    available: Iterable[str],
    columns: Mapping[str, str],
    source: str,
) -> tuple[MetricNames, dict[str, str], tuple[str, ...]]:
    """Return the trainer that has most names of a log, and the name of every column.

    Args:
        trainers: Trainers, the likelier first.
        available: Names in the log.
        columns: Names that the user gave; they go first.
        source: Path of the log, for messages.

    Returns:
        The trainer, names by column, and notes: held-out losses of which none was chosen.

    Raises:
        InputError: If a name that the user gave is not present, or no loss is.
    """
    available = list(available)
    for ours, theirs in columns.items():
        if theirs not in available:
            raise InputError(f"{source}: no metric {theirs} for {ours}; it has {some(available)}")
    own = MetricNames("own", {ours: (theirs,) for ours, theirs in columns.items()})
    alike = fitting(trainers, available, columns) or [own]
    trainer = alike[0]
    given = {column: [name] for column, name in columns.items()}
    names = {**trainer.named_in(available), **given}
    if not set(LOSSES) & set(names):
        raise InputError(
            f"{source}: no loss is known by its name; name it with --columns loss=NAME, "
            f"of {some(available)}"
        )
    several = {column: there for column, there in names.items() if len(there) > 1}
    notes = [
        f"{column} left out: {some(there)} are logged; choose with --columns {column}=NAME"
        for column, there in several.items()
    ]
    notes += [
        f"read as {trainer.trainer}'s; steps of {other.trainer}, which has these names too, "
        "count from 0: name the format"
        for other in alike
        if other.corrected is not trainer.corrected and not other.marks
    ]
    chosen = {c: there[0] for c, there in names.items() if c not in several}
    return trainer, chosen, (*notes, *trainer.notes)


def fitting(
    trainers: Iterable[MetricNames], available: Iterable[str], given: Iterable[str] = ()
) -> list[MetricNames]:
    """Return the trainers that have most names of a log, in their order; none without a loss.

    Args:
        trainers: Trainers.
        available: Names in the log.
        given: Columns that the user named.
    """
    available, given = list(available), set(given)
    own = [(trainer, set(trainer.named_in(available))) for trainer in trainers]
    named = [(trainer, names | given) for trainer, names in own if names]
    most = max((len(names) for _, names in named if set(LOSSES) & names), default=0)
    return [t for t, names in named if len(names) == most and set(LOSSES) & names]


def _declared(text: str) -> dict[str, tuple[str, ...]]:
    pairs = (pair.strip().partition("=") for pair in text.split(",") if pair.strip())
    return {column: tuple(names.split("|")) for column, _, names in pairs}


def _losses_completed(rows: Rows) -> Rows:
    """Return the rows with training losses one step on, and held-out ones as they are."""
    if not {"step", "loss"} <= set(rows):
        return rows
    held_out = {**rows, "loss": np.full(len(rows["step"]), np.nan)}
    trained = {**completed(rows), "eval_loss": held_out["loss"]}
    both = held_out.keys() if "eval_loss" in rows else rows.keys()
    return {column: np.concatenate([trained[column], held_out[column]]) for column in both}


_declare = MetricNames.declared
HUGGING_FACE = _declare(
    "huggingface",
    "step=train/global_step, tokens=train/num_input_tokens_seen, lr=train/learning_rate, "
    "loss=train/loss, eval_loss=eval/loss|eval/*_loss",
    "vocabulary=vocab_size",
    per_device=("per_device_train_batch_size",),
    counts_logs=True,
)
MEGATRON = _declare(
    "megatron",
    "samples=samples vs steps, batch=batch-size, lr=learning-rate, loss=lm loss, "
    "eval_loss=lm loss validation",
    "seq_len=seq_length, vocabulary=padded_vocab_size",
    twins={"samples": ("lm loss", "lm loss vs samples")},
)
OLMO_CORE = _declare(
    "olmo-core",
    "tokens=throughput/total tokens, lr=optim/LR (group 0), loss=train/CE loss, "
    "eval_loss=eval/lm/*/CE loss",
    "seq_len=dataset.sequence_length, batch_tokens=data_loader.global_batch_size",
)
OLMO = _declare(
    "olmo",
    "tokens=throughput/total_tokens, lr=optim/learning_rate_group0, loss=train/CrossEntropyLoss, "
    "eval_loss=eval/*/CrossEntropyLoss",
    "seq_len=model.max_sequence_length, batch=global_train_batch_size",
)
LEVANTER = _declare(
    "levanter",
    "step=global_step, tokens=throughput/total_tokens, lr=optim/learning_rate, loss=train/loss, "
    "eval_loss=eval/loss",
    "seq_len=train_seq_len|model.max_seq_len|model.seq_len, batch=trainer.train_batch_size",
    corrected=completed,
)
TORCHTITAN = _declare(
    "torchtitan",
    "tokens=n_tokens_seen|ntokens_seen, lr=lr, loss=loss_metrics/global_avg_loss, "
    "eval_loss=validation_metrics/loss",
    "seq_len=training.seq_len, batch=training.global_batch_size",
    per_device=("training.local_batch_size",),
)
NANOTRON = _declare(
    "nanotron",
    "step=iteration_step, tokens=consumed_tokens, lr=lr, loss=lm_loss",
    "seq_len=tokens.sequence_length",
    counts_logs=True,
)
GPT_NEOX = _declare(
    "gpt-neox",
    "lr=train/learning_rate, loss=train/lm_loss, eval_loss=validation/lm_loss",
    "seq_len=seq_length, batch=train_batch_size",
)
MAXTEXT = _declare(
    "maxtext",
    "lr=learning/current_learning_rate, loss=learning/lm_loss|learning/loss, "
    "eval_loss=eval/avg_loss",
    "seq_len=max_target_length, vocabulary=vocab_size",
    per_device=("per_device_batch_size",),
    corrected=completed,
    marks=("learning/loss",),
)
COMPOSER = _declare(
    "composer",
    "lr=lr-*/group0, loss=metrics/train/LanguageCrossEntropy|loss/train/total, "
    "eval_loss=metrics/eval/LanguageCrossEntropy",
    "seq_len=max_seq_len, batch=global_train_batch_size",
    corrected=_losses_completed,
)
NANOGPT = _declare(
    "nanogpt",
    "step=iter, lr=lr, loss=train/loss, eval_loss=val/loss",
    "seq_len=block_size",
    per_device=("batch_size",),
    marks=("iter",),
    counts_logs=True,
)
NANOCHAT = _declare(
    "nanochat",
    "step=step, loss=train/loss",
    "seq_len=max_seq_len, batch_tokens=total_batch_size",
    per_device=("device_batch_size",),
    corrected=completed,
    marks=("train/lrm", "total_training_flops"),
    counts_logs=True,
    notes=("train/loss is averaged over some ten steps; bits per byte are not read",),
)
LITGPT = _declare(
    "litgpt",
    "step=step, tokens=total_tokens, lr=learning_rate, loss=loss, eval_loss=val_loss",
    "batch=train.global_batch_size",
    per_device=("train.micro_batch_size",),
    marks=("iter_time", "remaining_time"),
    counts_logs=True,
)
LIGHTNING = _declare(
    "lightning",
    "step=trainer/global_step, lr=lr-*, eval_loss=val_loss|val/loss, "
    "loss=reduced_train_loss|train_loss|train_loss_step|train/loss|train/loss_step",
    "batch=global_batch_size|data.global_batch_size",
    corrected=completed,
    marks=(
        "trainer/global_step", "reduced_train_loss", "train_loss", "train_loss_step",
        "train/loss_step",
    ),
    counts_logs=True,
)  # fmt: skip

TRAINERS = (
    HUGGING_FACE, MEGATRON, OLMO_CORE, OLMO, LEVANTER, TORCHTITAN, NANOTRON, GPT_NEOX, MAXTEXT,
    COMPOSER, NANOGPT, NANOCHAT, LITGPT, LIGHTNING,
)  # fmt: skip
"""Trainers that trackers know; the first of those that fit equally well is used."""
