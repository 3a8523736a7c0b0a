"""Costs of runs before they start: tokens trained and evaluated, FLOPs, device hours."""

from collections.abc import Sequence
from dataclasses import dataclass

from bss.errors import check_type
from bss.schedules.plan import Plan
from bss.sweeps.grid import longest
from bss.training.run_config import RunConfig
from bss.units import format_tokens


@dataclass(frozen=True)
class Cost:
    """The cost of some distinct runs.

    Attributes:
        runs: Number of runs.
        trained: Training tokens. A forked run counts from its fork point.
        evaluated: Held-out tokens evaluated, counted for the weights and for each average.
        flops: FLOPs of all matrix products.
    """

    runs: int
    trained: int
    evaluated: int
    flops: float

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, {format_tokens(self.trained)} tokens trained, "
            f"{format_tokens(self.evaluated)} evaluated, {self.flops:.2g} FLOPs"
        )


def estimate_cost(runs: Sequence[RunConfig]) -> Cost:
    """Return the cost of a list of runs, without reading data.

    A larger token budget continues a smaller one, so that only the largest of an id is paid for.

    Args:
        runs: Runs as values, e.g. those that `bss.sweeps.sweep.planned` returns.

    Returns:
        Number of runs, tokens trained and evaluated, and FLOPs; its text has all four.

    Raises:
        InputError: If a token budget contains no step.

    Examples:
        >>> from bss.sweeps.setup import Setup, planned_run
        >>> print(estimate_cost([planned_run(Setup())]))
        1 runs, 999424 tokens trained, 1540096 evaluated, 1.3e+12 FLOPs
    """
    check_type("runs", runs, Sequence, "a list of runs")
    for run in runs:
        check_type("runs", run, RunConfig, "runs as bss.RunConfig")
    runs = longest(runs)
    trained = 0
    evaluated = 0
    flops = 0.0
    for run in runs:
        plan = run.plan()
        tokens = plan.tokens - run.start
        held_out = _held_out(run, plan)
        trained += tokens
        evaluated += held_out
        flops += tokens * run.model.training_flops_per_token(run.data.seq_len)
        flops += held_out * run.model.forward_flops_per_token(run.data.seq_len)
    return Cost(len(runs), trained, evaluated, flops)


def _held_out(run: RunConfig, plan: Plan) -> int:
    by_steps = run.evaluation.every_steps and plan.steps // run.evaluation.every_steps
    along = (len(run.evaluation_tokens()) + by_steps) * run.evaluation.tokens
    return (1 + len(run.averages)) * (along + run.evaluation.test_tokens)


def hours(cost: Cost, peak_flops: float, mfu: float) -> float:
    """Return the expected hours of a device at an MFU (share of its peak FLOPs)."""
    return cost.flops / (peak_flops * mfu) / 3600
