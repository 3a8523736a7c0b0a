"""Python of a plan, for trainers whose batch and rate code sets, step by step.

It is self-contained: batch and rate of every step are functions of the step, equal to the plan's.
"""

from collections.abc import Iterator
from string import Template
from typing import Any, cast

from bss.schedules.plan import Plan

HEAD = "import math\nfrom bisect import bisect_right"
"""What the functions import, before a program."""

FUNCTIONS = Template('''\
STEPS, SEQ_LEN = $steps, $seq_len
FIRST = $first  # step of each batch
TOKENS = $tokens  # consumed before it
BATCH = $batch  # sequences
SCALE = $scale  # of the rate, by the batch
ADAMW = $adamw  # the rate is the scheduler's


def batch(step):
    """Sequences of a step, counted from 0."""
    return BATCH[bisect_right(FIRST, step) - 1]


def rate(step):
    """Learning rate of a step, counted from 0: the schedule at its middle token."""
    i = bisect_right(FIRST, step) - 1
$rate''')


def functions(plan: Plan) -> str:
    """The plan's numbers, batch(step) and rate(step)."""
    segments, settings = plan.segments, plan.at(0).settings
    betas, weight_decay = (settings.beta1, settings.beta2), settings.weight_decay
    return FUNCTIONS.substitute(
        steps=plan.steps,
        seq_len=plan.seq_len,
        first=[s.start_step for s in segments],
        tokens=[s.start_tokens for s in segments],
        batch=[s.batch for s in segments],
        scale=[plan.coupling.settings(1.0, s.batch, plan.seq_len).lr for s in segments],
        adamw={"lr": 1.0, "betas": betas, "weight_decay": weight_decay},
        rate="\n".join(f"    {line}" for line in _rate(plan)),
    )


def _rate(plan: Plan) -> Iterator[str]:
    if plan.rate is None:
        yield "return SCALE[i]  # the plan's multiple of a rate that is yours"
        return
    yield "size = BATCH[i] * SEQ_LEN"
    yield "middle = TOKENS[i] + (step - FIRST[i]) * size + size / 2"
    yield from cast(Any, plan.rate).code()
    yield "return value * SCALE[i]"
