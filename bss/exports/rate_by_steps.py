"""The plan's rate for trainers whose settings say it in steps: lengths, and what differs."""

from collections.abc import Iterator

from bss.exports.base import moves_at_a_change
from bss.schedules.plan import Plan
from bss.schedules.rates import Rate


def lengths(plan: Plan, rate: Rate) -> tuple[int, int]:
    """Steps of the warm-up and of the decay."""
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
