"""Compared runs: single batch sizes, schedules and late switches, with equal LR tuning.

A schedule is trained at the LRs of the grid's batch size nearest to its mean batch size. All
compared runs therefore have the same number of trials.
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
"""The LRs to try at each batch size of a grid."""


@dataclass(frozen=True)
class BatchRates:
    """A batch size in sequences and the LRs to try at it."""

    batch: int
    rates: tuple[float, ...]


@dataclass(frozen=True)
class Contender:
    """A run in a comparison.

    Attributes:
        name: Name that is shared by all its seeds and LRs.
        role: "constant", "average", "schedule" or "late".
        ending: LR phase of the final loss: "constant", "decay" or "cosine".
        run: The run to train.
    """

    name: str
    role: str
    ending: str
    run: RunConfig


def rates_near(rates: Rates, batch: float) -> tuple[float, ...]:
    """Return the LRs of the grid's batch size that is nearest in ratio."""
    return rates[min(rates, key=lambda known: abs(math.log(known / batch)))]


def constants(
    base: RunConfig, batch: int, rates: Sequence[float], seeds: Sequence[int]
) -> Iterator[RunConfig]:
    """Return one constant-LR run of a batch size for each LR and seed."""
    for changes in seeded({"seed": seeds, "optimizer.lr": rates}):
        yield overlay(base, {**changes, "schedule.batch": str(batch)})


def constant_contenders(base: RunConfig, rates: Rates, seeds: Sequence[int]) -> Iterator[Contender]:
    """Yield a run for each batch size of the grid, at each of its LRs and seeds."""
    for batch in sorted(rates):
        for run in constants(base, batch, rates[batch], seeds):
            yield Contender(f"constant {batch}", "constant", "constant", run)


def decaying(contender: Contender, decay: float) -> Contender:
    """Return the run with its LR decayed to zero over its last part, forked from itself."""
    return replace(contender, ending="decay", run=decay_branch(contender.run, decay))


def contender_table(
    contenders: Sequence[Contender], statuses: Mapping[str, RunStatus]
) -> pd.DataFrame:
    """Return final losses at equal tokens. No choice was made on the test split.

    A run at constant LR has a second row for its first weight average.

    Args:
        contenders: Compared runs, all finished.
        statuses: Statuses of the runs by id.
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
