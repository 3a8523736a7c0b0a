"""The Export class: how a plan is written for one trainer, as settings or as Python.

The Python is self-contained: batch size and LR are functions of the step, with the same values as
in the plan.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from string import Template
from typing import Any, cast

from bss.errors import InputError
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import Plan, Segment, resolve
from bss.schedules.rates import WarmupStableDecay
from bss.units import format_tokens

BESIDES = ("beta1", "beta2", "weight_decay")


@dataclass(frozen=True)
class Export:
    """The format in which plans are written for a trainer. Each module here defines one.

    Attributes:
        name: Name, in comments, of the component that sets the batch size.
        lines: Return the lines for a plan, without the lines that all exports share.
        program: Python placed before these lines. `$plan` is replaced by the result of
            `functions`. It supports every LR schedule that has `code`. Without a program the
            lines are settings, which support LR schedules that have `stages`.
        counts: Name of the component that counts micro-batches, if the trainer counts them. Such
            a trainer switches only at counts that are multiples of the new accumulation.
        cannot: Return one text for each part of a plan that the trainer does not support. They
            are added to the general checks. Without `approximate` they are errors, else comments.
        nearest: Return the plan with the nearest batch schedule that the trainer can follow.
        sets_all: Whether it sets LR, betas and weight decay at every step.
        lengths: Whether it follows a plan in which the lengths of sequences change.
        text: Return the whole export of any plan. Replaces all other attributes but `lengths`.
    """

    name: str
    lines: Callable[[Plan], Iterable[str]] = lambda plan: ()
    program: Template | None = None
    counts: str = ""
    cannot: Callable[[Plan], Iterable[str]] = lambda plan: ()
    nearest: Callable[[Plan], Plan] = lambda plan: plan
    sets_all: bool = False
    lengths: bool = False
    text: Callable[[Plan], str] | None = None

    def check_lengths(self, plan: Plan, trainer: str) -> None:
        """Raise InputError if lengths of sequences change and the trainer cannot follow them."""
        if not plan.seq_lens or self.lengths:
            return
        name = self.name or trainer
        texts = [f"sequences of {length} tokens" for length in plan.seq_lens]
        raise InputError(
            f"export {trainer}: {name} has one length of sequences per run, and the plan has "
            f"{', '.join(str(n) for n in dict.fromkeys(plan.seq_lens))}; restart from a checkpoint "
            f"{_restarts(plan, texts)}, or export csv or python, which follow it"
        )

    def refusals(self, plan: Plan) -> list[str]:
        """Return one text for each part of the plan that the trainer does not support."""
        return [*self.cannot(plan), *self._unaligned(plan), *self._fixed(plan)]

    def approximated(self, plan: Plan) -> Plan:
        """Return the plan with the nearest batch sizes that the trainer can follow."""
        plan = self.nearest(plan)
        return _aligned(plan) if any(self._unaligned(plan)) else plan

    def _fixed(self, plan: Plan) -> Iterator[str]:
        """Yield a text for each setting that only the plan changes with the batch size."""
        if self.sets_all:
            return
        scheduled = stages(plan)
        lr = 1.0 if scheduled is None else scheduled.peak
        settings = [plan.coupling.settings(lr, s.batch, plan.seq_len) for s in plan.segments]
        for field in BESIDES if self.program else ("lr", *BESIDES):
            values = [getattr(at_batch, field) for at_batch in settings]
            if len(set(values)) > 1:
                factor = "the LR factor" if scheduled is None else "the peak LR"
                what = factor if field == "lr" else field
                each = ", ".join(f"{value:.6g}" for value in values)
                settings_of = [f"{what} {value:.6g}" for value in values]
                yield (
                    f"{self.name} cannot change {what} with the batch: it stays {values[0]:.6g}, "
                    f"not {each}; to follow the plan, restart from a checkpoint "
                    f"{_restarts(plan, settings_of)}"
                )

    def _unaligned(self, plan: Plan) -> Iterator[str]:
        """Yield a text for each switch after a count that is not a multiple of the new size."""
        for segment in plan.segments[1:] if self.counts else ():
            before = segment.start_tokens // plan.seq_len
            if before % segment.batch:
                yield (
                    f"{self.counts} cannot switch to {segment.batch} after {before} sequences, "
                    "which is not a multiple of it"
                )


def _restarts(plan: Plan, settings: list[str]) -> str:
    """Return where a trainer is restarted with another setting, and with which."""
    places = zip(itertools.pairwise(settings), plan.segments[1:], strict=True)
    return ", and ".join(
        f"at step {segment.start_step} ({format_tokens(segment.start_tokens)} tokens) with {after}"
        for (before, after), segment in places
        if before != after
    )


def with_batches(plan: Plan, starts: Iterable[int], batches: Iterable[int]) -> Plan:
    """Return the plan with another batch schedule. Starts are in tokens."""
    schedule = BatchSchedule(tuple(starts), tuple(batches))
    return resolve(schedule, plan.budget, plan.seq_len, rate=plan.rate, coupling=plan.coupling)


def _aligned(plan: Plan) -> Plan:
    """Move each switch to the next multiple of the batch sizes before and after it."""
    starts = [0]
    batches = [plan.segments[0].batch]
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
    """Yield lines with the beta1, beta2 and weight decay that the plan sets.

    Values are those at the first batch size. `forms` are the trainer's formats of the three.
    """
    first = plan.at(0).settings
    for field, form in zip(BESIDES, forms, strict=True):
        if field in plan.coupling.given:
            yield form.format(getattr(first, field))


def stages(plan: Plan) -> WarmupStableDecay | None:
    """Return warm-up, stable part and decay of the plan's LR schedule, or None."""
    return getattr(plan.rate, "stages", None)


def peak(plan: Plan, rate: WarmupStableDecay) -> float:
    """Return the peak LR at the plan's first batch size."""
    return plan.coupling.settings(rate.peak, plan.segments[0].batch, plan.seq_len).lr


def moves_at_a_change(plan: Plan, rate: WarmupStableDecay) -> bool:
    """Return whether the batch size changes within the warm-up or the decay."""
    stable = (rate.warmup, rate.total - rate.decay if rate.decay else plan.budget)
    return any(not stable[0] <= s.start_tokens <= stable[1] for s in plan.segments[1:])


def lengths(plan: Plan, rate: WarmupStableDecay) -> tuple[int, int]:
    """Return the steps of warm-up and decay, for trainers with LR settings in steps."""
    warmup = plan.step_at(min(int(rate.warmup), plan.budget))
    start = plan.step_at(min(int(rate.total - rate.decay), plan.budget))
    return warmup, plan.steps - start if rate.decay else 0


def shape_of(rate: WarmupStableDecay) -> str:
    """Return the shape of the decay if these trainers support it, else "linear"."""
    return rate.shape if rate.shape in ("linear", "cosine") else "linear"


def differences(plan: Plan, rate: WarmupStableDecay, trainer: str, where: str) -> Iterator[str]:
    """Yield comments on rounding to steps; `where` is the position in a step of its LR."""
    if rate.decay and rate.total != plan.tokens:
        yield f"# {trainer} ends the decay at the last step; the plan, at {rate.total}."
    edges = (rate.warmup, rate.total - rate.decay if rate.decay else 0)
    if any(plan.tokens_at(plan.step_at(int(edge))) != edge for edge in edges if edge < plan.tokens):
        yield f"# {trainer} rounds warm-up and decay to whole steps."
    yield f"# {trainer} evaluates the LR {where}; the plan, at its middle."


def rate_by_steps(plan: Plan, trainer: str) -> Iterator[str]:
    """Yield the unsupported parts of the plan's LR for a trainer with LR settings in steps."""
    if not (rate := stages(plan)):
        return
    if rate.decay and (shape := shape_of(rate)) != rate.shape:
        yield f"{trainer} has no {rate.shape} decay: it becomes {shape}"
    if rate.decay and rate.total > plan.budget and rate.total - rate.decay < plan.tokens:
        yield f"{trainer} ends the decay with the run, the plan at {rate.total} tokens"
    if moves_at_a_change(plan, rate):
        yield f"{trainer} changes the LR by steps, the plan by tokens, across a batch change"


HEAD = "import math\nfrom bisect import bisect_right"
"""Imports of the functions, placed before a program."""

FUNCTIONS = Template('''\
STEPS, SEQ_LEN = $steps, $seq_len
FIRST = $first  # first step of each batch size
TOKENS = $tokens  # consumed before that step
BATCH = $batch  # batch sizes in sequences
SCALE = $scale  # LR factor of each batch size
ADAMW = $adamw
$peak

def batch(step):
    """Return the batch size of a step in sequences. Steps count from 0."""
    return BATCH[bisect_right(FIRST, step) - 1]


def rate(step):
    """Return the LR of a step: the schedule at its middle token. Steps count from 0."""
    i = bisect_right(FIRST, step) - 1
$rate''')


def size_of_stage(plan: Plan) -> str:
    """Return Python for the tokens of a step in stage i."""
    return "BATCH[i] * SEQ_LEN[i]" if plan.seq_lens else "BATCH[i] * SEQ_LEN"


LENGTH = '''


def seq_len(step):
    """Return the tokens per sequence of a step. Steps count from 0."""
    return SEQ_LEN[bisect_right(FIRST, step) - 1]'''


def functions(plan: Plan, *, sets_all: bool = False) -> str:
    """Return Python with the plan's numbers and the functions batch(step) and rate(step).

    Its ADAMW has the settings at the first batch size, or with `sets_all` those of each one.
    """
    segments = plan.segments
    adamw = f"{ {'lr': 1.0, **_adamw(plan, segments[0])} }  # the scheduler sets the LR"
    if sets_all:
        adamw = f"{[_adamw(plan, s) for s in segments]}  # more settings of each batch size"
    text = FUNCTIONS.substitute(
        steps=plan.steps,
        seq_len=[*plan.seq_lens] or plan.seq_len,
        first=[s.start_step for s in segments],
        tokens=[s.start_tokens for s in segments],
        batch=[s.batch for s in segments],
        scale=[plan.coupling.settings(1.0, s.batch, s.seq_len).lr for s in segments],
        adamw=adamw,
        peak="" if plan.rate else "PEAK = None  # the plan has no LR: write your peak LR here\n",
        rate="\n".join(f"    {line}" for line in _rate(plan)),
    )
    return text + LENGTH if plan.seq_lens else text


def _adamw(plan: Plan, stage: Segment) -> dict[str, Any]:
    """Return the betas and weight decay that the plan sets in a stage, by PyTorch's names."""
    settings = plan.coupling.settings(1.0, stage.batch, stage.seq_len)
    given: dict[str, Any] = {}
    if {"beta1", "beta2"} & {*plan.coupling.given}:
        given["betas"] = (settings.beta1, settings.beta2)
    if "weight_decay" in plan.coupling.given:
        given["weight_decay"] = settings.weight_decay
    return given


def _rate(plan: Plan) -> Iterator[str]:
    if plan.rate is None:
        yield "assert PEAK, 'the plan has no learning rate: set PEAK to your peak LR'"
        yield "return PEAK * SCALE[i]"
        return
    yield f"size = {size_of_stage(plan)}"
    yield "middle = TOKENS[i] + (step - FIRST[i]) * size + size / 2"
    yield from cast(Any, plan.rate).code()
    yield "return value * SCALE[i]"
