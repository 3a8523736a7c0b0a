"""Who competes: contenders at each ending, and where they end beside the best constant.

An ending is what the learning rate does at last. The best constant is chosen by held-out loss; what
is compared is the loss on the test split, on which no choice was made (derived here). Runs of one
seed share initialisation and data order, so differences are paired by seed.

A win is a difference that both tests of bss.contests.contrasts show at 95% after Holm; "no worse"
is an adjusted interval that ends at 0.003 nats or below.
"""

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bss.contests.contrasts import Contrast, contrasts
from bss.errors import InputError
from bss.points.crossings import mean
from bss.schedules.batch import BatchSchedule

NO_WORSE = 0.003
CONSTANT_ROLES = ("constant", "average")
ROLES = (*CONSTANT_ROLES, "schedule", "late", "policy")
VERDICTS = {-1: "lower", 0: "undecided", 1: "higher"}
Key = tuple[str, str]
"""A contender by its name and ending."""


@dataclass(frozen=True)
class RateEnding:
    """What the learning rate does at last: as a title, in a sentence, and in two words."""

    title: str
    when: str
    short: str


ENDINGS = {
    "constant": RateEnding("constant learning rate", "at constant learning rate", "constant rate"),
    "averaged": RateEnding(
        "constant learning rate, weights averaged",
        "at constant learning rate with averaged weights",
        "averaged weights",
    ),
    "decay": RateEnding("decayed to zero", "after the decay to zero", "decayed"),
    "cosine": RateEnding("cosine to zero", "after the cosine to zero", "cosine"),
}


@dataclass(frozen=True)
class Standing:
    """One contender at one ending, over its seeds.

    Attributes:
        name, batch: of the contender, and its batch schedule as text.
        role: one of ROLES.
        losses: final loss of each seed in nats per token: of the test split where there is one.
        eval_loss: mean held-out loss.
        tokens, steps: consumed and taken by each run.
        best: whether it is the best constant, which differences are taken to.
        effect: loss minus that of the best constant, judged by both tests among all that grow their
            batch, or among the constants; None where there is no constant.
    """

    name: str
    batch: str
    role: str
    losses: dict[int, float]
    eval_loss: float
    tokens: int
    steps: int
    best: bool
    effect: Contrast | None

    @property
    def loss(self) -> float:
        """The mean of losses."""
        return float(np.mean(list(self.losses.values())))

    @property
    def difference(self) -> float:
        """Loss minus that of the best constant, mean over paired seeds."""
        return math.nan if self.effect is None else self.effect.estimate

    @property
    def error(self) -> float | None:
        """Half the adjusted 95% interval of the difference; None with fewer than two seeds."""
        if self.effect is None or self.effect.high is None:
            return None
        return self.effect.high - self.effect.estimate

    @property
    def verdict(self) -> str:
        """Against the best constant: "wins", "loses", "no worse" or "undecided"."""
        if self.best:
            return "best constant"
        if self.effect is None or self.effect.high is None:
            return "undecided"
        if self.effect.sign:
            return "wins" if self.effect.sign < 0 else "loses"
        return "no worse" if self.effect.high <= NO_WORSE else "undecided"


@dataclass(frozen=True)
class Contest:
    """Final losses of contenders, a row a run and ending.

    Attributes:
        table: columns name, batch (a schedule as text), ending (of ENDINGS), role (of ROLES), seed,
            tokens, steps, eval_loss, test_loss, peak_lr, and whatever else differs.

    Raises:
        InputError: where losses are asked for, a seed of a contender stands twice.
    """

    table: pd.DataFrame

    @cached_property
    def endings(self) -> list[str]:
        """Those that were run, in the order of ENDINGS."""
        return [ending for ending in ENDINGS if ending in set(self.table["ending"])]

    @cached_property
    def compared(self) -> str:
        """The column that is compared: test_loss, or eval_loss where a run has no test loss."""
        tested = np.isfinite(self.table["test_loss"].to_numpy(float)).all()
        return "test_loss" if tested else "eval_loss"

    @cached_property
    def _losses(self) -> dict[str, pd.DataFrame]:
        keys, tables = ["name", "ending", "seed"], {}
        for name, ending, seed in self.table.loc[self.table.duplicated(keys), keys].to_numpy()[:1]:
            raise InputError(
                f"seed {seed} of {name!r}, ending {ending!r}, stands twice; keep one run of it, or "
                "one rate"
            )
        for ending, rows in self.table.groupby("ending", sort=False):
            pairs = {"index": "name", "columns": "seed", "values": self.compared}
            tables[str(ending)] = rows.pivot_table(**pairs, sort=False)  # type: ignore[call-overload]
        return tables

    def losses(self, ending: str) -> pd.DataFrame:
        """The compared losses at an ending: [contender, seed], in the table's order."""
        return self._losses.get(ending, pd.DataFrame())

    def tuned(self, by: Sequence[str] = ("name", "ending")) -> "Contest":
        """Each contender at its best rate: the lowest held-out loss, averaged over seeds.

        `trials` is how many rates that minimum was taken over.

        Args:
            by: the columns that tell a contender.
        """
        tables = []
        for _, rows in self.table.groupby(list(by), sort=False):
            of_rates = rows.groupby("peak_lr", sort=False)["eval_loss"]
            losses = {lr: sum(some) / len(some) for lr, some in of_rates}
            best = min(losses, key=lambda rate: losses[rate])
            tables.append(rows[rows["peak_lr"] == best].assign(trials=len(losses)))
        return Contest(pd.concat(tables, ignore_index=True))

    def at_rate(self, rate: float) -> "Contest":
        """The runs at one peak rate."""
        return Contest(self.table.loc[np.isclose(self.table["peak_lr"], rate)])

    def paired(self, a: Key, b: Key) -> pd.Series:
        """Loss of one contender less that of another, by the seeds that both have."""
        rows = [self.losses(ending).loc[name] for name, ending in (a, b)]
        return (rows[0] - rows[1]).dropna()

    def contrasts(self, ending: str, pairs: Sequence[Key]) -> dict[Key, Contrast]:
        """One contender of an ending less another, for a family of pairs of names."""
        return contrasts(self.losses(ending), pairs)

    def of(self, ending: str) -> dict[str, dict[Any, Any]]:
        """One row of each contender of an ending, with its schedule parsed as `schedule`."""
        rows = self.table.loc[self.table["ending"] == ending].drop_duplicates("name")
        parsed = rows.to_dict("records")
        for row in parsed if "batch" in rows else ():
            row["schedule"] = BatchSchedule.parse(str(row["batch"]), total=int(row["tokens"]))
        return {row["name"]: row for row in parsed}

    def runs(self, name: str, ending: str) -> str:
        """What tells a contender's runs from others, of their ids; "" where there are none."""
        rows = self.table[(self.table["name"] == name) & (self.table["ending"] == ending)]
        ids = " ".join(sorted(rows["run"].astype(str))) if "run" in rows else ""
        return hashlib.sha256(f"{ending} {ids}".encode()).hexdigest()[:12] if ids else ""

    def best_constant(self, ending: str) -> str | None:
        """The constant of an ending that has the lowest held-out loss; None where it has none."""
        held_out = {n: rows["eval_loss"].mean() for n, rows in self._constants(ending).items()}
        return min(held_out, key=lambda name: held_out[name], default=None)

    def against_best(
        self, ending: str, *, constants: bool = False
    ) -> tuple[str, dict[str, Contrast]]:
        """The best constant of an ending, and others less it, one family of tests.

        The best of several was lucky, so that what ties with it seems to lose. A loss is shown only
        where it is one too against constants chosen for each seed by the other seeds.

        Args:
            ending: one of ENDINGS, with a constant.
            constants: the other constants; else all that grow their batch.
        """
        best, losses = str(self.best_constant(ending)), self.losses(ending)
        flat = self._constants(ending)
        names = [name for name in losses.index if (name in flat) == constants]
        effects = contrasts(losses, [(name, best) for name in names])
        chosen = _chosen_elsewhere(flat)
        if set(chosen.values()) - {best}:
            row = pd.Series({seed: losses.loc[name, seed] for seed, name in chosen.items()})
            both = pd.concat([losses, row.to_frame("").T])
            fair = contrasts(both, [(name, "") for name in names])
            for name in names:
                if effects[name, best].estimate > 0:
                    effects[name, best] = _surer(effects[name, best], fair[name, ""])
        return best, {name: one for (name, _), one in effects.items()}

    def standings(self, ending: str) -> list[Standing]:
        """The contenders of an ending, lowest loss first; empty where it has none."""
        rows, losses, best = [], self.losses(ending), self.best_constant(ending)
        effects: dict[str, Contrast] = {}
        for constants in (False, True) if best is not None else ():
            effects |= self.against_best(ending, constants=constants)[1]
        for name, group in self._groups(ending).items():
            first = group.iloc[0]
            texts = name, str(first["batch"]), str(first["role"])
            own, eval_loss = losses.loc[name].dropna().to_dict(), float(np.mean(group["eval_loss"]))
            spent = int(first["tokens"]), int(first["steps"])
            rows.append(Standing(*texts, own, eval_loss, *spent, name == best, effects.get(name)))
        return sorted(rows, key=lambda standing: standing.loss)

    def by_ending(self) -> dict[str, list[Standing]]:
        """The standings of every ending that was run."""
        return {ending: self.standings(ending) for ending in self.endings}

    def differences(self, names: Sequence[str]) -> pd.DataFrame:
        """Final losses of the contenders of these names less those of every other at an ending.

        With one peak_lr for each name and ending. Those of an ending are one family of tests.

        Returns:
            Columns ending, name, peak_lr, against, against_lr, difference, error (2 standard
            errors), seeds, verdict.
        """
        rows = []
        for ending in dict.fromkeys(self.table["ending"]):
            losses, lr = self.losses(ending), {n: r["peak_lr"] for n, r in self.of(ending).items()}
            pairs = [(a, b) for a, b in itertools.product(names, lr) if a in lr and a != b]
            for (name, other), contrast in contrasts(losses, pairs).items():
                apart = mean((losses.loc[name] - losses.loc[other]).dropna().tolist())
                if apart.seeds:
                    compared = (ending, name, lr[name], other, lr[other])
                    rows.append((*compared, *astuple(apart), VERDICTS[contrast.sign]))
        columns = ["ending", "name", "peak_lr", "against", "against_lr"]
        return pd.DataFrame(rows, columns=[*columns, "difference", "error", "seeds", "verdict"])

    def _groups(self, ending: str) -> dict[str, pd.DataFrame]:
        """The rows of each contender at an ending, in the table's order."""
        rows = self.table.loc[self.table["ending"] == ending]
        return {str(name): group for name, group in rows.groupby("name", sort=False)}

    def _constants(self, ending: str) -> dict[str, pd.DataFrame]:
        groups = self._groups(ending).items()
        return {name: rows for name, rows in groups if rows["role"].iloc[0] in CONSTANT_ROLES}


def _chosen_elsewhere(constants: Mapping[str, pd.DataFrame]) -> dict[int, str]:
    """For each seed the constant of the lowest held-out loss over the other seeds."""
    losses = {name: rows.set_index("seed")["eval_loss"] for name, rows in constants.items()}
    held_out = pd.DataFrame(losses).dropna(axis=1)
    if len(held_out) < 2:
        return {}
    others = held_out.sum() - held_out
    return {int(seed): str(name) for seed, name in others.idxmin(axis=1).items()}  # type: ignore[call-overload]


def _surer(one: Contrast, fair: Contrast) -> Contrast:
    """A contrast with the larger p of each test, of its own and of another's."""
    if one.p is None or fair.p is None:
        return one
    tests = ("p", "p_adjusted", "pooled_p", "pooled_p_adjusted")
    return replace(one, **{test: max(getattr(one, test), getattr(fair, test)) for test in tests})
