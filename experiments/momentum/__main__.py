"""What decides the large batch: Adam's beta1?

Constant batches are trained with several beta1, each at the better of two rates, chosen on seeds
that are not judged; then at constant rate and decayed, with what leaves them for another batch,
rate or beta1.

    python -m experiments.momentum --config=configs/momentum.py:grid
    python -m experiments.momentum.tables runs/momentum results/momentum    what has ended so far

What was expected is in results/predictions/momentum.json, committed before the first run.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from bss.sweeps.branching import branch, decay_branch, decayed, late_switch
from bss.sweeps.grid import overlay
from bss.sweeps.results import Results
from bss.sweeps.trainer import Trainer
from bss.training.run_config import RunConfig
from experiments.main import run_experiment
from experiments.momentum.ended import Ended
from experiments.momentum.study import KEPT, Arm, Fork, Study
from experiments.momentum.tables import tables

Rates = Mapping[Arm, float]
"""The rate that was chosen for each arm."""


def experiment(study: Study) -> None:
    """Runs a part and writes its tables."""
    results = Results(study)
    with study.training(study.kept, study.registration) as (base, trainer):
        rates = choose(study, base, trainer)
        for at in range(0, len(study.seeds), study.together):
            seeds = study.seeds[at : at + study.together]
            runs = [run for seed in seeds for run in judged(study, base, rates, seed)]
            trainer.train(runs, f"seeds {', '.join(map(str, seeds))}")
    results.write(tables(trainer.runs, [*trainer.finished]), trainer)


def choose(study: Study, base: RunConfig, trainer: Trainer) -> Rates:
    """The rate of each arm with the lowest decayed held-out loss, averaged over the seeds."""
    if study.chosen:
        ended = Ended.read(study.chosen)
        return {
            arm: arm.rates[0] if len(arm.rates) == 1 else ended.rate(arm.batch, arm.beta1)
            for arm in study.arms
        }
    shorter = overlay(base, {"schedule.tokens": study.choosing_tokens})
    tried = {
        (arm, rate): [decayed(run_of(shorter, arm, rate, s), study.decay) for s in study.choosing]
        for arm in study.arms
        for rate in arm.rates
        if len(arm.rates) > 1
    }
    trainer.train([run for runs in tried.values() for run in runs], "rates", forks=())
    mean = {
        key: np.mean([trainer.statuses[run.id].losses.get("eval_loss", np.inf) for run in runs])
        for key, runs in tried.items()
    }
    return {arm: min(arm.rates, key=lambda rate: mean.get((arm, rate), 0.0)) for arm in study.arms}


def judged(study: Study, base: RunConfig, rates: Rates, seed: int) -> Iterator[RunConfig]:
    """The runs of a seed: at constant rate, what leaves them, and all of them decayed."""
    stable = {
        (arm, rate): run_of(base, arm, rate, seed)
        for arm in study.arms
        for rate in {rates[arm], *arm.judged}
    }
    of_batch = {arm.batch: stable[arm, rates[arm]] for arm in study.arms if arm.beta1 == KEPT}
    forks = [forked(fork, of_batch[fork.batch]) for fork in study.forks]
    for run in [*stable.values(), *forks]:
        yield run
        if study.decay:
            yield decay_branch(run, study.decay)


def run_of(base: RunConfig, arm: Arm, rate: float, seed: int) -> RunConfig:
    """An arm at constant rate, from the start."""
    own = {"schedule.batch": str(arm.batch), "optimizer.beta1": arm.beta1, "optimizer.lr": rate}
    return overlay(base, {**own, "seed": seed, "data.seed": seed})


def forked(fork: Fork, trunk: RunConfig) -> RunConfig:
    """What leaves a run, as a branch of it."""
    tokens = trunk.schedule.tokens
    at, batch = round(fork.at * tokens), trunk.schedule.batch.constant_batch
    run = late_switch(trunk, at, batch * fork.grow) if fork.grow > 1 else branch(trunk, trunk, at)
    return overlay(run, {**fork.changes, "schedule.tokens": round(fork.stop * tokens)})


if __name__ == "__main__":
    run_experiment(Study, experiment)
