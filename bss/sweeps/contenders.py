"""Compared runs: single batch sizes, schedules and late switches, with equal LR tuning.

A schedule is trained at the LRs of the grid's batch size nearest to its mean batch size. All
compared runs therefore have the same number of trials.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from bss.held_out import EVAL, TEST, HeldOutColumn
from bss.sweeps.branching import decay_branch
from bss.training.run_config import RunConfig
from bss.training.run_directory import RunStatus


@dataclass(frozen=True)
class BatchRates:
    """A batch size in sequences and the LRs to try at it."""

    batch: int
    rates: tuple[float, ...]


@dataclass(frozen=True)
class Contender:
    """A run in a comparison.

    Attributes:
        name: Name of the arm, shared by all its seeds and LRs; unique within its size and group.
        role: "constant", "average", "schedule" or "late".
        lr_phase: LR phase of the final loss: "constant", "decayed" or "cosine".
        run: The run to train.
        size: Name of the model size; empty if there is one.
        group: Name of the group of arms; empty if there is one.
    """

    name: str
    role: str
    lr_phase: str
    run: RunConfig
    size: str = ""
    group: str = ""

    @property
    def label(self) -> str:
        """Size, group and name in one text, as registrations name runs."""
        return " | ".join(filter(None, (self.size, self.group, self.name)))


def arm_columns(contenders: Sequence[Contender]) -> dict[str, list[str]]:
    """Return the columns that name arms: `name`, or size, group and arm where arms have them."""
    names = [one.name for one in contenders]
    if not any(one.size or one.group for one in contenders):
        return {"name": names}
    columns = {
        "size": [one.size for one in contenders],
        "group": [one.group for one in contenders],
        "arm": names,
    }
    return {column: values for column, values in columns.items() if any(values)}


def decaying(contender: Contender, decay: float) -> Contender:
    """Return the run with its LR decayed to zero over its last part, forked from itself."""
    return replace(contender, lr_phase="decayed", run=decay_branch(contender.run, decay))


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
    columns = arm_columns(contenders)
    for i, contender in enumerate(contenders):
        run = contender.run
        status = statuses[run.id]
        half_lives = {"last": ""}
        if contender.lr_phase == "constant" and run.averages:
            half_lives["averaged"] = run.averages[0]
        rows += [
            {column: values[i] for column, values in columns.items()}
            | {
                "role": contender.role,
                "batch": str(run.schedule.batch),
                "lr_phase": contender.lr_phase,
                "weights": weights,
                "run": run.id,
                "seed": run.seed,
                "tokens": status.tokens,
                "steps": status.step,
                "eval_loss": status.losses[str(HeldOutColumn("loss", EVAL, half_life))],
                "test_loss": status.losses[str(HeldOutColumn("loss", TEST, half_life))],
                "peak_lr": run.optimizer.lr,
            }
            for weights, half_life in half_lives.items()
        ]
    return pd.DataFrame(rows)
