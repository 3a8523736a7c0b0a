"""What an export is: how a plan is written for one trainer, as settings or as Python.

The Python is self-contained: batch and rate of every step are functions of the step, equal to the
plan's.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from string import Template
from typing import Any, cast

from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import Plan, resolve
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
            count is a multiple of the new number.
        cannot: what of a plan the trainer cannot do, a text each; with those that every export
            has they refuse the plan, or are comments where an approximation is wanted.
        nearest: the plan with the nearest batch schedule that the trainer can follow.
        text: the whole text, of any plan, in place of all that.
    """

    name: str
    lines: Callable[[Plan], Iterable[str]] = lambda plan: ()
    program: Template | None = None
    counts: str = ""
    cannot: Callable[[Plan], Iterable[str]] = lambda plan: ()
    nearest: Callable[[Plan], Plan] = lambda plan: plan
    text: Callable[[Plan], str] | None = None

    def refusals(self, plan: Plan) -> list[str]:
        """What of the plan the trainer cannot do."""
        return [*self.cannot(plan), *self._unaligned(plan), *self._fixed(plan)]

    def approximated(self, plan: Plan) -> Plan:
        """The plan with the nearest batches that the trainer can follow, where it can."""
        plan = self.nearest(plan)
        return _aligned(plan) if any(self._unaligned(plan)) else plan

    def _fixed(self, plan: Plan) -> Iterator[str]:
        """What the plan changes with the batch and the trainer does not."""
        for field in BESIDES if self.program else ("lr", *BESIDES):
            settings = [plan.coupling.settings(1.0, s.batch, plan.seq_len) for s in plan.segments]
            values = [getattr(at_batch, field) for at_batch in settings]
            if len(set(values)) > 1:
                what = "the rate's factor" if field == "lr" else field
                each = ", ".join(f"{value:.6g}" for value in values)
                yield (
                    f"{self.name} cannot change {what} with the batch: it stays {values[0]:.6g}, "
                    f"not {each}"
                )

    def _unaligned(self, plan: Plan) -> Iterator[str]:
        """Switches at which the count of micro-batches is no multiple of the new number."""
        for segment in plan.segments[1:] if self.counts else ():
            before = segment.start_tokens // plan.seq_len
            if before % segment.batch:
                yield (
                    f"{self.counts} cannot switch to {segment.batch} after {before} sequences, "
                    "which are no multiple of it"
                )


def with_batches(plan: Plan, starts: Iterable[int], batches: Iterable[int]) -> Plan:
    """The plan with another batch schedule, its starts in tokens."""
    schedule = BatchSchedule(tuple(starts), tuple(batches))
    return resolve(schedule, plan.budget, plan.seq_len, rate=plan.rate, coupling=plan.coupling)


def _aligned(plan: Plan) -> Plan:
    """Each switch at the next position that is a multiple of the batches before and after it."""
    starts, batches = [0], [plan.segments[0].batch]
    for segment in plan.segments[1:]:
        while True:
            unit = math.lcm(batches[-1], segment.batch) * plan.seq_len
            start = -(-segment.start_tokens // unit) * unit
            if start > starts[-1]:
                break
            starts.pop()  # it would begin and end at once
            batches.pop()
        starts.append(start)
        batches.append(segment.batch)
    return with_batches(plan, starts, batches)


def adam(plan: Plan, *forms: str) -> Iterator[str]:
    """Lines of those of beta1, beta2 and weight decay that the plan sets, at its first batch.

    Each is written into a trainer's own form.
    """
    first = plan.at(0).settings
    for field, form in zip(BESIDES, forms, strict=True):
        if field in plan.coupling.given:
            yield form.format(getattr(first, field))


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
    """Comments on what is rounded to steps; `where` in a step its rate is taken."""
    if rate.decay and rate.total != plan.tokens:
        yield f"# {trainer} ends the decay at the last step; the plan, at {rate.total}."
    edges = (rate.warmup, rate.total - rate.decay if rate.decay else 0)
    if any(plan.tokens_at(plan.step_at(int(edge))) != edge for edge in edges if edge < plan.tokens):
        yield f"# {trainer}'s lengths of the rate are whole steps, rounded."
    yield f"# {trainer} takes the rate {where}; the plan, at its middle."


def rate_by_steps(plan: Plan, trainer: str) -> Iterator[str]:
    """What of the plan's rate a trainer of two shapes cannot do, whose rate goes by steps."""
    if not (rate := stages(plan)):
        return
    if rate.decay and (shape := shape_of(rate)) != rate.shape:
        yield f"{trainer} has no {rate.shape} decay: it is {shape}"
    if moves_at_a_change(plan, rate):
        yield f"{trainer}'s rate moves by steps, the plan's by tokens, across a batch change"


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
    given, adamw = plan.coupling.given, dict[str, Any](lr=1.0)
    if {"beta1", "beta2"} & {*given}:
        adamw |= {"betas": (settings.beta1, settings.beta2)}
    if "weight_decay" in given:
        adamw |= {"weight_decay": settings.weight_decay}
    return FUNCTIONS.substitute(
        steps=plan.steps,
        seq_len=plan.seq_len,
        first=[s.start_step for s in segments],
        tokens=[s.start_tokens for s in segments],
        batch=[s.batch for s in segments],
        scale=[plan.coupling.settings(1.0, s.batch, plan.seq_len).lr for s in segments],
        adamw=adamw,
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
