"""How many steps a device takes by itself, from event to event.

A program gives its memory back when it ends, and takes it anew: of CPUs a step of 128 to 256
dimensions spends 10 to 20% of its time on that, and the host has its own work with every call.
Several steps in one call have the bits that they have one by one (tests/training/test_step.py).
"""

from collections.abc import Iterator

from jax.sharding import Mesh

from bss.schedules.plan import Plan
from bss.training.devices.processes import several
from bss.training.execution import Execution

STEPS = 64
"""The most that are taken at once."""

SECONDS = 3.0
"""That they may take: so long a run goes on after it is asked to stop, and once more."""


class Stretches:
    """Steps of one batch without an event between them, as many as take SECONDS.

    A run's first step goes alone; how long those before took says how many come next. A batch that
    is new takes for its size what the last one took, so that inputs are ahead of it.

    Attributes:
        most: how many at once.
    """

    def __init__(self, plan: Plan, first: int, events: frozenset[int] = frozenset(), most: int = 1):
        """From the plan's step `first` on; batches change at `events`, in tokens, among others."""
        self.most, self._plan, self._first, self._events = most, plan, first, events
        self._seconds: dict[int, float] = {}

    def __iter__(self) -> Iterator[range]:
        plan, step = self._plan, self._first
        while step < plan.steps:
            end = min(step + self._count(plan.at(step).batch), plan.steps)
            ends = (k for k in range(step + 1, end) if plan.tokens_at(k) in self._events)
            end = next(ends, end)
            yield range(step, end)
            step = end

    def took(self, batch: int, steps: int, seconds: float) -> None:
        """So long took some steps of a batch."""
        self._seconds[batch] = seconds / steps

    def _count(self, batch: int) -> int:
        if self.most == 1 or not self._seconds:
            return 1
        last = next(reversed(self._seconds))
        seconds = self._seconds.get(batch, self._seconds[last] * batch / last)
        return max(1, min(self.most, int(SECONDS / max(seconds, 1e-9))))


def steps_at_once(execution: Execution, mesh: Mesh) -> int:
    """The most that a run's device takes by itself: what was asked for, else many on a CPU."""
    if several() or mesh.size > 1 or not execution.checkpoint_seconds:
        return 1
    return execution.steps or (STEPS if mesh.devices.flat[0].platform == "cpu" else 1)
