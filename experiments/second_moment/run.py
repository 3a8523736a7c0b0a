"""Train batch sizes under rules of the second moment, with the LR tuned for each.

An arm's LR is chosen per LR phase, on held-out losses of the first seeds. An arm whose best LR is
at an end is tried at one LR beyond it. The other seeds are trained only at the chosen LRs, and
losses are compared on them. Every run ends at constant LR and decayed.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from bss.stats import Comparison, phases_of
from bss.sweeps.branching import decay_start
from bss.sweeps.contenders import Contender, contender_table, decaying
from bss.sweeps.grid import overlay
from bss.sweeps.results import Results
from bss.sweeps.table import run_table
from bss.sweeps.trainer import Trainer
from bss.training.run_config import RunConfig
from experiments.second_moment.losses import PHASE, whole
from experiments.study import PricedStudy

Rates = Mapping[str, Collection[float]]
"""LRs to train for each arm, by its name."""


@dataclass(frozen=True)
class Rule:
    """A rule by which the optimizer's averages scale with the batch size.

    Attributes:
        name: Name in the tables.
        changes: Fields of its runs by dotted name.
    """

    name: str
    changes: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Arm:
    """One batch size under one rule.

    Attributes:
        rule: Name of the rule.
        batch: Sequences per step as text.
        rates: Peak LRs, ascending.
    """

    rule: str
    batch: str
    rates: tuple[float, ...]

    @property
    def name(self) -> str:
        """Name of its runs in the tables."""
        return f"{self.rule} · {self.batch}"


@dataclass(frozen=True, kw_only=True)
class Study(PricedStudy):
    """One part of the experiment.

    Attributes:
        rules: Rules of the second moment, and controls.
        arms: What is trained.
        choosing: Number of seeds, the first ones, on which an arm's LR is chosen.
        widen: Number of times an arm whose best LR is at an end is tried at one LR beyond it.
        decay: Last fraction of the tokens, decayed to zero.
    """

    rules: tuple[Rule, ...]
    arms: tuple[Arm, ...]
    choosing: int = 2
    widen: int = 2
    decay: float = 0.2

    @property
    def forks(self) -> tuple[int, ...]:
        """Token count of the checkpoint for the decay."""
        return (decay_start(self.tokens, self.decay),)


def experiment(study: Study) -> None:
    """Train a part and write its tables."""
    results = Results(study)
    with study.training(study.forks) as (base, trainer):
        trained = train(study, base, trainer)
    stable = [contender.run for contender in trained if contender.lr_phase == "constant"]
    tables = {
        "runs.parquet": run_table(trainer.runs, stable),
        "contenders.csv": contender_table(trained, trainer.statuses),
    }
    of_arms = {arm.name: arm.rule for arm in study.arms}
    rules = {contender.run.id: of_arms[contender.name] for contender in trained}
    labelled = {name: table.assign(rule=table["run"].map(rules)) for name, table in tables.items()}
    results.write(labelled, trainer)


def train(study: Study, base: RunConfig, trainer: Trainer) -> list[Contender]:
    """Train everything: at constant LR, and with the last tokens decayed."""
    first = study.seeds[: study.choosing]
    rest = study.seeds[study.choosing :]
    rates_of: Rates = {arm.name: arm.rates for arm in study.arms}
    trained: list[Contender] = []
    for attempt in range(study.widen + 1):
        title = "1/2 learning rates" + f", {attempt} more" * bool(attempt)
        trained += both(study, contenders(study, base, rates_of, first), trainer, title)
        rates_of = beyond(whole(contender_table(trained, trainer.statuses), first), rates_of)
    rates = chosen(whole(contender_table(trained, trainer.statuses), first))
    decayed = {name: {known["decayed"]} for name, known in rates.items()}
    stable = {name: {*known.values()} - decayed[name] for name, known in rates.items()}
    trained += both(study, contenders(study, base, decayed, rest), trainer, "2/2 other seeds")
    return trained + trainer.contend(contenders(study, base, stable, rest), "2/2 other seeds")


def contenders(
    study: Study, base: RunConfig, rates_of: Rates, seeds: Sequence[int]
) -> list[Contender]:
    """Return runs at constant LR, one per arm, learning rate and seed."""
    changes = {rule.name: rule.changes for rule in study.rules}
    found = []
    for arm in study.arms:
        for rate, seed in itertools.product(sorted(rates_of[arm.name]), seeds):
            own = {"schedule.batch": str(arm.batch), "optimizer.lr": rate}
            run = overlay(base, {**changes[arm.rule], **own, "seed": seed, "data.seed": seed})
            found.append(Contender(arm.name, "constant", "constant", run))
    return found


def both(study: Study, arms: Sequence[Contender], trainer: Trainer, title: str) -> list[Contender]:
    """Train runs at constant LR, then forked runs whose last tokens are decayed."""
    stable = trainer.contend(arms, title)
    decays = [decaying(contender, study.decay) for contender in stable]
    return [*stable, *trainer.contend(decays, f"{title}, decays")]


def beyond(table: pd.DataFrame, rates_of: Rates) -> Rates:
    """Return one more LR, as far again, for every arm whose best LR in some phase is at an end.

    Args:
        table: Final losses of the seeds that choose.
        rates_of: LRs of the last attempt by arm. An arm without LRs, or with one LR, is done.
    """
    further: dict[str, list[float]] = {name: [] for name in rates_of}
    for name, rows in table.groupby("name"):
        rates = sorted(rows["peak_lr"].unique())
        best = Comparison(rows).tuned().table["peak_lr"]
        if len(rates) > 1 and rates_of[str(name)]:
            step = rates[1] / rates[0]
            low = [rates[0] / step] if best.min() == rates[0] else []
            high = [rates[-1] * step] if best.max() == rates[-1] else []
            further[str(name)] = low + high
    return further


def chosen(table: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return the LR of each arm in each LR phase: the lowest held-out loss, mean over seeds."""
    best = Comparison(table).tuned().table.drop_duplicates(["name", *PHASE])
    return {
        str(name): dict(zip(phases_of(rows), rows["peak_lr"], strict=True))
        for name, rows in best.groupby("name", sort=False)
    }
