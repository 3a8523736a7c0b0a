"""Export to DeepSpeed: Python with a function to call before each step, and a LambdaLR.

DeepSpeed 0.19.8, `runtime/engine.py`: `set_train_batch_size`, `is_gradient_accumulation_boundary`.
It counts micro-batches, so a switch must be at a multiple of the new batch size.
"""

from string import Template

from bss.exports.base import Export

PROGRAM = Template('''
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

DEEPSPEED = Export("The callback", program=PROGRAM, counts="DeepSpeed's engine")
