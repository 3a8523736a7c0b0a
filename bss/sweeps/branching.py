"""Share common parts of runs: each run is forked from another one as late as possible.

Two runs are equal until their batch sizes or LRs differ. A schedule is therefore trained from the
last checkpoint before that point of another run with the same seed and LR (derived here).
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import SETTINGS
from bss.sweeps.grid import overlay
from bss.training.run_config import Parent, RunConfig


def branch(run: RunConfig, parent: RunConfig, at: int) -> RunConfig:
    """Return the run forked from `parent` at its first step end at or after `at` tokens."""
    return replace(run, parent=Parent(parent.id, parent.plan().next_boundary(at)))


def late_switch(trunk: RunConfig, at: int, batch: int) -> RunConfig:
    """Return a run forked from a constant base run, with another batch size from there."""
    switch = BatchSchedule.late_switch(trunk.schedule.batch.constant_batch, batch, at)
    return branch(overlay(trunk, {"schedule.batch": str(switch)}), trunk, at)


def decay_start(tokens: int, decay: float) -> int:
    """Return the token count at which the decay starts."""
    return tokens - round(decay * tokens)


def decayed(run: RunConfig, decay: float) -> RunConfig:
    """Return the run from its start, with its LR decayed to zero over its last part."""
    run.schedule.check_decay()
    whole = run.schedule.tokens
    return overlay(run, {"schedule.decay": whole - decay_start(whole, decay), "parent": None})


def decay_branch(run: RunConfig, decay: float) -> RunConfig:
    """Return the run with its LR decayed to zero over its last part, forked from itself."""
    return branch(decayed(run, decay), run, decay_start(run.schedule.tokens, decay))


def shared(
    runs: Sequence[RunConfig], known: Sequence[RunConfig], forks: Sequence[int]
) -> list[RunConfig]:
    """Return the runs in order, each forked from a known or an earlier run if possible."""
    trained = list(known)
    for run in runs:
        trained.append(branched(run, trained, forks))
    return trained[len(known) :]


def branched(run: RunConfig, known: Sequence[RunConfig], forks: Sequence[int]) -> RunConfig:
    """Return the run forked from the known run with the most tokens in common.

    If no known run shares tokens with it, the run is returned unchanged.

    Args:
        run: A run without a parent.
        known: Runs that are trained before it.
        forks: Positions of the checkpoints of known runs, in tokens.
    """
    whole = run.schedule.tokens
    best = (0, False)
    latest = run
    like = _but_schedule(run)
    for other in known:
        if _but_schedule(other) != like:
            continue
        ours = run.schedule.batch
        theirs = other.schedule.batch
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
    """Return the token count up to which two schedules are equal; infinity if always."""
    starts = sorted({*first.starts, *second.starts})
    return next((s for s in starts if first(s) != second(s)), inf)


def _but_schedule(run: RunConfig) -> RunConfig:
    """Return the run without batch sizes, LRs and the settings that depend on them."""
    schedule = run.schedule.without(("batch", "rate", *SETTINGS))
    return replace(run, schedule=schedule, parent=None)
