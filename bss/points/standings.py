"""Where each contender ends at equal tokens, against the best constant of the same ending.

An ending is what the learning rate does at last; tables have it in the column `rate`.

The best constant is chosen by held-out loss; what is compared is the loss on the test split, on
which no choice was made (derived here). Runs of one seed share initialisation and data order, so
differences are paired by seed.

A win is a mean difference beyond 2 standard errors; "no worse" is an upper 90% bound (of Student's
t) of at most 0.003 nats.
"""

import itertools
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
import pandas as pd
from scipy.stats import t as student

from bss.points.contrasts import Contrast, contrasts
from bss.points.crossings import mean

NO_WORSE = 0.003
CONSTANT_ROLES = ("constant", "average")
ROLES = (*CONSTANT_ROLES, "schedule", "late")
VERDICTS = {-1: "lower", 0: "undecided", 1: "higher"}


@dataclass(frozen=True)
class Ending:
    """What the learning rate does at last: as a title, in a sentence, and in two words."""

    title: str
    when: str
    short: str


ENDINGS = {
    "constant": Ending("constant learning rate", "at constant learning rate", "constant rate"),
    "averaged": Ending(
        "constant learning rate, weights averaged",
        "at constant learning rate with averaged weights",
        "averaged weights",
    ),
    "decay": Ending("decayed to zero", "after the decay to zero", "decayed"),
    "cosine": Ending("cosine to zero", "after the cosine to zero", "cosine"),
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
        difference: loss minus that of the best constant, mean over paired seeds.
        error: 2 standard errors of the difference; None with fewer than two seeds, as the next.
        upper: 90% upper bound of the difference.
    """

    name: str
    batch: str
    role: str
    losses: dict[int, float]
    eval_loss: float
    tokens: int
    steps: int
    best: bool
    difference: float
    error: float | None
    upper: float | None

    @property
    def loss(self) -> float:
        """The mean of losses."""
        return float(np.mean(list(self.losses.values())))

    @property
    def verdict(self) -> str:
        """Against the best constant: "wins", "loses", "no worse" or "undecided"."""
        if self.best:
            return "best constant"
        if self.error is None or self.upper is None:
            return "undecided"
        if self.difference + self.error < 0:
            return "wins"
        if self.difference - self.error > NO_WORSE:
            return "loses"
        return "no worse" if self.upper <= NO_WORSE else "undecided"


def compared_loss(contenders: pd.DataFrame) -> str:
    """The column that is compared: test_loss, or eval_loss where a run has no test loss."""
    tested = np.isfinite(contenders["test_loss"].to_numpy(float)).all()
    return "test_loss" if tested else "eval_loss"


def by_ending(contenders: pd.DataFrame) -> dict[str, list[Standing]]:
    """The standings of every ending that was run, in the order of ENDINGS."""
    found = {ending: standings(contenders, ending) for ending in ENDINGS}
    return {ending: rows for ending, rows in found.items() if rows}


def standings(contenders: pd.DataFrame, ending: str) -> list[Standing]:
    """The contenders of an ending, lowest loss first; empty where it has none.

    Args:
        contenders: columns name, batch, rate, seed, tokens, steps, eval_loss, test_loss, role.
        ending: one of ENDINGS.
    """
    rows = contenders[contenders["rate"] == ending]
    column = compared_loss(contenders)
    groups = {str(name): group.set_index("seed") for name, group in rows.groupby("name")}
    constants = [name for name in groups if groups[name]["role"].iloc[0] in CONSTANT_ROLES]
    best = min(constants, key=lambda name: groups[name]["eval_loss"].mean(), default=None)
    found = []
    for name, group in groups.items():
        first, losses = group.iloc[0], group[column]
        apart = mean([] if best is None else (losses - groups[best][column]).dropna().tolist())
        upper = None
        if apart.error is not None:
            upper = apart.value + float(student.ppf(0.9, apart.seeds - 1)) * apart.error / 2
        found.append(
            Standing(
                name=name,
                batch=str(first["batch"]),
                role=str(first["role"]),
                losses=dict(zip(group.index.tolist(), losses.tolist(), strict=True)),
                eval_loss=float(group["eval_loss"].to_numpy(float).mean()),
                tokens=int(first["tokens"]),
                steps=int(first["steps"]),
                best=name == best,
                difference=apart.value,
                error=apart.error,
                upper=upper,
            )
        )
    return sorted(found, key=lambda standing: standing.loss)


def tuned(table: pd.DataFrame, by: Sequence[str] = ("name", "rate")) -> pd.DataFrame:
    """Each contender at its best rate: the lowest held-out loss, averaged over seeds.

    `trials` is how many rates that minimum was taken over.

    Args:
        table: final losses, with columns peak_lr, eval_loss and those of `by`.
        by: the columns that tell a contender.
    """
    kept = []
    for _, rows in table.groupby(list(by), sort=False):
        losses = {
            lr: sum(some) / len(some)
            for lr, some in rows.groupby("peak_lr", sort=False)["eval_loss"]
        }
        best = min(losses, key=lambda rate: losses[rate])
        kept.append(rows[rows["peak_lr"] == best].assign(trials=len(losses)))
    return pd.concat(kept, ignore_index=True)


def differences(contenders: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Final losses of the contenders of these names less those of every other at the same rates.

    Of a table of final losses with one peak_lr for each name and rate.

    Returns:
        Columns rate, name, peak_lr, against, against_lr, difference, error, seeds, verdict.
    """
    column = compared_loss(contenders)
    rows = []
    for rate, some in contenders.groupby("rate", sort=False):
        table = {name: rows.set_index("seed") for name, rows in some.groupby("name", sort=False)}
        for name, other in itertools.product(names, table):
            if name not in table or name == other:
                continue
            ours, theirs = table[name], table[other]
            found = mean((ours[column] - theirs[column]).dropna().tolist())
            if found.seeds:
                lr, against_lr = ours["peak_lr"].iloc[0], theirs["peak_lr"].iloc[0]
                compared = (rate, name, lr, other, against_lr)
                rows.append((*compared, *astuple(found), VERDICTS[found.sign]))
    columns = ["rate", "name", "peak_lr", "against", "against_lr"]
    return pd.DataFrame(rows, columns=[*columns, "difference", "error", "seeds", "verdict"])


def ends(contenders: pd.DataFrame, ending: str) -> pd.DataFrame:
    """The compared losses at an ending: [contender, seed], in the table's order.

    Args:
        contenders: a table of final losses.
        ending: one of ENDINGS.
    """
    rows = contenders[contenders["rate"] == ending]
    column = compared_loss(contenders)
    return rows.pivot_table(index="name", columns="seed", values=column, sort=False)


def against_best(contenders: pd.DataFrame, ending: str) -> tuple[str, dict[str, Contrast]]:
    """The best constant of an ending, and every schedule and late switch less it, one family.

    Args:
        contenders: a table of final losses.
        ending: one of ENDINGS, with a constant.
    """
    rows = contenders[contenders["rate"] == ending]
    constant = rows["role"].isin(CONSTANT_ROLES)
    best = str(rows[constant].groupby("name")["eval_loss"].mean().idxmin())
    pairs = [(str(name), best) for name in rows[~constant]["name"].unique()]
    return best, {
        name: one for (name, _), one in contrasts(ends(contenders, ending), pairs).items()
    }
