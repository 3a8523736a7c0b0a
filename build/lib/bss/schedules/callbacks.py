"""A Plan as Python for trainers whose batch and rate code sets, step by step.

Hugging Face's Trainer, DeepSpeed, OLMo-core and torchtitan. The code is self-contained: batch and
rate of every step are functions of the step, equal to the plan's. All but torchtitan count
micro-batches, so that a switch must come at a multiple of the new batch; another is told. Read in,
and run by slow tests where they are installed:

- transformers 5.23.0, `trainer.py`: `_inner_training_loop` (do_sync_step), `on_step_end`.
- DeepSpeed 0.19.8, `runtime/engine.py`: `set_train_batch_size`,
  `is_gradient_accumulation_boundary`.
- ai2-olmo-core 3.0.0, `train/callbacks/batch_size_scheduler.py`, `optim/scheduler.py`,
  `data/data_loader.py`: the batch changes by whole factors.
- torchtitan 0.3.0, `trainer.py` (train_step), `components/optimizer/lr_scheduler.py`.
"""

import itertools
from collections.abc import Iterator
from typing import Any, cast

from bss.schedules.plan import Plan

DATACLASS = "from dataclasses import dataclass"
DEEPSPEED_IMPORTS = ("from torch.optim.lr_scheduler import LambdaLR",)
HUGGINGFACE_IMPORTS = (*DEEPSPEED_IMPORTS, "from transformers import TrainerCallback")
OLMO_CORE_IMPORTS = (
    "from olmo_core.optim.scheduler import Scheduler",
    "from olmo_core.train import Duration",
    "from olmo_core.train.callbacks import BatchSizeSchedulerCallback",
)
TORCHTITAN_IMPORTS = (
    "from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw",
    "from torchtitan.config import TrainingConfig",
    "from torchtitan.trainer import Trainer",
)
HUGGINGFACE = '''

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
# Resuming skips data by the batch then in force: set ignore_data_skip and skip them yourself.'''
DEEPSPEED = '''

def follow(engine):
    """Call before the first micro-batch of every step."""
    if engine.train_batch_size() != batch(engine.global_steps):
        engine.set_train_batch_size(batch(engine.global_steps))


# config = {"train_batch_size": batch(0), "train_micro_batch_size_per_gpu": ...}
# optimizer = AdamW(..., **ADAMW)
# scheduler = LambdaLR(optimizer, rate)
# deepspeed.initialize(optimizer=optimizer, lr_scheduler=scheduler, config=config, ...)
# A step that overflows in fp16 is counted by the engine and not by LambdaLR.'''

OLMO_CORE = '''

@dataclass
class PlanRate(Scheduler):
    """The plan's rate, whatever the optimizer's lr, which OLMo-core scales at a batch change."""

    def get_lr(self, initial_lr, current, t_max):
        return rate(current - 1)  # OLMo-core counts a step before it is done


changes = BatchSizeSchedulerCallback(
    batch_sizes=[size * SEQ_LEN for size in BATCH],
    schedule=[Duration.steps(step) for step in FIRST],
)
# NumpyDataLoaderConfig(global_batch_size=batch(0) * SEQ_LEN, ...)
# TransformerTrainModuleConfig(optim=AdamWConfig(**ADAMW), scheduler=PlanRate(), ...)
# TrainerConfig(max_duration=Duration.steps(STEPS), ...).with_callback("batch_size", changes)'''
TORCHTITAN = '''

class PlanRate(LRSchedulersContainer):
    """The plan's rate, by the optimizer's lr of 1."""

    @dataclass(kw_only=True, slots=True)
    class Config(LRSchedulersContainer.Config):
        def build(self, *, optimizers, training_steps):
            return LRSchedulersContainer(optimizers, rate)


class FollowPlan(Trainer):
    """Accumulates the plan's batch, by micro-batches over all data-parallel ranks."""

    @dataclass(kw_only=True, slots=True)
    class Config(Trainer.Config):
        pass

    def __init__(self, config):
        super().__init__(config)
        self.micro = batch(0) // self.gradient_accumulation_steps

    def train_step(self, data_iterator):
        self.gradient_accumulation_steps, rest = divmod(batch(self.step - 1), self.micro)
        assert not rest, f"a batch of {batch(self.step - 1)} is no multiple of {self.micro}"
        super().train_step(data_iterator)


training = TrainingConfig(global_batch_size=batch(0), seq_len=SEQ_LEN, steps=STEPS)
optimizer, lr_scheduler = default_adamw(**ADAMW), PlanRate.Config()
# FollowPlan.Config(training=training, optimizer=optimizer, lr_scheduler=lr_scheduler, ...)'''


def huggingface(plan: Plan) -> Iterator[str]:
    """Python for Hugging Face's Trainer: a callback and the rate for LambdaLR."""
    yield from (*_imports(HUGGINGFACE_IMPORTS), *_functions(plan), HUGGINGFACE)
    yield from _unaligned(plan, "Trainer")
    if any(s.batch < plan.segments[0].batch for s in plan.segments):
        told = plan.steps * plan.segments[0].batch
        yield f"# The batch shrinks: Trainer ends the epoch early below {told} sequences of data."


def deepspeed(plan: Plan) -> Iterator[str]:
    """Python for DeepSpeed: what to call before each step, and the rate for LambdaLR."""
    yield from (*_imports(DEEPSPEED_IMPORTS), *_functions(plan), DEEPSPEED)
    yield from _unaligned(plan, "DeepSpeed's engine")


def olmo_core(plan: Plan) -> Iterator[str]:
    """Python for OLMo-core: its callback for the batch, and a scheduler with the rate."""
    yield from (*_imports(OLMO_CORE_IMPORTS, DATACLASS), *_functions(plan), OLMO_CORE)
    sizes = (segment.batch * plan.seq_len for segment in plan.segments)
    for before, after in itertools.pairwise(sizes):
        if max(before, after) % min(before, after):
            yield (
                f"# OLMo-core refuses the change from {before} to {after} tokens: "
                "it changes the batch by whole factors only."
            )
    yield from _unaligned(plan, "OLMo-core")


def torchtitan(plan: Plan) -> Iterator[str]:
    """Python for torchtitan: a trainer that follows the batch, and schedulers with the rate."""
    yield from (*_imports(TORCHTITAN_IMPORTS, DATACLASS), *_functions(plan), TORCHTITAN)


def _imports(trainers: tuple[str, ...], *standard: str) -> Iterator[str]:
    """What `_functions` import, and what else of Python's own; then the trainer's."""
    yield from ("import math", "from bisect import bisect_right", *standard, "", *trainers)


def _functions(plan: Plan) -> Iterator[str]:
    """batch(step) and rate(step), steps counted from 0."""
    segments, rate = plan.segments, cast(Any, plan.rate)
    first = plan.at(0).settings
    adamw = {"lr": 1.0, "betas": (first.beta1, first.beta2), "weight_decay": first.weight_decay}
    scales = [plan.coupling.settings(1.0, s.batch, plan.seq_len).lr for s in segments]
    yield ""
    yield f"STEPS, SEQ_LEN = {plan.steps}, {plan.seq_len}"
    yield f"FIRST = {[s.start_step for s in segments]}  # step of each batch"
    yield f"TOKENS = {[s.start_tokens for s in segments]}  # consumed before it"
    yield f"BATCH = {[s.batch for s in segments]}  # sequences"
    yield f"SCALE = {scales}  # of the rate, by the batch"
    yield f"ADAMW = {adamw}  # the rate is the scheduler's"
    yield ""
    yield ""
    yield "def batch(step):"
    yield '    """Sequences of a step, counted from 0."""'
    yield "    return BATCH[bisect_right(FIRST, step) - 1]"
    yield ""
    yield ""
    yield "def rate(step):"
    yield '    """Learning rate of a step, counted from 0: the schedule at its middle token."""'
    yield "    i = bisect_right(FIRST, step) - 1"
    if rate is None:
        yield "    return SCALE[i]  # the plan's multiple of a rate that is yours"
        return
    yield "    size = BATCH[i] * SEQ_LEN"
    yield "    middle = TOKENS[i] + (step - FIRST[i]) * size + size / 2"
    yield from (f"    {line}" for line in rate.code())
    yield "    return value * SCALE[i]"


def _unaligned(plan: Plan, trainer: str) -> Iterator[str]:
    """Switches at which a trainer's count of micro-batches is no multiple of the new number."""
    for segment in plan.segments[1:]:
        before = segment.start_tokens // plan.seq_len
        if before % segment.batch:
            near = -(-before // segment.batch) * segment.batch * plan.seq_len
            yield (
                f"# {trainer} cannot switch to {segment.batch} after {before} sequences, which are "
                f"no multiple of it. Plan the switch for {near} tokens."
            )
