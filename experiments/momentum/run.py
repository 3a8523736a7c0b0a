"""Train fixed batch sizes with several beta1, and runs that fork from them.

Each arm is trained at the better of its LRs, which is chosen on seeds that are not compared. It is
trained at constant LR and decayed. Forked runs continue with another batch size, LR or beta1.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.sweeps.branching import branch, decay_branch, decay_start, decayed, late_switch
from bss.sweeps.grid import overlay
from bss.sweeps.results import Results
from bss.sweeps.table import finals, run_table
from bss.sweeps.trainer import Trainer
from bss.training.run_config import RunConfig
from experiments.momentum.analysis import KEPT, chosen
from experiments.study import PricedStudy
from experiments.tables import Tables


@dataclass(frozen=True)
class Arm:
    """One fixed batch size with one beta1.

    Attributes:
        batch: Batch size in sequences.
        beta1: First-moment decay per step.
        rates: Peak LRs to try.
        judged: LRs that are trained on all seeds, even if another LR is chosen.
    """

    batch: int
    beta1: float
    rates: tuple[float, ...]
    judged: tuple[float, ...] = ()


@dataclass(frozen=True)
class Fork:
    """A run that forks from an arm with beta1 KEPT, at the LR that was chosen for it.

    Attributes:
        name: Name in the config.
        batch: Batch size of the arm.
        at: Fraction of the tokens at which it forks.
        grow: Factor on the batch size.
        stop: Token budget, as a multiple of the arm's.
        changes: Fields of the run by dotted name.
    """

    name: str
    batch: int
    at: float
    grow: int = 1
    stop: float = 1.0
    changes: dict = field(default_factory=dict)


Rates = Mapping[Arm, float]
"""The LR that was chosen for each arm."""


@dataclass(frozen=True, kw_only=True)
class Study(PricedStudy):
    """One part of the experiment.

    Attributes:
        arms: What is trained from the start.
        forks: Runs that fork from arms.
        choosing: Seeds on which an arm's LR is chosen, by decayed held-out losses.
        choosing_tokens: Tokens of their runs.
        chosen: finals.csv that has these runs already; "" to train them.
        together: Seeds that are trained at a time.
        decay: Last fraction of the tokens decayed to zero, in forked runs; 0 for none.

    Raises:
        InputError: If a seed is used both to choose LRs and to compare arms.
    """

    arms: tuple[Arm, ...]
    forks: tuple[Fork, ...] = ()
    choosing: tuple[int, ...] = ()
    choosing_tokens: int = 500_000
    chosen: str = ""
    together: int = 4
    decay: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if both := {*self.seeds} & {*self.choosing}:
            raise InputError(f"seeds: {sorted(both)} are also in `choosing`; use other seeds")

    @property
    def kept(self) -> tuple[int, ...]:
        """Token counts at which runs keep a checkpoint for forked runs."""
        kept = {round(fork.at * self.tokens) for fork in self.forks}
        if self.decay:
            kept.add(decay_start(self.tokens, self.decay))
        return tuple(sorted(kept))


def experiment(study: Study) -> None:
    """Train a part and write its tables."""
    results = Results(study)
    with study.training(study.kept) as (base, trainer):
        rates = choose(study, base, trainer)
        for at in range(0, len(study.seeds), study.together):
            seeds = study.seeds[at : at + study.together]
            runs = [run for seed in seeds for run in judged(study, base, rates, seed)]
            trainer.train(runs, f"seeds {', '.join(map(str, seeds))}")
    results.write(tables(trainer), trainer)


def choose(study: Study, base: RunConfig, trainer: Trainer) -> Rates:
    """Return the LR of each arm with the lowest decayed held-out loss, mean over seeds."""
    if study.chosen:
        path = Path(study.chosen)
        finals_of = Tables(path.parent).read(path.name).astype({"batch": str})
        best = chosen(finals_of).set_index(["batch", "beta1"])["peak_lr"]
        return {
            arm: arm.rates[0] if len(arm.rates) == 1 else float(best.loc[arm.batch, arm.beta1])
            for arm in study.arms
        }
    shorter = overlay(base, {"schedule.tokens": study.choosing_tokens})
    tried = {
        (arm, rate): [decayed(run_of(shorter, arm, rate, s), study.decay) for s in study.choosing]
        for arm in study.arms
        for rate in arm.rates
        if len(arm.rates) > 1
    }
    trainer.train([run for runs in tried.values() for run in runs], "learning rates", forks=())
    mean = {
        key: np.mean([trainer.statuses[run.id].losses.get("eval_loss", np.inf) for run in runs])
        for key, runs in tried.items()
    }
    return {arm: min(arm.rates, key=lambda rate: mean.get((arm, rate), 0.0)) for arm in study.arms}


def judged(study: Study, base: RunConfig, rates: Rates, seed: int) -> Iterator[RunConfig]:
    """Return the runs of a seed: at constant LR, what forks from them, and all of them decayed."""
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
    """Return an arm at constant LR, from the start."""
    own = {"schedule.batch": str(arm.batch), "optimizer.beta1": arm.beta1, "optimizer.lr": rate}
    return overlay(base, {**own, "seed": seed, "data.seed": seed})


def forked(fork: Fork, trunk: RunConfig) -> RunConfig:
    """Return the run that forks from another."""
    tokens = trunk.schedule.tokens
    at = round(fork.at * tokens)
    batch = trunk.schedule.batch.constant_batch
    run = late_switch(trunk, at, batch * fork.grow) if fork.grow > 1 else branch(trunk, trunk, at)
    return overlay(run, {**fork.changes, "schedule.tokens": round(fork.stop * tokens)})


def _described(run: RunConfig) -> dict[str, Any]:
    """Return the columns of finals.csv that only this study has."""
    parent = run.parent.run if run.parent else None
    beta2 = None if run.optimizer.beta2_half_life else run.optimizer.beta2
    return {
        "parent": parent,
        "beta1": run.optimizer.beta1,
        "beta2": beta2,
        "lr_phase": "decayed" if run.schedule.decay else "constant",
        "weights": "last",
    }


def tables(trainer: Trainer) -> dict[str, pd.DataFrame]:
    """Return finals.csv, one row per run, and curves.parquet of the runs at constant LR."""
    runs = [*trainer.finished.values()]
    own = [_described(run) for run in runs]
    statuses = [trainer.status_of(run) for run in runs]
    table = finals(runs, statuses).drop(columns="parent", errors="ignore")
    stable = [run for run in runs if not run.schedule.decay]
    return {
        "finals.csv": pd.concat([table, pd.DataFrame(own)], axis=1),
        "curves.parquet": run_table(trainer.runs, stable),
    }
