"""A plan as functions of the step, which may be traced, e.g. for the schedules of optax.

Steps are integers and stay exact; positions may be above 2^31 tokens. In JAX the LR is evaluated at
positions in its default float: in float32 the LR is within 1e-6 of the peak.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from bss.arrays import array_module
from bss.errors import InputError


class Staged(Protocol):
    """The part of a `bss.schedules.plan.Plan` that these functions read."""

    @property
    def segments(self) -> Sequence[Any]:
        """Its stages, each with its batch, first step and first token."""
        ...

    @property
    def rate(self) -> Any:
        """The LR as a function of tokens, or None."""
        ...

    @property
    def coupling(self) -> Any:
        """The rule of the LR at another batch."""
        ...

    @property
    def seq_len(self) -> int:
        """Tokens per sequence."""
        ...


def lr_schedule(plan: Staged) -> Callable[[Any], Any]:
    """Return the LR of a plan as a function of the step; see `Plan.lr_schedule`."""
    rate = plan.rate
    if rate is None:
        raise InputError("lr_schedule: the plan has no learning rate; give `bss.plan` an lr")
    segments = plan.segments
    sizes = [segment.size for segment in segments]
    scales = [plan.coupling.settings(1.0, s.batch, s.seq_len).lr for s in segments]

    def lr(step: Any) -> Any:
        xp, step, firsts, stage = _stage(plan, step)

        def of_stage(values: list[Any]) -> Any:
            return xp.asarray(values, dtype=float)[stage]

        middle = (step - xp.asarray(firsts)[stage]) + 0.5
        tokens = of_stage([s.start_tokens for s in segments]) + middle * of_stage(sizes)
        return rate(tokens) * of_stage(scales)

    return lr


def every_k_schedule(plan: Staged, micro_batch: int) -> Callable[[Any], Any]:
    """Return the micro-batches of a step as a function; see `Plan.every_k_schedule`."""
    counts = [segment.batch // micro_batch for segment in plan.segments]

    def every_k(step: Any) -> Any:
        xp, _, _, stage = _stage(plan, step)
        return xp.asarray(counts)[stage]

    return every_k


def _stage(plan: Staged, step: Any) -> tuple[Any, Any, np.ndarray, Any]:
    """Return the array module, the step as an array, first steps of stages, the step's stage."""
    xp = array_module(step)
    step = xp.asarray(step)
    if not np.issubdtype(step.dtype, np.integer):
        raise InputError(f"step: {step.dtype} given; write a whole number, counted from 0")
    # A count of 32 bits never comes to a stage that starts after 2^31 steps.
    last = np.iinfo(step.dtype).max
    firsts = np.array([s.start_step for s in plan.segments if s.start_step <= last], step.dtype)
    return xp, step, firsts, xp.searchsorted(firsts[1:], step, side="right")
