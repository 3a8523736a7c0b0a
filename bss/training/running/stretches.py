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

FLOPS = 2.7e11
"""Of one dispatch, some 4 s of a CPU core: so long a run goes on after it is asked to stop."""


class Stretches:
    """Steps of one batch size without an event between them, as many as FLOPS allow.

    The number of steps follows from the plan alone (derived here).

    Attributes:
        most: how many at once.
    """

    def __init__(
        self,
        plan: Plan,
        first: int,
        events: frozenset[int] = frozenset(),
        most: int = 1,
        flops_per_token: float = 0.0,
    ):
        """Start at the plan's step `first`; end stretches at `events`, in tokens.

        `flops_per_token` is that of all runs together; 0 sets no limit but `most`.
        """
        self.most, self._plan, self._first, self._events = most, plan, first, events
        self._flops = flops_per_token * plan.seq_len

    def __iter__(self) -> Iterator[range]:
        plan, step = self._plan, self._first
        while step < plan.steps:
            allowed = int(FLOPS / max(self._flops * plan.at(step).batch, 1.0))
            end = min(step + max(1, min(self.most, allowed)), plan.steps)
            ends = (k for k in range(step + 1, end) if plan.tokens_at(k) in self._events)
            end = next(ends, end)
            yield range(step, end)
            step = end


def steps_at_once(execution: Execution, mesh: Mesh) -> int:
    """The most that a run's device takes by itself: what was asked for, else many on a CPU."""
    if several() or mesh.size > 1 or not execution.checkpoint_seconds:
        return 1
    return execution.steps or (STEPS if mesh.devices.flat[0].platform == "cpu" else 1)
