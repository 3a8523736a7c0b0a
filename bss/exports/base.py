"""What an export is: how a plan is written for one trainer, as settings or as Python.

The Python is self-contained: batch and rate of every step are functions of the step, equal to the
plan's.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from string import Template
from typing import Any, cast

from bss.schedules.plan import Plan
from bss.schedules.rates import Rate

BESIDES = ("beta1", "beta2", "weight_decay")


@dataclass(frozen=True)
class Export:
    """How plans are written for a trainer; one in each file of this room.

    Attributes:
        name: of what sets its batch, in comments.
        lines: of a plan from position 0, without those that every export has.
        program: Python to put before them, in which `$plan` stands for `functions`, whose
            imports come first; it has any rate with `code`. Without one the lines are settings,
            of rates that have `stages`.
        counts: what counts micro-batches, where the trainer does: it switches only where that
            count is a multiple of the new number, and another switch is told.
    """

    name: str
    lines: Callable[[Plan], Iterable[str]] = lambda plan: ()
    program: Template | None = None
    counts: str = ""

    def changes(self, plan: Plan) -> Iterator[str]:
        """Comments on what the plan changes with the batch and the trainer does not."""
        yield from self._unaligned(plan)
        for field in BESIDES if self.program else ("lr", *BESIDES):
            settings = [plan.coupling.settings(1.0, s.batch, plan.seq_len) for s in plan.segments]
            values = [getattr(at_batch, field) for at_batch in settings]
            if len(set(values)) > 1:
                what = "lr as multiples of the rate" if field == "lr" else field
                each = ", ".join(f"{value:.6g}" for value in values)
                yield f"# {self.name} cannot change this at a batch change; {what} would be {each}."

    def _unaligned(self, plan: Plan) -> Iterator[str]:
        """Comments on switches at which the count of micro-batches is no multiple of the new."""
        for segment in plan.segments[1:] if self.counts else ():
            before = segment.start_tokens // plan.seq_len
            if before % segment.batch:
                near = -(-before // segment.batch) * segment.batch * plan.seq_len
                yield (
                    f"# {self.counts} cannot switch to {segment.batch} after {before} sequences, "
                    f"which are no multiple of it. Plan the switch for {near} tokens."
                )


def adam(plan: Plan, *forms: str) -> Iterator[str]:
    """Lines of the first beta1, beta2 and weight decay, each written into a trainer's own form."""
    first = plan.at(0).settings
    values = (getattr(first, field) for field in BESIDES)
    yield from (form.format(value) for form, value in zip(forms, values, strict=True))


def stages(plan: Plan) -> Rate | None:
    """Warm-up, stable part and decay of the plan's rate, where it is made of these."""
    return getattr(plan.rate, "stages", None)


def peak(plan: Plan, rate: Rate) -> float:
    """The peak rate at the plan's first batch."""
    return plan.coupling.settings(rate.peak, plan.segments[0].batch, plan.seq_len).lr


def moves_at_a_change(plan: Plan, rate: Rate) -> bool:
    """Whether the batch changes within the warm-up or the decay."""
    stable = (rate.warmup, rate.total - rate.decay if rate.decay else plan.budget)
    return any(not stable[0] <= s.start_tokens <= stable[1] for s in plan.segments[1:])


def lengths(plan: Plan, rate: Rate) -> tuple[int, int]:
    """Steps of the warm-up and of the decay, for trainers whose settings say the rate in steps."""
    warmup = plan.step_at(min(int(rate.warmup), plan.budget))
    start = plan.step_at(min(int(rate.total - rate.decay), plan.budget))
    return warmup, plan.steps - start if rate.decay else 0


def shape_of(rate: Rate) -> str:
    """The shape of the decay, of the two that these trainers share."""
    return rate.shape if rate.shape in ("linear", "cosine") else "linear"


def differences(plan: Plan, rate: Rate, trainer: str, where: str) -> Iterator[str]:
    """Comments on what differs from the plan; `where` in a step its rate is taken."""
    if rate.decay and (shape := shape_of(rate)) != rate.shape:
        yield f"# {trainer} has no {rate.shape} decay; the decay here is {shape}."
    if rate.decay and rate.total != plan.tokens:
        yield f"# {trainer} ends the decay at the last step; the plan, at {rate.total}."
    if moves_at_a_change(plan, rate):
        yield f"# {trainer}'s rate moves by steps; the plan's by tokens, across a batch change."
    edges = (rate.warmup, rate.total - rate.decay if rate.decay else 0)
    if any(plan.tokens_at(plan.step_at(int(edge))) != edge for edge in edges if edge < plan.tokens):
        yield f"# {trainer}'s lengths of the rate are whole steps, rounded."
    yield f"# {trainer} takes the rate {where}; the plan, at its middle."


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
