"""Export to Hugging Face's Trainer: Python with a callback, and a LambdaLR.

transformers 5.23.0, `trainer.py`: `_inner_training_loop` (do_sync_step), `on_step_end`. It counts
micro-batches, so a switch must be at a multiple of the new batch size.
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
    """Accumulate to the plan's batch size; micro: sequences per micro-batch, all devices."""

    def __init__(self, micro):
        self.micro = micro

    def on_train_begin(self, args, state, control, **kwargs):
        args.gradient_accumulation_steps, rest = divmod(batch(state.global_step), self.micro)
        assert not rest, f"{batch(state.global_step)} must be a multiple of {self.micro}"

    on_step_end = on_train_begin


# args = TrainingArguments(max_steps=STEPS, gradient_accumulation_steps=batch(0) // micro, ...)
# optimizer = AdamW(..., **ADAMW)
# optimizers = (optimizer, LambdaLR(optimizer, rate))
# Trainer(args=args, optimizers=optimizers, callbacks=[FollowPlan(micro)], ...)
# Use one epoch and a data set with a length, which has all sequences of the plan.
# On resume, Trainer skips a wrong amount of data: set ignore_data_skip and skip it yourself.''')


def _comments(plan: Plan) -> Iterator[str]:
    if any(s.batch < plan.segments[0].batch for s in plan.segments):
        needed = plan.steps * plan.segments[0].batch
        yield f"# The batch shrinks: Trainer ends the epoch early below {needed} sequences of data."


HUGGINGFACE = Export("The callback", _comments, PROGRAM, counts="Trainer")
