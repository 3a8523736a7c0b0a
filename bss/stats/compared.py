"""Tables of final losses: each run against the best constant-batch run, per LR phase.

The best constant-batch run is chosen by held-out loss; the compared loss is the test loss, if every
run has one. P values are adjusted by Holm within one table.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.stats.paired import Difference, compare

CONSTANT_ROLES = ("constant", "average")
ROLES = (*CONSTANT_ROLES, "schedule", "late", "policy")


class LrPhase(NamedTuple):
    """The LR phase in which a run ends, with its weights: as a title, in two words, in a table."""

    title: str
    short: str
    lr_phase: str
    weights: str = "last"

    @property
    def columns(self) -> dict[str, str]:
        """The columns of a table that name it."""
        return {"lr_phase": self.lr_phase, "weights": self.weights}


LR_PHASES = {
    "constant": LrPhase("constant learning rate", "constant LR", "constant"),
    "averaged": LrPhase(
        "constant learning rate, weights averaged", "averaged weights", "constant", "averaged"
    ),
    "decayed": LrPhase("decayed to zero", "decayed", "decayed"),
    "cosine": LrPhase("cosine to zero", "cosine", "cosine"),
}
"""By name: the value of the column `lr_phase`, or "averaged" for averaged weights."""


def phases_of(table: pd.DataFrame) -> pd.Series:
    """Return the name in LR_PHASES of each row, from its columns lr_phase and weights."""
    return table["lr_phase"].where(table["weights"] != "averaged", "averaged")


@dataclass(frozen=True)
class ComparedRun:
    """One compared run in one LR phase, over its seeds.

    Attributes:
        name, batch: Its name, and its batch schedule as text.
        role: One of ROLES.
        losses: Final loss of each seed in nats per token.
        eval_loss: Mean held-out loss.
        tokens, steps: Consumed and taken by each run.
        best: Whether it is the best constant-batch run.
        to_best: Its loss minus the best constant-batch run's; None without such a run.
    """

    name: str
    batch: str
    role: str
    losses: dict[int, float]
    eval_loss: float
    tokens: int
    steps: int
    best: bool
    to_best: Difference | None

    @property
    def loss(self) -> float:
        """The mean final loss."""
        return float(np.mean(list(self.losses.values())))

    @property
    def difference(self) -> float:
        """Its loss minus the best constant-batch run's, the mean over paired seeds."""
        return math.nan if self.to_best is None else self.to_best.mean

    @property
    def error(self) -> float | None:
        """Half the 95% confidence interval of the difference; None with fewer than two seeds."""
        if self.to_best is None or self.to_best.high is None:
            return None
        return self.to_best.high - self.to_best.mean

    @property
    def result(self) -> str:
        """ "best constant", "lower" or "higher" than that one after Holm, or "inconclusive"."""
        if self.best:
            return "best constant"
        sign = self.to_best.sign if self.to_best else 0
        return {-1: "lower", 0: "inconclusive", 1: "higher"}[sign]


@dataclass(frozen=True)
class Comparison:
    """A table of final losses, one row per run and LR phase.

    Attributes:
        table: Columns `name`, `batch` (a schedule as text), `lr_phase` and `weights` (as in
            LR_PHASES), `role` (a key of ROLES), `seed`, `tokens`, `steps`, `eval_loss`,
            `test_loss`, `peak_lr`, and others.
    """

    table: pd.DataFrame

    @cached_property
    def column(self) -> str:
        """The loss that is compared: test_loss, or eval_loss if a run has no test loss."""
        tested = np.isfinite(self.table["test_loss"].to_numpy(float)).all()
        return "test_loss" if tested else "eval_loss"

    def losses(self, phase: str) -> pd.DataFrame:
        """Return the compared losses of an LR phase, [compared run, seed], in the table's order.

        Raises:
            InputError: If a seed of a compared run occurs twice.
        """
        rows = self.table.loc[phases_of(self.table) == phase]
        for name, seed in rows.loc[rows.duplicated(["name", "seed"]), ["name", "seed"]].to_numpy():
            raise InputError(
                f"{name!r}, LR phase {phase!r}: seed {seed} occurs twice; keep one run, or one "
                "peak LR"
            )
        wide = rows.pivot(index="name", columns="seed", values=self.column)
        return wide.loc[rows["name"].unique()]

    def tuned(self) -> "Comparison":
        """Keep each compared run's best peak LR: the lowest held-out loss, averaged over seeds.

        The column `trials` counts the peak LRs.
        """
        tables = []
        for _, rows in self.table.groupby(["name", "lr_phase", "weights"], sort=False):
            means: Any = rows.groupby("peak_lr", sort=False)["eval_loss"].mean()
            tables.append(rows[rows["peak_lr"] == means.idxmin()].assign(trials=len(means)))
        return Comparison(pd.concat(tables, ignore_index=True))

    def phase(self, phase: str) -> list[ComparedRun]:
        """Return the compared runs of an LR phase, lowest loss first."""
        rows = self.table.loc[phases_of(self.table) == phase]
        losses = self.losses(phase)
        first = rows.drop_duplicates("name").set_index("name")
        held_out = rows.groupby("name", sort=False)["eval_loss"].mean()
        constant = held_out[first["role"].isin(CONSTANT_ROLES)]
        best = constant.idxmin() if len(constant) else None
        others = [(name, best) for name in first.index if name != best]
        to_best = compare(losses, others) if best is not None else {}
        if best is not None:
            to_best[best, best] = Difference(0.0, n=int(losses.loc[best].count()))
        found = [
            ComparedRun(
                str(row.name), str(row["batch"]), str(row["role"]),
                losses.loc[row.name].dropna().to_dict(), float(held_out[row.name]),
                int(row["tokens"]), int(row["steps"]), row.name == best,
                to_best.get((row.name, best)),
            )
            for _, row in first.iterrows()
        ]  # fmt: skip
        return sorted(found, key=lambda one: one.loss)

    def best(self, phase: str) -> str:
        """Return the name of the best constant-batch run of an LR phase."""
        return next(one.name for one in self.phase(phase) if one.best)

    def by_phase(self) -> dict[str, list[ComparedRun]]:
        """Return the compared runs of every LR phase in the table, in the order of LR_PHASES."""
        here = {*phases_of(self.table)}
        return {phase: self.phase(phase) for phase in LR_PHASES if phase in here}
