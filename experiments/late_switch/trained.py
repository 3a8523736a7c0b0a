"""What a late-switch study trains: each part on what the parts before it found."""

from dataclasses import dataclass

import pandas as pd

from bss.laws import CurveFit
from bss.schedules.batch import BatchSchedule
from bss.sweeps.contenders import Contender, constant_contenders
from bss.training.config import RunConfig
from experiments.late_switch.law import chosen_fit, fit_pilots, law_schedules, seed_means
from experiments.late_switch.runs import (
    by_law,
    decaying,
    going_on,
    is_whole,
    switching,
    under_cosine,
)
from experiments.late_switch.study import Study
from experiments.study import batch_unit, say
from experiments.trainer import Trainer


@dataclass(frozen=True)
class Trained:
    """What a study trained, and the law on the way.

    Attributes:
        constants: at constant rate.
        stable: they, the switches and the law's schedule, all at constant rate.
        continued: the large batch over more tokens.
        decays: of the stable that take all tokens, with their last part decayed to zero.
        cosines: from the start.
        pilots: what the law was fitted to,
        means: their curves, seeds averaged.
        fits: the law from every start, with each clock.
        fit: the one that is used.
        lawful: the schedules that it recommends, by name.
    """

    constants: list[Contender]
    stable: list[Contender]
    continued: list[Contender]
    decays: list[Contender]
    cosines: list[Contender]
    pilots: list[Contender]
    means: pd.DataFrame
    fits: list[CurveFit]
    fit: CurveFit | None
    lawful: dict[str, BatchSchedule]

    @property
    def contenders(self) -> list[Contender]:
        """All of them."""
        return [*self.stable, *self.continued, *self.decays, *self.cosines]


def train(study: Study, base: RunConfig, trainer: Trainer) -> Trained:
    """Trains all parts, and fits the law on the way."""
    forks = study.fork_tokens
    constants = list(constant_contenders(base, study.rates, study.seeds, []))
    constants = trainer.contend(constants, "1/5 constants", forks)
    switched = switching(study, base, constants)
    stable = [*constants, *trainer.contend(switched, "2/5 switches", forks)]
    continued = going_on(study, constants)
    continued = trainer.contend(continued, "2/5 the large batch goes on", forks)

    say("fitting the functional law")
    pilots = [c for c in stable if c.role in ("constant", "late") and is_whole(study, c)]
    means = seed_means(trainer.runs, [c.run for c in pilots])
    starts = [round(part * study.tokens) for part in study.starts]
    fits = fit_pilots(means, starts, base.schedule.warmup, study.resamples)
    fit = chosen_fit(fits)
    unit = batch_unit(study.setup)
    lawful = law_schedules(fit, base, study.shared_rate, study.decay, unit, study.large)

    by_rate = by_law(study, base, lawful, stable)
    stable += trainer.contend(by_rate["constant"], "3/5 the law's schedules", forks)
    whole = [c for c in stable if is_whole(study, c)]
    decays = decaying(study, [*whole, *by_rate["decay"]], stable)
    decays = trainer.contend(decays, "4/5 WSD", forks)
    cosines, own = under_cosine(study, base, by_rate["cosine"])
    cosines = trainer.contend(cosines, "5/5 cosine", own)
    return Trained(constants, stable, continued, decays, cosines, pilots, means, fits, fit, lawful)
