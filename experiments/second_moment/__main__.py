"""What decides the best batch: the second moment, the rate or the ending?

Adam's second moment is kept per step (beta2 .95, as most recipes have it) or per token (a half-life
whatever the batch, Marek et al., arXiv 2507.07101). Under the first its average spans fewer tokens
at a small batch, under the second fewer steps at a large one. Each part of the study trains batches
under such rules, at rates tuned for each batch on seeds that are not judged; every run ends at
constant rate, with averaged weights, and decayed.

An arm's rate is chosen for each ending by itself, on held-out losses of the first seeds; an arm
whose best rate is at an end is tried at one beyond it. Losses are compared on the other seeds.

    python -m experiments.second_moment --config=configs/second_moment.py:rules
    python -m experiments.second_moment.power results    what it can tell, before it is run

What was expected is in results/predictions/second_moment.json, committed before the first run.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from bss.stats import Comparison
from bss.sweeps.contenders import Contender, contender_table, decaying
from bss.sweeps.grid import overlay
from bss.sweeps.results import Results
from bss.sweeps.table import run_table
from bss.sweeps.trainer import Trainer
from bss.training.run_config import RunConfig
from experiments.late_switch.runs import sharing
from experiments.main import run_experiment
from experiments.second_moment.losses import whole
from experiments.second_moment.study import Study

Rates = Mapping[str, Collection[float]]
"""The rates that are asked of each arm, by its name."""


def experiment(study: Study) -> None:
    """Runs a part and writes its tables."""
    results = Results(study)
    with study.training(study.forks) as (base, trainer):
        trained = train(study, base, trainer)
    stable = [contender.run for contender in trained if contender.ending == "constant"]
    results.write(
        {
            "runs.parquet": labelled(study, run_table(trainer.runs, stable), trained),
            "contenders.csv": labelled(study, contender_table(trained, trainer.statuses), trained),
        },
        trainer,
    )


def train(study: Study, base: RunConfig, trainer: Trainer) -> list[Contender]:
    """Trains everything: at constant rate, and with the last tokens decayed."""
    first, rest = study.seeds[: study.choosing], study.seeds[study.choosing :]
    rates_of: Rates = {arm.name: arm.rates for arm in study.arms}
    trained: list[Contender] = []
    for attempt in range(study.widen + 1):
        title = "1/2 rates" + f", {attempt} more" * bool(attempt)
        trained += both(study, contenders(study, base, rates_of, first), trainer, title)
        rates_of = beyond(whole(contender_table(trained, trainer.statuses), first), rates_of)
    rates = chosen(whole(contender_table(trained, trainer.statuses), first))
    decayed = {name: {known["decay"]} for name, known in rates.items()}
    stable = {name: {*known.values()} - decayed[name] for name, known in rates.items()}
    trained += both(study, contenders(study, base, decayed, rest), trainer, "2/2 judged seeds")
    return trained + trainer.contend(contenders(study, base, stable, rest), "2/2 judged seeds")


def contenders(
    study: Study, base: RunConfig, rates_of: Rates, seeds: Sequence[int]
) -> list[Contender]:
    """Runs at constant rate, those that change their batch as branches of those that do not."""
    rules = {rule.name: rule.changes for rule in study.rules}
    constants, changing = [], []
    for arm in study.arms:
        schedule = study.schedule(arm)
        constant = len(schedule.batches) == 1
        role, entries = ("constant", constants) if constant else ("schedule", changing)
        for rate, seed in itertools.product(sorted(rates_of[arm.name]), seeds):
            own = {"schedule.batch": str(schedule), "optimizer.lr": rate}
            run = overlay(base, {**rules[arm.rule], **own, "seed": seed, "data.seed": seed})
            entries.append(Contender(arm.name, role, "constant", run))
    return constants + sharing(changing, constants, study.forks)


def both(
    study: Study, entrants: Sequence[Contender], trainer: Trainer, title: str
) -> list[Contender]:
    """Trains runs at constant rate, then their branches whose last tokens are decayed."""
    stable = trainer.contend(entrants, title)
    decays = [decaying(contender, study.decay) for contender in stable]
    return [*stable, *trainer.contend(decays, f"{title}, decays")]


def beyond(table: pd.DataFrame, rates_of: Rates) -> Rates:
    """One rate more, as far again, for every arm whose best rate under some ending is at an end.

    Args:
        table: of contenders, of the seeds that choose.
        asked: the last time; an arm of which nothing was asked is settled, so is one of one rate.
    """
    further: dict[str, list[float]] = {name: [] for name in rates_of}
    for name, rows in table.groupby("name"):
        rates, best = sorted(rows["peak_lr"].unique()), Comparison(rows).tuned().table["peak_lr"]
        if len(rates) > 1 and rates_of[str(name)]:
            step = rates[1] / rates[0]
            low = [rates[0] / step] if best.min() == rates[0] else []
            high = [rates[-1] * step] if best.max() == rates[-1] else []
            further[str(name)] = low + high
    return further


def chosen(table: pd.DataFrame) -> dict[str, dict[str, float]]:
    """The rate of each arm under each ending: the lowest held-out loss, seeds averaged."""
    best = Comparison(table).tuned().table.drop_duplicates(["name", "ending"])
    return {
        str(name): dict(zip(rows["ending"], rows["peak_lr"], strict=True))
        for name, rows in best.groupby("name", sort=False)
    }


def labelled(study: Study, table: pd.DataFrame, trained: Sequence[Contender]) -> pd.DataFrame:
    """A table of runs with the rule of each in a column."""
    of_arms = {arm.name: arm.rule for arm in study.arms}
    rules = {contender.run.id: of_arms[contender.name] for contender in trained}
    return table.assign(rule=[rules[run] for run in table["run"]])


if __name__ == "__main__":
    run_experiment(Study, experiment)
