"""Exports as Python: DeepSpeed, Hugging Face's Trainer, Lightning, composer, OLMo-core, torchtitan.

- DeepSpeed 0.19.8, `runtime/engine.py`: `set_train_batch_size`,
  `is_gradient_accumulation_boundary`. A function is called before each step.
- transformers 5.23.0, `trainer.py`: `_inner_training_loop` (do_sync_step), `on_step_end`.
- lightning 2.6.6, `pytorch/loops/training_epoch_loop.py`: `_accumulated_batches_reached`, and
  `on_train_batch_start`, after which a micro-batch is counted and before its step is decided.
- mosaicml 0.32.1 (composer), `trainer/trainer.py`: a step takes a batch of the DataLoader, in
  micro-batches weighted by their samples; `core/data_spec.py` wants a DistributedSampler.
- ai2-olmo-core 3.0.0, `train/callbacks/batch_size_scheduler.py`, `optim/scheduler.py`,
  `data/data_loader.py`: the batch size changes by integer factors.
- torchtitan 0.3.0, `trainer.py` (train_step), `components/optimizer/lr_scheduler.py`.

All but torchtitan and composer count micro-batches, so a switch must be at a multiple of the new
batch size.
"""

import itertools
import math
from collections.abc import Iterator
from string import Template

from bss.exports.base import Export, with_batches
from bss.exports.loops import bias_in_torch
from bss.schedules.plan import Plan

_DEEPSPEED = Template('''
from torch.optim.lr_scheduler import LambdaLR

$plan


def follow(engine):
    """Call before the first micro-batch of every step."""
    if engine.train_batch_size() != batch(engine.global_steps):
        engine.set_train_batch_size(batch(engine.global_steps))


# config = {"train_batch_size": batch(0), "train_micro_batch_size_per_gpu": ...}
# optimizer = AdamW(..., **ADAMW)
# scheduler = LambdaLR(optimizer, rate)
# deepspeed.initialize(optimizer=optimizer, lr_scheduler=scheduler, config=config, ...)
# The engine counts steps that overflow in fp16, but LambdaLR does not.''')

DEEPSPEED = Export("The callback", program=_DEEPSPEED, counts="DeepSpeed's engine")


_HUGGINGFACE = Template('''
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


HUGGINGFACE = Export("The callback", _comments, _HUGGINGFACE, counts="Trainer")


_FOLLOW = '''

def follow(optimizer, step):
    """Set the plan's LR, betas and weight decay of a step; a decay of 0 stays."""
    for group in optimizer.param_groups:
        decays = {} if group["weight_decay"] else {"weight_decay": 0.0}
        group.update({"lr": rate(step), **ADAMW[bisect_right(FIRST, step) - 1], **decays})

'''

_LIGHTNING = '''
from lightning.pytorch import Callback

$plan
$follow
class FollowPlan(Callback):
    """Accumulate to the plan's batch size; micro: sequences per micro-batch, all devices."""

    def __init__(self, micro):
        self.micro = micro

    def on_train_batch_start(self, trainer, *_):
        step = trainer.global_step
        trainer.accumulate_grad_batches, rest = divmod(batch(step), self.micro)
        assert not rest, f"{batch(step)} must be a multiple of {self.micro}"
        follow(trainer.optimizers[0], step)


# Trainer(max_steps=STEPS, max_epochs=1, callbacks=[FollowPlan(micro)], ...)
# configure_optimizers returns one AdamW and no scheduler. The data lasts for the plan.'''

LIGHTNING = Export(
    "The callback",
    bias_in_torch,
    Template(_LIGHTNING.replace("$follow", _FOLLOW)),
    counts="Lightning",
    sets_all=True,
)


_COMPOSER = '''
from itertools import islice

from composer import Callback
from torch.utils.data.distributed import DistributedSampler

$plan
$follow
class PlanBatches(DistributedSampler):
    """The indices of this rank in the batch of each step: DataLoader's batch_sampler."""

    def __iter__(self):
        rows = iter(super().__iter__())
        for step in range(STEPS):
            size, rest = divmod(batch(step), self.num_replicas)
            assert not rest, f"{batch(step)} must be a multiple of {self.num_replicas} ranks"
            indices = list(islice(rows, size))
            assert len(indices) == size, "the data has fewer sequences than the plan"
            yield indices

    def __len__(self):
        return STEPS


class FollowPlan(Callback):
    """Set the LR of each step."""

    def batch_start(self, state, logger):
        follow(state.optimizers[0], state.timestamp.batch.value)


# batches = PlanBatches(dataset, num_replicas=..., rank=..., shuffle=True)
# Trainer(train_dataloader=DataLoader(dataset, batch_sampler=batches), max_duration=f"{STEPS}ba",
#     device_train_microbatch_size=..., callbacks=[FollowPlan()], ...)  # and no schedulers'''

COMPOSER = Export(
    "composer",
    bias_in_torch,
    Template(_COMPOSER.replace("$follow", _FOLLOW)),
    sets_all=True,
)


_OLMO_CORE = Template('''\
from dataclasses import dataclass

from olmo_core.optim.scheduler import Scheduler
from olmo_core.train import Duration
from olmo_core.train.callbacks import BatchSizeSchedulerCallback

$plan


@dataclass
class PlanRate(Scheduler):
    """The plan's LR. It ignores initial_lr, which OLMo-core scales at a batch change."""

    def get_lr(self, initial_lr, current, t_max):
        return rate(current - 1)  # OLMo-core counts steps from 1


changes = BatchSizeSchedulerCallback(
    batch_sizes=[size * SEQ_LEN for size in BATCH],
    schedule=[Duration.steps(step) for step in FIRST],
)
# NumpyDataLoaderConfig(global_batch_size=batch(0) * SEQ_LEN, ...)
# TransformerTrainModuleConfig(optim=AdamWConfig(**ADAMW), scheduler=PlanRate(), ...)
# TrainerConfig(max_duration=Duration.steps(STEPS), ...).with_callback("batch_size", changes)''')


def _cannot(plan: Plan) -> Iterator[str]:
    sizes = (segment.batch * plan.seq_len for segment in plan.segments)
    for before, after in itertools.pairwise(sizes):
        if max(before, after) % min(before, after):
            change = f"from {before} to {after} tokens"
            yield f"OLMo-core changes the batch size by integer factors, not {change}"


def _nearest(plan: Plan) -> Plan:
    """Return the plan with each batch size rounded to a multiple or divisor of the previous."""
    batches = [plan.segments[0].batch]
    for segment in plan.segments[1:]:
        before = batches[-1]
        factor = segment.batch / batches[-1]
        parts = [before // k for k in range(1, min(before, 4096) + 1) if before % k == 0]
        choices = [before * max(math.floor(factor), 1), before * math.ceil(factor), *parts]
        batches.append(min(choices, key=lambda batch: abs(math.log(batch / segment.batch))))
    return with_batches(plan, (s.start_tokens for s in plan.segments), batches)


OLMO_CORE = Export(
    "OLMo-core", program=_OLMO_CORE, counts="OLMo-core", cannot=_cannot, nearest=_nearest
)


_TORCHTITAN = Template('''\
from dataclasses import dataclass

from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.config import TrainingConfig
from torchtitan.trainer import Trainer

$plan


class PlanRate(LRSchedulersContainer):
    """The plan's LR, as a factor of the optimizer's lr of 1."""

    @dataclass(kw_only=True, slots=True)
    class Config(LRSchedulersContainer.Config):
        def build(self, *, optimizers, training_steps):
            return LRSchedulersContainer(optimizers, rate)


class FollowPlan(Trainer):
    """Accumulate to the plan's batch size, in micro-batches over all data-parallel ranks."""

    @dataclass(kw_only=True, slots=True)
    class Config(Trainer.Config):
        pass

    def __init__(self, config):
        super().__init__(config)
        self.micro = batch(0) // self.gradient_accumulation_steps

    def train_step(self, data_iterator):
        self.gradient_accumulation_steps, rest = divmod(batch(self.step - 1), self.micro)
        assert not rest, f"{batch(self.step - 1)} must be a multiple of {self.micro}"
        super().train_step(data_iterator)


training = TrainingConfig(global_batch_size=batch(0), seq_len=SEQ_LEN, steps=STEPS)
optimizer, lr_scheduler = default_adamw(**ADAMW), PlanRate.Config()
# FollowPlan.Config(training=training, optimizer=optimizer, lr_scheduler=lr_scheduler, ...)''')

TORCHTITAN = Export("torchtitan", program=_TORCHTITAN)
