"""What runs cost before they start: tokens trained and evaluated, FLOPs, expected hours.

The time is that of the compiled programs (`bss.sweeps.programs`) at the rates that a device reached
(`bss.machines.targets.Reached`); what moves between devices, input and saving come on top.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bss.machines.targets import TARGETS, Reached
from bss.sweeps.grid import distinct
from bss.sweeps.programs import job_of, keys, program_of, read_compiled
from bss.sweeps.setup import EngineConfig
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
        seconds: expected of the machine that the runs are meant for, one after another; None where
            it names none, one that was not measured, or one that a program is not compiled for.
    """

    runs: int
    trained: int
    evaluated: int
    flops: float
    seconds: float | None = None

    def __str__(self) -> str:
        hours = "" if self.seconds is None else f", {self.seconds / 3600:.3g} hours expected"
        return (
            f"{self.runs} runs, {format_tokens(self.trained)} tokens trained, "
            f"{format_tokens(self.evaluated)} evaluated, {self.flops:.2g} FLOPs{hours}"
        )

    def times(self, number: float) -> "Price":
        """Of so many times as much work; runs and tokens stay those of one."""
        seconds = None if self.seconds is None else number * self.seconds
        return dataclasses.replace(self, flops=number * self.flops, seconds=seconds)


def price(runs: Sequence[RunConfig], engine: EngineConfig | None = None) -> Price:
    """What a list of runs costs, on the machine that an engine names; no data are read."""
    runs = distinct(runs)
    trained, evaluated, flops = 0, 0, 0.0
    for run in runs:
        tokens, held_out = run.plan().tokens - run.start, _held_out(run)
        trained, evaluated = trained + tokens, evaluated + held_out
        flops += tokens * run.model.training_flops_per_token(run.data.seq_len)
        flops += held_out * run.model.forward_flops_per_token(run.data.seq_len)
    seconds = _expected(runs, engine) if engine and engine.machine else None
    return Price(len(runs), trained, evaluated, flops, seconds)


ERROR = 0.01
"""Nats that a held-out loss is to be known to; what runs share cancels where they are compared."""


def evaluation(run: RunConfig, error: float) -> str:
    """What a run's held-out losses cost and are worth, given their standard error, for people."""
    tokens, seq_len = run.evaluation.tokens, run.data.seq_len
    spent = _held_out(run) * run.model.forward_flops_per_token(seq_len)
    spent /= price([run]).flops or 1.0  # of a model without matrices
    needed = math.ceil(tokens * (error / ERROR) ** 2 / seq_len) * seq_len
    return (
        f"{format_tokens(tokens)} held-out tokens tell a loss to {error:.2g} nats and take "
        f"{spent:.0%} of the FLOPs; {format_tokens(needed)} tell it to {ERROR}"
    )


def _held_out(run: RunConfig) -> int:
    along = len(run.evaluation_tokens()) * run.evaluation.tokens
    return (1 + len(run.averages)) * (along + run.evaluation.test_tokens)


def _expected(runs: Sequence[RunConfig], engine: EngineConfig) -> float | None:
    """Seconds of runs on the machine; None where they are not known, as of runs side by side."""
    named = engine.machine.partition(":")[0]
    reached = next((target.reached for target in TARGETS if target.name == named), None)
    if reached is None or engine.fleet > 1:
        return None
    programs = read_compiled()
    each = [_of_run(run, engine, reached, programs) for run in runs]
    known = [seconds for seconds in each if seconds is not None]
    return sum(known) if len(known) == len(each) else None


def _of_run(
    run: RunConfig, engine: EngineConfig, reached: Reached, programs: Sequence[dict[str, Any]]
) -> float | None:
    job = job_of(run, engine.execution())
    wanted = [*keys(job, engine.machine)]
    rows = [row for key in wanted if (row := program_of(programs, key))]
    if len(rows) < len(wanted):
        return None
    *steps, evaluation = rows
    by_bucket, ladder = {row["bucket"]: row for row in steps}, job.execution.ladder(run)
    total = _held_out(run) / run.evaluation.tokens * reached.seconds(*_work(evaluation))
    for segment in run.plan().segments:
        bucket = ladder.bucket(segment.batch)
        work = _work(by_bucket[bucket])
        total += segment.steps * reached.seconds(*work, segment.batch // bucket)
    return total


def _work(row: Mapping[str, Any]) -> tuple[float, float]:
    return row["flops"], row["bytes"]


def hours(cost: Price, peak_flops: float, mfu: float) -> float:
    """Expected hours of the machine; else of a device that reaches a part `mfu` of its peak."""
    if cost.seconds is not None:
        return cost.seconds / 3600
    return cost.flops / (peak_flops * mfu) / 3600
