"""Hugging Face's Trainer: Python, a callback and the rate for LambdaLR.

transformers 5.23.0, `trainer.py`: `_inner_training_loop` (do_sync_step), `on_step_end`. It counts
micro-batches, so that a switch must come at a multiple of the new batch.
"""

from collections.abc import Iterator
from string import Template

from bss.exports.base import Export
from bss.schedules.plan import Plan

PROGRAM = Template('''
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerCallback

$plan


class FollowPlan(TrainerCallback):
    """Accumulates the plan's batch; micro: sequences of a micro-batch, over all devices."""

    def __init__(self, micro):
        self.micro = micro

    def on_train_begin(self, args, state, control, **kwargs):
        args.gradient_accumulation_steps, rest = divmod(batch(state.global_step), self.micro)
        assert not rest, f"a batch of {batch(state.global_step)} is no multiple of {self.micro}"

    on_step_end = on_train_begin


# args = TrainingArguments(max_steps=STEPS, gradient_accumulation_steps=batch(0) // micro, ...)
# optimizer = AdamW(..., **ADAMW)
# optimizers = (optimizer, LambdaLR(optimizer, rate))
# Trainer(args=args, optimizers=optimizers, callbacks=[FollowPlan(micro)], ...)
# All in one epoch, of a data set that knows its length and holds the plan's sequences.
# Resuming skips data by the batch then in force: set ignore_data_skip and skip them yourself.''')


def _comments(plan: Plan) -> Iterator[str]:
    if any(s.batch < plan.segments[0].batch for s in plan.segments):
        needed = plan.steps * plan.segments[0].batch
        yield f"# The batch shrinks: Trainer ends the epoch early below {needed} sequences of data."


HUGGINGFACE = Export("The callback", _comments, PROGRAM, counts="Trainer")
