"""Schedules drawn from a seed, so that nobody chose those that a law is tested on (derived here).

Only `random.Random.random` is asked: Python promises that its numbers stay what they are.
"""

import random
from dataclasses import dataclass

from bss.errors import InputError, check
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig
from bss.schedules.rates import RATES

KINDS = ("constant", "switch up", "switch down", "stages up", "stages down")
ENDINGS = ("constant", "wsd", "cosine")
STAGES = (3, 4)
"""Of a schedule of several stages, as far as there are batches."""


@dataclass(frozen=True)
class Ranges:
    """What schedules are drawn from.

    Attributes:
        tokens: of every schedule.
        batches: in sequences, three at least; those of a schedule are drawn without repeats.
        peaks: the least and the greatest peak learning rate, log-uniform between them.
        switches: the first and the last share of the tokens at which a batch changes, the same.
        warmup: linear, in tokens.
        decay: of the rates that have one, as a share of the tokens.

    Raises:
        InputError: on construction, if one of them is out of range.
    """

    tokens: int
    batches: tuple[int, ...]
    peaks: tuple[float, float]
    switches: tuple[float, float] = (0.1, 0.9)
    warmup: int = 0
    decay: float = 0.2

    def __post_init__(self) -> None:
        check(self.tokens >= 1, "tokens", self.tokens, "a positive count")
        few = len(set(self.batches)) < max(3, len(self.batches))
        check(not few and min(self.batches) >= 1, "batches", self.batches, "three or more")
        (low, high), (first, last) = self.peaks, self.switches
        check(0 < low <= high, "peaks", self.peaks, "two positive rates, the lower first")
        check(0 < first <= last < 1, "switches", self.switches, "two shares, the lower first")
        check(0 < self.decay < 1, "decay", self.decay, "a share between 0 and 1")


@dataclass(frozen=True)
class Drawn:
    """A schedule that was drawn, with the peak of its learning rate.

    Attributes:
        name: its number, kind and ending.
        ending: of its rate, one of ENDINGS.
        peak_lr: the peak of its rate.
        schedule: batch and rate, as a run takes them.
    """

    name: str
    ending: str
    peak_lr: float
    schedule: ScheduleConfig


def draw(ranges: Ranges, seed: int, count: int = 24) -> tuple[Drawn, ...]:
    """So many (schedule, peak) pairs; kinds and endings go round in turn.

    Examples:
        >>> drawn = draw(Ranges(500_000, (1, 2, 4, 8), (1e-3, 8e-3)), seed=0, count=2)
        >>> [(one.name, str(one.schedule.batch), one.peak_lr) for one in drawn]
        [('01 constant, constant', '2', 0.00579), ('02 switch up, wsd', '0:1 92.9K:8', 0.0051)]
    """
    if count < 1:
        raise InputError(f"count: {count} given; write 1 or more")
    chance = random.Random(seed)
    return tuple(_drawn(ranges, chance, number) for number in range(count))


def _drawn(ranges: Ranges, chance: random.Random, number: int) -> Drawn:
    kind, ending = KINDS[number % len(KINDS)], ENDINGS[number % len(ENDINGS)]
    peak = _between(chance, ranges.peaks)
    decay = round(ranges.decay * ranges.tokens) if "decay" in RATES[ending].takes else 0
    schedule = ScheduleConfig(
        ranges.tokens, _batch(ranges, chance, kind), ending, ranges.warmup, decay
    )
    return Drawn(f"{number + 1:02} {kind}, {ending}", ending, float(f"{peak:.3g}"), schedule)


def _batch(ranges: Ranges, chance: random.Random, kind: str) -> BatchSchedule:
    """A batch schedule of a kind; its batches rise or fall, its switches keep three digits."""
    shape, _, way = kind.partition(" ")
    several = STAGES[int(len(STAGES) * chance.random())]
    stages = {"constant": 1, "switch": 2, "stages": min(several, len(ranges.batches))}[shape]
    batches = sorted(ranges.batches, key=lambda _: chance.random())[:stages]
    places = [ranges.tokens * _between(chance, ranges.switches) for _ in range(stages - 1)]
    starts = sorted({0, *(int(float(f"{place:.3g}")) for place in places)})
    ordered = sorted(batches, reverse=way == "down")
    return BatchSchedule(tuple(starts), tuple(ordered[: len(starts)]))


def _between(chance: random.Random, ends: tuple[float, float]) -> float:
    low, high = ends
    return low * (high / low) ** chance.random()
