"""Export to Megatron-LM: command-line flags, one per line, with lengths in samples (sequences).

megatron-core 0.19.2: `training/config/training_config.py`, `core/optimizer_param_scheduler.py`, and
`core/num_microbatches_calculator.py` for the schedule string. Its thresholds are in tokens, rounded
down to samples, and take effect at the first step at or after them.
"""

from collections.abc import Iterator

from bss.exports.base import Export, adam, moves_at_a_change, peak, stages
from bss.schedules.plan import Plan
from bss.schedules.rates import Rate

SHAPES = {"linear": "linear", "1-sqrt": "minus_sqrt", "cosine": "cosine"}


def _flags(plan: Plan) -> Iterator[str]:
    schedule = " ".join(f"{s.start_tokens}:{s.batch}" for s in plan.segments)
    yield f"--seq-length {plan.seq_len}"
    yield f"--train-samples {plan.tokens // plan.seq_len}"
    yield f'--step-batch-size-schedule "{schedule}"'
    yield from adam(plan, "--adam-beta1 {!r}", "--adam-beta2 {!r}", "--weight-decay {!r}")
    if rate := stages(plan):
        yield from _rate(plan, rate)


def _rate(plan: Plan, rate: Rate) -> Iterator[str]:
    """Yield the LR flags. Megatron-LM evaluates the LR at the first sample of a step.

    The plan evaluates it at the middle of a step. To get equal values, the warm-up starts at the
    LR of half a batch, and warm-up and decay end half a batch earlier.
    """
    lr, first, last = peak(plan, rate), plan.segments[0].batch, plan.segments[-1].batch
    warmup = max(int(rate.warmup / plan.seq_len - first / 2), 0)
    total, decay = int(rate.total / plan.seq_len - last / 2), int(rate.decay) // plan.seq_len
    yield f"--lr {lr!r}"
    yield f"--lr-warmup-samples {warmup}"
    if warmup:
        yield f"--lr-warmup-init {lr * first * plan.seq_len / 2 / rate.warmup!r}"
    if rate.decay:
        yield f"--min-lr {rate.floor * lr!r}"
    yield f"--lr-decay-style {'WSD' if rate.decay else 'constant'}"
    yield f"--lr-decay-samples {max(total, warmup + 1)}"  # longer than the warm-up, if unused too
    if rate.decay:
        yield f"--lr-wsd-decay-style {SHAPES.get(rate.shape, 'exponential')}"
        yield f"--lr-wsd-decay-samples {decay}"
    lengths = (rate.warmup, *((rate.total, rate.decay) if rate.decay else ()))
    halves = (first % 2 and rate.warmup, last % 2 and rate.decay)
    if any(length % plan.seq_len for length in lengths) or any(halves):
        yield "# Warm-up and decay are rounded down to whole samples."
    if moves_at_a_change(plan, rate):
        yield "# The batch changes in the warm-up or the decay: LRs are off by up to half a batch."


def _cannot(plan: Plan) -> Iterator[str]:
    rate = stages(plan)
    if rate and rate.decay and rate.shape not in SHAPES:
        yield "Megatron-LM's exponential decay is 2*0.5^x - 1 between lr and min-lr, not floor^x"


MEGATRON = Export("Megatron-LM", _flags, cannot=_cannot)
