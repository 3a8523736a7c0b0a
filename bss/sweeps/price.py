"""What runs cost before they start: tokens trained and evaluated, FLOPs, hours of a device."""

from collections.abc import Sequence
from dataclasses import dataclass

from bss.sweeps.grid import distinct
from bss.training.config import RunConfig
from bss.units import format_tokens


@dataclass(frozen=True)
class Price:
    """The cost of some runs, equal ones once.

    Attributes:
        runs: how many.
        trained: tokens they train on, each from its own start.
        evaluated: held-out tokens they evaluate, once for the weights and each average.
        flops: of the matrix products of both.
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


def price(runs: Sequence[RunConfig]) -> Price:
    """What a list of runs costs; no data are read."""
    runs = distinct(runs)
    trained, evaluated = [_trained(run) for run in runs], [_evaluated(run) for run in runs]
    flops = sum(
        run.model.training_flops_per_token(run.data.seq_len) * tokens
        + run.model.forward_flops_per_token(run.data.seq_len) * held_out
        for run, tokens, held_out in zip(runs, trained, evaluated, strict=True)
    )
    return Price(len(runs), sum(trained), sum(evaluated), flops)


def hours(flops: float, peak_flops: float, mfu: float) -> float:
    """Hours of one device that reaches a part `mfu` of its peak FLOP/s."""
    return flops / (peak_flops * mfu) / 3600


def _trained(run: RunConfig) -> int:
    return run.plan().tokens - run.start


def _evaluated(run: RunConfig) -> int:
    along = len(run.evaluation_tokens()) * run.evaluation.tokens
    return (1 + len(run.averages)) * (along + run.evaluation.test_tokens)
