"""Where each contender ends at equal tokens, against the best constant of the same ending.

An ending is what the learning rate does at last; tables have it in the column `rate`.

The best constant is chosen by held-out loss; what is compared is the loss on the test split, on
which no choice was made (derived here). Runs of one seed share initialisation and data order, so
differences are paired by seed.

A win is a difference that both tests of bss.points.contrasts show at 95% after Holm; "no worse" is
an adjusted interval that ends at 0.003 nats or below.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np
import pandas as pd

from bss.points.contrasts import Contrast, contrasts
from bss.points.crossings import mean

NO_WORSE = 0.003
CONSTANT_ROLES = ("constant", "average")
ROLES = (*CONSTANT_ROLES, "schedule", "late", "policy")
VERDICTS = {-1: "lower", 0: "undecided", 1: "higher"}


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


def compared_loss(contenders: pd.DataFrame) -> str:
    """The column that is compared: test_loss, or eval_loss where a run has no test loss."""
    tested = np.isfinite(contenders["test_loss"].to_numpy(float)).all()
    return "test_loss" if tested else "eval_loss"


def by_ending(contenders: pd.DataFrame) -> dict[str, list[Standing]]:
    """The standings of every ending that was run, in the order of ENDINGS."""
    every = {ending: standings(contenders, ending) for ending in ENDINGS}
    return {ending: rows for ending, rows in every.items() if rows}


def standings(contenders: pd.DataFrame, ending: str) -> list[Standing]:
    """The contenders of an ending, lowest loss first; empty where it has none.

    Args:
        contenders: columns name, batch, rate, seed, tokens, steps, eval_loss, test_loss, role.
        ending: one of ENDINGS.
    """
    rows, losses = [], ends(contenders, ending)
    best = best_constant(contenders, ending)
    effects: dict[str, Contrast] = {}
    for constants in (False, True) if best is not None else ():
        effects |= against_best(contenders, ending, constants=constants)[1]
    for name, group in _groups(contenders, ending).items():
        first = group.iloc[0]
        texts = name, str(first["batch"]), str(first["role"])
        own, eval_loss = losses.loc[name].dropna().to_dict(), float(np.mean(group["eval_loss"]))
        spent = int(first["tokens"]), int(first["steps"])
        rows.append(Standing(*texts, own, eval_loss, *spent, name == best, effects.get(name)))
    return sorted(rows, key=lambda standing: standing.loss)


def tuned(table: pd.DataFrame, by: Sequence[str] = ("name", "rate")) -> pd.DataFrame:
    """Each contender at its best rate: the lowest held-out loss, averaged over seeds.

    `trials` is how many rates that minimum was taken over.

    Args:
        table: final losses, with columns peak_lr, eval_loss and those of `by`.
        by: the columns that tell a contender.
    """
    tables = []
    for _, rows in table.groupby(list(by), sort=False):
        of_rates = rows.groupby("peak_lr", sort=False)["eval_loss"]
        losses = {lr: sum(some) / len(some) for lr, some in of_rates}
        best = min(losses, key=lambda rate: losses[rate])
        tables.append(rows[rows["peak_lr"] == best].assign(trials=len(losses)))
    return pd.concat(tables, ignore_index=True)


def differences(contenders: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Final losses of the contenders of these names less those of every other at the same rates.

    Of a table of final losses with one peak_lr for each name and rate. Those of a rate are one
    family of tests.

    Returns:
        Columns rate, name, peak_lr, against, against_lr, difference, error (2 standard errors),
        seeds, verdict.
    """
    rows = []
    for rate, some in contenders.groupby("rate", sort=False):
        losses, lr = ends(contenders, str(rate)), some.groupby("name")["peak_lr"].first()
        pairs = [(a, b) for a, b in itertools.product(names, losses.index) if a in losses.index]
        for (name, other), contrast in contrasts(
            losses, [(a, b) for a, b in pairs if a != b]
        ).items():
            apart = mean((losses.loc[name] - losses.loc[other]).dropna().tolist())
            if apart.seeds:
                compared = (rate, name, lr[name], other, lr[other])
                rows.append((*compared, *astuple(apart), VERDICTS[contrast.sign]))
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


def best_constant(contenders: pd.DataFrame, ending: str) -> str | None:
    """The constant of an ending that has the lowest held-out loss; None where it has none."""
    groups = _groups(contenders, ending)
    constants = [name for name, rows in groups.items() if rows["role"].iloc[0] in CONSTANT_ROLES]
    return min(constants, key=lambda name: groups[name]["eval_loss"].mean(), default=None)


def against_best(
    contenders: pd.DataFrame, ending: str, *, constants: bool = False
) -> tuple[str, dict[str, Contrast]]:
    """The best constant of an ending, and others less it, one family of tests.

    The best of several was lucky, so that what ties with it seems to lose. A loss is shown only
    where it is one too against constants chosen for each seed by the other seeds.

    Args:
        contenders: a table of final losses.
        ending: one of ENDINGS, with a constant.
        constants: the other constants; else all that grow their batch.
    """
    best, losses = str(best_constant(contenders, ending)), ends(contenders, ending)
    groups = _groups(contenders, ending)
    roles = {name: rows["role"].iloc[0] for name, rows in groups.items()}
    names = [name for name in roles if (roles[name] in CONSTANT_ROLES) == constants]
    effects = contrasts(losses, [(name, best) for name in names])
    chosen = _chosen_elsewhere(groups)
    if set(chosen.values()) - {best}:
        row = pd.Series({seed: losses.loc[name, seed] for seed, name in chosen.items()})
        fair = contrasts(pd.concat([losses, row.to_frame("").T]), [(name, "") for name in names])
        for name in names:
            if effects[name, best].estimate > 0:
                effects[name, best] = _surer(effects[name, best], fair[name, ""])
    return best, {name: one for (name, _), one in effects.items()}


def _chosen_elsewhere(groups: dict[str, pd.DataFrame]) -> dict[int, str]:
    """For each seed the constant of the lowest held-out loss over the other seeds."""
    constant = {n: rows for n, rows in groups.items() if rows["role"].iloc[0] in CONSTANT_ROLES}
    losses = {name: rows.set_index("seed")["eval_loss"] for name, rows in constant.items()}
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


def _groups(contenders: pd.DataFrame, ending: str) -> dict[str, pd.DataFrame]:
    """The rows of each contender at an ending, in the table's order."""
    rows = contenders.loc[contenders["rate"] == ending]
    return {str(name): group for name, group in rows.groupby("name", sort=False)}
