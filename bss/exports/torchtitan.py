"""Export to torchtitan: Python with a trainer that sets the batch size, and an LR scheduler.

torchtitan 0.3.0, `trainer.py` (train_step), `components/optimizer/lr_scheduler.py`.
"""

from string import Template

from bss.exports.base import Export

PROGRAM = Template('''\
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

TORCHTITAN = Export("torchtitan", program=PROGRAM)
