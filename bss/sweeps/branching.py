"""Runs that share what they have in common: each branches as late as it can.

Two runs are one until their batches or their rates part, so a schedule is trained from the last
checkpoint that another run of the same seed and rate keeps before that point (derived here).
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import SETTINGS
from bss.sweeps.grid import overlay
from bss.training.run_config import Parent, RunConfig


def branch(run: RunConfig, parent: RunConfig, at: int) -> RunConfig:
    """The run as a branch of another, from its first step boundary at or after `at` tokens."""
    return replace(run, parent=Parent(parent.id, parent.plan().next_boundary(at)))


def late_switch(trunk: RunConfig, at: int, batch: int) -> RunConfig:
    """A branch of a constant trunk that goes on with another batch."""
    switch = BatchSchedule.late_switch(trunk.schedule.batch.constant_batch, batch, at)
    return branch(overlay(trunk, {"schedule.batch": str(switch)}), trunk, at)


def decay_start(tokens: int, decay: float) -> int:
    """Where the last part of a run's tokens begins."""
    return tokens - round(decay * tokens)


def decayed(run: RunConfig, decay: float) -> RunConfig:
    """The run from the start, with the last part of its tokens decayed to zero."""
    run.schedule.check_decay()
    whole = run.schedule.tokens
    return overlay(run, {"schedule.decay": whole - decay_start(whole, decay), "parent": None})


def decay_branch(run: RunConfig, decay: float) -> RunConfig:
    """The run with the last part of its tokens decayed to zero, from its own checkpoint."""
    return branch(decayed(run, decay), run, decay_start(run.schedule.tokens, decay))


def shared(
    runs: Sequence[RunConfig], known: Sequence[RunConfig], forks: Sequence[int]
) -> list[RunConfig]:
    """The runs in order, each branching from a known run or from one before it."""
    trained = list(known)
    for run in runs:
        trained.append(branched(run, trained, forks))
    return trained[len(known) :]


def branched(run: RunConfig, known: Sequence[RunConfig], forks: Sequence[int]) -> RunConfig:
    """The run as a branch of the known run it shares most with; itself where it shares nothing.

    Args:
        run: from the start, without a parent.
        known: trained before it.
        forks: where known runs keep checkpoints, in tokens.
    """
    whole = run.schedule.tokens
    best = (0, False)
    latest = run
    for other in known:
        if _but_schedule(other) != _but_schedule(run):
            continue
        ours, theirs = run.schedule.batch, other.schedule.batch
        one_rate = run.schedule.one_rate(other.schedule)
        last = min(one_rate, agreement(ours, theirs), other.schedule.tokens)
        at = max((fork for fork in forks if other.start < fork <= last), default=0)
        same = ours == theirs
        if same and one_rate == inf and whole <= other.schedule.tokens:
            return other
        if (at, same) > best:
            best = (at, same)
            latest = branch(run, other, at)
    return latest


def agreement(first: BatchSchedule, second: BatchSchedule) -> float:
    """The count up to which two schedules are one; infinite where they are equal."""
    starts = sorted({*first.starts, *second.starts})
    return next((s for s in starts if first(s) != second(s)), inf)


def _but_schedule(run: RunConfig) -> RunConfig:
    """What two runs must share besides batches and rates: what follows these counts too."""
    schedule = run.schedule.without(("batch", "rate", *SETTINGS))
    return replace(run, schedule=schedule, parent=None)
