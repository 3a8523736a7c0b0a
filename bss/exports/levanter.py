"""Export to Levanter: YAML with the batch schedule and the LR in steps of the plan.

marin-levanter 0.2.227: `optim/config.py` and `schedule.py`.
"""

from collections.abc import Iterator

from bss.exports.base import (
    Export,
    adam,
    differences,
    lengths,
    peak,
    rate_by_steps,
    shape_of,
    stages,
)
from bss.schedules.plan import Plan
from bss.schedules.rates import Rate


def _yaml(plan: Plan) -> Iterator[str]:
    yield "trainer:"
    yield f"  num_train_steps: {plan.steps}"
    yield "  train_batch_size:"
    yield from (f"    - {{start: {s.start_step}, value: {s.batch}}}" for s in plan.segments)
    yield "optimizer:"
    yield "  type: adam"
    yield from adam(plan, "  beta1: {!r}", "  beta2: {!r}", "  weight_decay: {!r}")
    if rate := stages(plan):
        yield from _rate(plan, rate)


def _rate(plan: Plan, rate: Rate) -> Iterator[str]:
    def steps(count: int) -> str:
        # Levanter reads numbers up to 1 as a fraction of the run, so one step needs care.
        return str(count) if count != 1 else repr(1.5 / plan.steps)

    warmup, decay = lengths(plan, rate)
    yield f"  learning_rate: {peak(plan, rate)!r}"
    yield f"  warmup: {steps(warmup)}"
    yield f"  min_lr_ratio: {rate.floor!r}"
    yield f"  lr_schedule: {shape_of(rate) if decay else 'constant'}"
    if decay:
        yield f"  decay: {steps(decay)}"
    yield from differences(plan, rate, "Levanter", "at a step's start")


LEVANTER = Export("Levanter", _yaml, cannot=lambda plan: rate_by_steps(plan, "Levanter"))
