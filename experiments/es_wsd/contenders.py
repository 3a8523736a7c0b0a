"""Who competes in E(S) under WSD: constants, growing schedules and late switches, tuned alike.

Every contender gets three rates: those of the batch in the grid that is nearest its mean batch,
or nearest its first batch where its rate follows the batch (LR × sqrt) or where it branches from
that batch's trunk. So none has more trials than another, and constants are no straw men.
"""

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from bss.errors import InputError
from bss.laws.es.compare import fit_candidate
from bss.laws.es.values import EsFit
from bss.laws.fitting.estimate import Options
from bss.points.crossings import optima
from bss.policies.recommend import follow_measured, law_optimum, recommend
from bss.schedules.batch import BatchSchedule
from bss.sweeps.grid import overlay
from bss.training.config import RunConfig
from experiments.es_curve.__main__ import Contender, late_switch
from experiments.study import say, seeded


def rates_near(rates: dict[int, tuple[float, ...]], batch: float) -> tuple[float, ...]:
    """The rates of the batch in the grid that is nearest in ratio."""
    return rates[min(rates, key=lambda known: abs(math.log(known / batch)))]


def constants(base: RunConfig, batch: int, rates: Sequence[float], seeds: Sequence[int]):
    """One constant-rate run of a batch for each rate and seed."""
    for changes in seeded({"seed": seeds, "optimizer.lr": rates}):
        yield overlay(base, {**changes, "schedule.batch": str(batch)})


def constant_contenders(
    base: RunConfig,
    rates: dict[int, tuple[float, ...]],
    seeds: Sequence[int],
    schedules: Sequence[BatchSchedule],
) -> Iterator[Contender]:
    """Every constant of the grid, and the one with the mean batch of each schedule.

    The mean batch, rounded to whole sequences, takes about as many steps as its schedule.
    """
    horizon = base.schedule.tokens
    averages = {max(1, round(schedule.mean_batch(horizon))) for schedule in schedules}
    for batch in sorted({*rates, *averages}):
        role = "constant" if batch in rates else "average"
        for run in constants(base, batch, rates_near(rates, batch), seeds):
            yield Contender(f"constant {batch}", role, "constant", run)


def growing_contenders(
    base: RunConfig,
    rates: dict[int, tuple[float, ...]],
    seeds: Sequence[int],
    name: str,
    schedule: BatchSchedule,
    couplings: Sequence[str] = ("none",),
) -> Iterator[Contender]:
    """A schedule trained from the start, with its rate kept or following the batch."""
    for coupling in couplings:
        near = (
            schedule.batches[0] if coupling == "sqrt" else schedule.mean_batch(base.schedule.tokens)
        )
        changes = {"schedule.batch": str(schedule), "schedule.lr_coupling": coupling}
        for run in constants(base, schedule.batches[0], rates_near(rates, near), seeds):
            label = f"{name}, LR × sqrt" if coupling == "sqrt" else name
            yield Contender(label, "schedule", "constant", overlay(run, changes))


def late_contenders(
    base: RunConfig,
    rates: dict[int, tuple[float, ...]],
    seeds: Sequence[int],
    schedule: BatchSchedule,
    couplings: Sequence[str] = ("none",),
    name: str = "late",
) -> Iterator[Contender]:
    """A switch from one batch to another, branched from the trunk of the first."""
    (first, last), at = schedule.batches, schedule.starts[1]
    for coupling in couplings:
        for trunk in constants(base, first, rates_near(rates, first), seeds):
            late = late_switch(trunk, at, last)
            label = f"{name} {first} → {last}" + (", LR × sqrt" if coupling == "sqrt" else "")
            run = overlay(late, {"schedule.lr_coupling": coupling})
            yield Contender(label, "late", "constant", run)


def follow_optimum(
    fit: EsFit, measured: pd.DataFrame, tokens: int, stages: int, unit: int
) -> BatchSchedule:
    """B_opt along the loss by a law, or by the measured batches where no law identifies it."""
    try:
        return recommend(fit, tokens, stages, multiple_of=unit)
    except InputError as error:
        say(f"{error}; the best measured batches are followed")
        return follow_measured(measured, tokens, stages, multiple_of=unit)


def surface_optimum(
    measured: pd.DataFrame, tokens: int, settle: float, batches: Sequence[int]
) -> BatchSchedule:
    """The two-stage schedule with the lowest loss by the surface with the Adam clock."""
    clock = fit_candidate(measured, "surface, Adam clock", Options(1))
    return law_optimum(clock, tokens, settle=settle, batches=batches)


def best_batch(measured: pd.DataFrame) -> int:
    """The batch with the fewest tokens to the lowest target."""
    return int(optima(measured)[-1].batch)
