"""Compared runs: constant batch sizes, schedules and late switches, tuned alike.

A schedule is trained at the learning rates of the batch size in the grid that is nearest its mean
batch size, so that none has more trials than another.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from bss.held_out import EVAL, TEST, HeldOutColumn
from bss.sweeps.branching import decay_branch
from bss.sweeps.grid import overlay, seeded
from bss.training.run_config import RunConfig
from bss.training.run_directory import RunStatus

Rates = Mapping[int, tuple[float, ...]]
"""The learning rates that each batch of a grid is tried at."""


@dataclass(frozen=True)
class BatchRates:
    """One constant batch, in sequences, and the learning rates it is tried at."""

    batch: int
    rates: tuple[float, ...]


@dataclass(frozen=True)
class Contender:
    """A run in a comparison.

    Attributes:
        name: what runs of other seeds and rates share.
        role: "constant", "average", "schedule" or "late".
        ending: of its learning rate: "constant", "decay" or "cosine".
        run: what is trained.
    """

    name: str
    role: str
    ending: str
    run: RunConfig


def rates_near(rates: Rates, batch: float) -> tuple[float, ...]:
    """The rates of the batch in the grid that is nearest in ratio."""
    return rates[min(rates, key=lambda known: abs(math.log(known / batch)))]


def constants(
    base: RunConfig, batch: int, rates: Sequence[float], seeds: Sequence[int]
) -> Iterator[RunConfig]:
    """One constant-rate run of a batch for each rate and seed."""
    for changes in seeded({"seed": seeds, "optimizer.lr": rates}):
        yield overlay(base, {**changes, "schedule.batch": str(batch)})


def constant_contenders(base: RunConfig, rates: Rates, seeds: Sequence[int]) -> Iterator[Contender]:
    """Return every constant batch size of the grid, at its learning rates, for each seed."""
    for batch in sorted(rates):
        for run in constants(base, batch, rates[batch], seeds):
            yield Contender(f"constant {batch}", "constant", "constant", run)


def decaying(contender: Contender, decay: float) -> Contender:
    """The contender with the last part of its tokens decayed to zero, from its own checkpoint."""
    return replace(contender, ending="decay", run=decay_branch(contender.run, decay))


def contender_table(
    contenders: Sequence[Contender], statuses: Mapping[str, RunStatus]
) -> pd.DataFrame:
    """Final losses at equal tokens; the test split is one no choice was made on.

    A run at constant rate counts a second time with its first weight average.

    Args:
        contenders: whose runs finished.
        statuses: of their runs, by id.
    """
    rows = []
    for contender in contenders:
        run, status = contender.run, statuses[contender.run.id]
        half_lives = {contender.ending: ""}
        if contender.ending == "constant" and run.averages:
            half_lives["averaged"] = run.averages[0]
        rows += [
            {
                "name": contender.name,
                "role": contender.role,
                "batch": str(run.schedule.batch),
                "ending": ending,
                "run": run.id,
                "seed": run.seed,
                "tokens": status.tokens,
                "steps": status.step,
                "eval_loss": status.losses[str(HeldOutColumn("loss", EVAL, half_life))],
                "test_loss": status.losses[str(HeldOutColumn("loss", TEST, half_life))],
                "peak_lr": run.optimizer.lr,
            }
            for ending, half_life in half_lives.items()
        ]
    return pd.DataFrame(rows)
