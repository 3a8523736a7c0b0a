"""Stretches: a schedule's stages as sequences of equal steps, by position.

A stage begins at the first step that starts at or after its position. If lengths of sequences
change, it begins at a whole sequence of its length (derived here). Only this module decides where.
Everything is exact, in Python integers.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from bss.errors import InputError
from bss.units import format_tokens


class Stages(Protocol):
    """The part of a `bss.schedules.batch.BatchSchedule` that these functions read."""

    @property
    def starts(self) -> tuple[int, ...]:
        """Positions of the stages, in tokens."""
        ...

    @property
    def batches(self) -> tuple[int, ...]:
        """Batch sizes in sequences."""
        ...

    @property
    def seq_lens(self) -> tuple[int, ...]:
        """Tokens per sequence of each stage; empty without lengths."""
        ...

    def stage(self, number: int) -> str:
        """Return a stage as text."""
        ...


@dataclass(frozen=True)
class Stretch:
    """Consecutive equal steps.

    Attributes:
        start: position of the first step, in tokens.
        batch: sequences per step.
        seq_len: tokens per sequence.
        steps: number of steps; infinite for the last stage of a schedule.
    """

    start: int
    batch: int
    seq_len: int
    steps: float

    @property
    def size(self) -> int:
        """Tokens per step."""
        return self.batch * self.seq_len

    def count(self, unit: str) -> float:
        """Return its number of "steps" or "samples"."""
        return self.steps if unit == "steps" else self.steps * self.batch


def stretches(schedule: Stages, seq_len: int, start: int = 0) -> Iterator[Stretch]:
    """Yield the stretches of a schedule from a position on; the last one has no end.

    Args:
        schedule: batch sizes, with or without lengths.
        seq_len: tokens per sequence, if the schedule has no lengths.
        start: position of the first step, in tokens.

    Raises:
        InputError: If a stage begins at no whole sequence of its length.
    """
    starts = schedule.starts
    position = start
    stage = bisect_right(starts, position) - 1
    while True:
        batch = schedule.batches[stage]
        length = schedule.seq_lens[stage] if schedule.seq_lens else seq_len
        size = batch * length
        if stage + 1 == len(starts):
            yield Stretch(position, batch, length, math.inf)
            return
        end, stage = _next_stage(schedule, stage, position, size)
        yield Stretch(position, batch, length, (end - position) // size)
        position = end


def _next_stage(schedule: Stages, stage: int, position: int, size: int) -> tuple[int, int]:
    """Return where steps of `size` tokens end after a position, and the stage that begins there."""
    following = stage + 1
    end = position
    while True:
        end += max(0, -((end - schedule.starts[following]) // size)) * size
        due = bisect_right(schedule.starts, end) - 1
        if not schedule.seq_lens:
            return end, due
        wait = _steps_to_whole(end, size, schedule.seq_lens[due])
        if wait is None:
            raise InputError(
                f"batch: the stage {schedule.stage(due)} never begins at a whole sequence: steps "
                f"of {size} tokens from {end} reach no multiple of {schedule.seq_lens[due]}; "
                "change a batch or a length"
            )
        whole = end + wait * size
        if due + 1 == len(schedule.starts) or whole < schedule.starts[due + 1]:
            return whole, due
        following = due + 1


def _steps_to_whole(position: int, size: int, length: int) -> int | None:
    """Return the fewest steps of `size` after which a position is a multiple of a length."""
    common = math.gcd(size, length)
    if position % common:
        return None
    rest = length // common
    return (-(position // common) * pow(size // common, -1, rest)) % rest


def stretches_within(schedule: Stages, seq_len: int, budget: int, start: int = 0) -> list[Stretch]:
    """Return the stretches whose steps end at or before a budget, in order."""
    found: list[Stretch] = []
    for one in stretches(schedule, seq_len, start):
        steps = min(one.steps, (budget - one.start) // one.size)
        if steps < 1:
            break
        # A stage that begins and ends within one step is never seen, so the batch past it can be
        # the one before it.
        if found and (found[-1].batch, found[-1].seq_len) == (one.batch, one.seq_len):
            found[-1] = replace(found[-1], steps=found[-1].steps + steps)
        else:
            found.append(replace(one, steps=steps))
        if steps < one.steps:
            break
    return found


def tokens_after(schedule: Stages, seq_len: int, count: int, unit: str) -> int:
    """Return the tokens consumed after a number of "steps" or "samples" from the start.

    Examples:
        >>> from bss.schedules.batch import BatchSchedule
        >>> ramp = BatchSchedule((0, 1000), (2, 4))
        >>> tokens_after(ramp, 100, 6, "steps"), tokens_after(ramp, 100, 11, "samples")
        (1400, 1100)
    """
    left = count
    for one in stretches(schedule, seq_len):
        if left <= one.count(unit):
            return one.start + left * (one.size if unit == "steps" else one.seq_len)
        left -= int(one.count(unit))
    raise AssertionError("the last stretch has no end")


def tokens_of_last(
    schedule: Stages, seq_len: int, count: int, unit: str, budget: int, field: str
) -> int:
    """Return the tokens of the last "steps" or "samples" that end at or before a budget.

    Raises:
        InputError: If the budget holds fewer.

    Examples:
        >>> from bss.schedules.batch import BatchSchedule
        >>> tokens_of_last(BatchSchedule((0, 1000), (2, 4)), 100, 2, "steps", 1850, "decay")
        800
    """
    found = stretches_within(schedule, seq_len, budget)
    total = int(sum(one.count(unit) for one in found))
    if count > total:
        raise InputError(
            f"{field}: {count} {unit} are more than the {total} of {format_tokens(budget)} tokens; "
            "shorten it"
        )
    end = found[-1].start + int(found[-1].steps) * found[-1].size if found else 0
    return end - tokens_after(schedule, seq_len, total - count, unit)
