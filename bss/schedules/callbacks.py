"""A Plan as Python for trainers whose batch and rate a callback sets: Hugging Face, DeepSpeed.

The code is self-contained: batch and rate of every step are functions of the step, equal to the
plan's. Both trainers count micro-batches and step where the count is a multiple of the number
accumulated, so that a switch must come at a multiple of the new batch; another is told. Read in:

- transformers 5.23.0, `trainer.py`: `_inner_training_loop` (do_sync_step), `on_step_end`. A slow
  test trains by it, where it is installed.
- DeepSpeed, `runtime/engine.py`, in parts, and never run here: `set_train_batch_size`,
  `is_gradient_accumulation_boundary`.
"""

from collections.abc import Iterator

from bss.schedules.plan import Plan
from bss.schedules.rates import Rate

SHAPES = {
    "linear": "left",
    "1-sqrt": "1 - math.sqrt(1 - left)",
    "cosine": "(1 - math.cos(math.pi * left)) / 2",
}
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
# optimizer = AdamW(..., lr=1.0): the rate is LambdaLR's.
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
# optimizer = AdamW(..., lr=1.0): the rate is LambdaLR's.
# scheduler = LambdaLR(optimizer, rate)
# deepspeed.initialize(optimizer=optimizer, lr_scheduler=scheduler, config=config, ...)
# A step that overflows in fp16 is counted by the engine and not by LambdaLR.'''


def huggingface(plan: Plan) -> Iterator[str]:
    """Python for Hugging Face's Trainer: a callback and the rate for LambdaLR."""
    yield "import math"
    yield "from bisect import bisect_right"
    yield ""
    yield "from torch.optim.lr_scheduler import LambdaLR"
    yield "from transformers import TrainerCallback"
    yield from (*_functions(plan), HUGGINGFACE, *_unaligned(plan, "Trainer"))
    if any(s.batch < plan.segments[0].batch for s in plan.segments):
        told = plan.steps * plan.segments[0].batch
        yield f"# The batch shrinks: Trainer ends the epoch early below {told} sequences of data."


def deepspeed(plan: Plan) -> Iterator[str]:
    """Python for DeepSpeed: what to call before each step, and the rate for LambdaLR."""
    yield "import math"
    yield "from bisect import bisect_right"
    yield ""
    yield "from torch.optim.lr_scheduler import LambdaLR"
    yield from (*_functions(plan), DEEPSPEED, *_unaligned(plan, "DeepSpeed's engine"))


def _functions(plan: Plan) -> Iterator[str]:
    """batch(step) and rate(step), steps counted from 0."""
    segments, rate = plan.segments, plan.rate
    scales = [plan.coupling.settings(1.0, s.batch, plan.seq_len).lr for s in segments]
    yield ""
    yield f"STEPS, SEQ_LEN = {plan.steps}, {plan.seq_len}"
    yield f"FIRST = {[s.start_step for s in segments]}  # step of each batch"
    yield f"TOKENS = {[s.start_tokens for s in segments]}  # consumed before it"
    yield f"BATCH = {[s.batch for s in segments]}  # sequences"
    yield f"SCALE = {scales}  # of the rate, by the batch"
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
    if not isinstance(rate, Rate):
        yield "    return SCALE[i]  # the plan's multiple of a rate that is yours"
        return
    yield "    size = BATCH[i] * SEQ_LEN"
    yield "    middle = TOKENS[i] + (step - FIRST[i]) * size + size / 2"
    yield f"    value = {rate.peak!r} * SCALE[i]"
    if rate.warmup:
        yield f"    value *= min(middle / {rate.warmup!r}, 1.0)"
    if rate.decay:
        yield f"    left = min(max(({rate.total!r} - middle) / {rate.decay!r}, 0.0), 1.0)"
        if rate.shape == "exponential":
            yield f"    value *= {rate.floor!r} ** (1 - left)"
        else:
            yield f"    left = {SHAPES[rate.shape]}"
            yield f"    value *= {rate.floor!r} + (1 - {rate.floor!r}) * left"
    yield "    return value"


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
