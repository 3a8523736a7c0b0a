"""Train constants, switches and the fitted law's schedules under constant LR, WSD and cosine.

The procedure of Wang et al. (arXiv 2602.14208), with tuned baselines:

1. constant batch sizes, each at several learning rates;
2. switches small → large at several points, stages, the schedules of E(S), as forked runs at
   constant LR: one forked run serves every budget after its switch;
3. the functional law, fitted to constants and two-stage pilots, from the start that predicts
   left-out pilots best, and the schedules that it recommends;
4. all of them with a last part decayed to zero (WSD), forked;
5. constants and schedules under a cosine.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from bss.errors import InputError
from bss.laws import CurveFit, fit_curve
from bss.laws.base import Options
from bss.laws.functional.forecast import check_identified, schedule_losses
from bss.laws.functional.problem import CLOCKS
from bss.policies.functional_best import FunctionalBest
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import Rate, constant, cosine, wsd
from bss.sweeps.branching import branched, decay_start, decayed
from bss.sweeps.contenders import BatchRates, Contender, constant_contenders, rates_near
from bss.sweeps.grid import overlay, seeded
from bss.sweeps.price import Price, price
from bss.sweeps.setup import planned_run
from bss.sweeps.table import run_table
from bss.sweeps.trainer import Trainer
from bss.training.run_config import RunConfig
from experiments.study import PricedStudy, batch_unit, say, sharing

LAW = {"constant": "law", "decay": "law, for WSD", "cosine": "law, for cosine"}
"""Names of the law's schedules by LR phase."""


@dataclass(frozen=True)
class Entry:
    """A batch schedule to train.

    Attributes:
        name: Name in the tables.
        batch: Schedule as text, e.g. "0:4 70%:32".
        rates: Learning rates; default: those of the nearest constant batch size.
        until: Fraction of the tokens at which it stops; below 1 it serves the best switch point
            only.
        alone: Train it from the start at constant LR, whatever it shares with others.
    """

    name: str
    batch: str
    rates: tuple[float, ...] = ()
    until: float = 1.0
    alone: bool = False


@dataclass(frozen=True, kw_only=True)
class Study(PricedStudy):
    """One size of the experiment; fractions are of the tokens of a run.

    Attributes:
        grid: Constant batch sizes with their learning rates.
        shared_rate: LR at which all are compared as well.
        decay: Last fraction, decayed to zero under WSD.
        small, large: Batch size before and after a switch, in sequences; both of the grid.
        schedules: Batch schedules. Those that switch once from small to large and take all tokens
            are the pilots that the law is fitted to, with the constants.
        forks: Fractions at which runs keep a checkpoint for forked runs.
        budgets: Fractions at which the best switch point is measured.
        starts: Fractions before which the law ignores losses; the best one is kept.
        extrapolated: Multiples of the tokens at which the law predicts the switch point.
        cosine: Fraction that the runs under a cosine have; 1 for equal tokens.
        continued: Multiple of the tokens to which the large batch is trained, for losses at as many
            steps as after a switch; 1 for none.
        continued_seeds: Seeds of these runs.
    """

    grid: tuple[BatchRates, ...]
    shared_rate: float
    decay: float = 0.2
    small: int
    large: int
    schedules: tuple[Entry, ...]
    forks: tuple[float, ...]
    budgets: tuple[float, ...]
    starts: tuple[float, ...] = (0.0, 0.25, 0.5)
    extrapolated: tuple[float, ...] = (4.0, 16.0)
    cosine: float = 1.0
    continued: float = 1.0
    continued_seeds: tuple[int, ...] = (0,)
    resamples: int = 100

    @property
    def rates(self) -> dict[int, tuple[float, ...]]:
        """Learning rates of each constant batch size."""
        return {entry.batch: entry.rates for entry in self.grid}

    @property
    def fork_tokens(self) -> tuple[int, ...]:
        """Token counts at which runs keep a checkpoint for forked runs."""
        parts = {round(part * self.tokens) for part in self.forks}
        return tuple(sorted(parts | {decay_start(self.tokens, self.decay)}))

    def schedule(self, entry: Entry) -> BatchSchedule:
        """Return the batch schedule of an entry over the tokens."""
        return BatchSchedule.parse(entry.batch, total=self.tokens)

    def is_whole(self, contender: Contender) -> bool:
        """Whether a run takes all tokens."""
        return contender.run.schedule.tokens == self.tokens


@dataclass(frozen=True)
class TrainedRuns:
    """What a study trained, and the law that was fitted meanwhile.

    Attributes:
        stable: Constants, switches and the law's schedule at constant LR.
        continued: The large batch size over more tokens.
        decays: Those of `stable` that take all tokens, and the law's, with the last part decayed.
        cosines: Runs under a cosine.
        pilots: Mean curves that the law was fitted to.
        fit: The law that is used, or None.
        lawful: The schedules that it recommends, by name.
    """

    stable: list[Contender]
    continued: list[Contender]
    decays: list[Contender]
    cosines: list[Contender]
    pilots: pd.DataFrame
    fit: CurveFit | None
    lawful: dict[str, BatchSchedule]


def train(study: Study, base: RunConfig, trainer: Trainer) -> TrainedRuns:
    """Train all parts, and fit the law to the first two."""
    forks = study.fork_tokens
    constants = list(constant_contenders(base, study.rates, study.seeds))
    constants = trainer.contend(constants, "1/5 constants", forks)
    switched = switching(study, base, constants)
    stable = [*constants, *trainer.contend(switched, "2/5 switches", forks)]
    continued = going_on(study, constants)
    continued = trainer.contend(continued, "2/5 the large batch size, more tokens", forks)

    say("fitting the functional law")
    pilots = [c for c in stable if c.role in ("constant", "late") and study.is_whole(c)]
    means = seed_means(trainer.runs, [c.run for c in pilots])
    fit = chosen_fit(fit_pilots(study, means))
    lawful = law_schedules(study, fit, base)

    by_phase = by_law(study, base, lawful, stable)
    stable += trainer.contend(by_phase["constant"], "3/5 the law's schedules", forks)
    whole = [c for c in stable if study.is_whole(c)]
    decays = decaying(study, [*whole, *by_phase["decay"]], stable)
    decays = trainer.contend(decays, "4/5 WSD", forks)
    cosines, own = under_cosine(study, base, by_phase["cosine"])
    cosines = trainer.contend(cosines, "5/5 cosine", own)
    return TrainedRuns(stable, continued, decays, cosines, means, fit, lawful)


def costs(study: Study) -> dict[str, Price]:
    """Return the price of each part, the law's schedules as if from the start; no data are read."""
    base = planned_run(study.setup)
    constants = list(constant_contenders(base, study.rates, study.seeds))
    switched = switching(study, base, constants)
    stable = [*constants, *switched]
    stages = BatchSchedule.stages([study.small, study.large], study.tokens)
    lawful = by_law(study, base, dict.fromkeys(LAW.values(), stages), [])
    whole = [c for c in stable if study.is_whole(c)]
    parts = {
        "constants": constants,
        "switches": [*switched, *going_on(study, constants)],
        "law": lawful["constant"],
        "WSD": decaying(study, [*whole, *lawful["decay"]], stable),
        "cosine": under_cosine(study, base, lawful["cosine"])[0],
    }
    return {name: price([c.run for c in some]) for name, some in parts.items()}


# The runs


def switching(study: Study, base: RunConfig, constants: Sequence[Contender]) -> list[Contender]:
    """Return the study's schedules at constant LR, forked from constants and from each other."""
    alone, forked = [], []
    for entry in study.schedules:
        (alone if entry.alone else forked).extend(of_entry(study, base, entry))
    return [*alone, *sharing(forked, constants, study.fork_tokens)]


def going_on(study: Study, constants: Sequence[Contender]) -> list[Contender]:
    """Return the large batch size at the shared LR over more tokens, from its last checkpoint."""
    forked, large = [], (BatchSchedule.constant(study.large), study.shared_rate)
    for contender in constants if study.continued > 1 else ():
        run = contender.run
        same = (run.schedule.batch, run.optimizer.lr) == large
        if same and run.seed in study.continued_seeds:
            longer = overlay(run, {"schedule.tokens": round(study.continued * study.tokens)})
            longer = branched(longer, [run], study.fork_tokens)
            forked.append(Contender(f"{contender.name} continued", "constant", "constant", longer))
    return forked


def by_law(
    study: Study, base: RunConfig, schedules: dict[str, BatchSchedule], known: Sequence[Contender]
) -> dict[str, list[Contender]]:
    """Return the law's schedules at the shared LR, by the LR phase that each is for.

    Those for constant LR fork from known runs; the others are from the start, to be decayed.
    """
    by_phase: dict[str, list[Contender]] = {phase: [] for phase in LAW}
    for phase, name in LAW.items():
        if name in schedules:
            entry = Entry(name, str(schedules[name]), (study.shared_rate,))
            by_phase[phase] += of_entry(study, base, entry)
    by_phase["constant"] = sharing(by_phase["constant"], known, study.fork_tokens)
    return by_phase


def decaying(
    study: Study, contenders: Sequence[Contender], known: Sequence[Contender]
) -> list[Contender]:
    """Return runs with their last tokens decayed to zero, each from the nearest checkpoint."""
    trained = [contender.run for contender in known]
    runs = [branched(decayed(c.run, study.decay), trained, study.fork_tokens) for c in contenders]
    return [replace(c, ending="decay", run=run) for c, run in zip(contenders, runs, strict=True)]


def under_cosine(
    study: Study, base: RunConfig, lawful: Sequence[Contender]
) -> tuple[list[Contender], list[int]]:
    """Return constants and schedules under a cosine, and the token counts of their checkpoints."""
    entries = [Entry(f"constant {batch}", str(batch), study.rates[batch]) for batch in study.rates]
    entries += [entry for entry in study.schedules if entry.until == 1]
    found = [c for entry in entries for c in of_entry(study, base, entry)]
    found = [cosined(contender, study.cosine) for contender in [*found, *lawful]]
    starts = {start for c in found for start in c.run.schedule.batch.starts[1:]}
    return sharing(found, [], sorted(starts)), sorted(starts)


def of_entry(study: Study, base: RunConfig, entry: Entry) -> Iterator[Contender]:
    """Return the run of a schedule at each LR and seed, from the start."""
    # Fractions are of the whole budget, so they are resolved before the run is cut short.
    schedule = study.schedule(entry)
    role = "constant" if len(schedule.batches) == 1 else "schedule"
    role = "late" if schedule.batches == (study.small, study.large) else role
    near = schedule.mean_batch(study.tokens) if entry.alone else schedule.batches[0]
    axes = {"seed": study.seeds, "optimizer.lr": entry.rates or rates_near(study.rates, near)}
    tokens = round(entry.until * base.schedule.tokens)
    fixed = {"schedule.batch": str(schedule), "schedule.tokens": tokens}
    for changes in seeded(axes):
        yield Contender(entry.name, role, "constant", overlay(base, {**fixed, **changes}))


def cosined(contender: Contender, part: float) -> Contender:
    """Return a run over a fraction of its tokens, with a cosine from its peak LR to zero."""
    run = contender.run
    schedule = run.schedule.batch
    starts = tuple(round(start * part) for start in schedule.starts)
    changes = {
        "schedule.rate": "cosine",
        "schedule.tokens": round(part * run.schedule.tokens),
        "schedule.batch": str(BatchSchedule(starts, schedule.batches)),
    }
    return replace(contender, ending="cosine", run=overlay(run, changes))


# The law


def seed_means(runs: Path, chosen: Sequence[RunConfig]) -> pd.DataFrame:
    """Return a run table in which the curves of a schedule's seeds are one, their mean.

    Args:
        runs: Directory of run directories.
        chosen: Runs at constant LR; their seeds were evaluated at the same tokens.
    """
    names = {run.id: f"{run.schedule.batch} at {run.optimizer.lr:g}" for run in chosen}
    table = run_table(runs, chosen)
    first = dict.fromkeys(("step", "batch", "lr", "seq_len"), "first")
    means = dict.fromkeys(("loss", "eval_loss"), "mean")
    grouped = table.assign(run=table["run"].map(names.get)).groupby(
        ["run", "tokens"], sort=False, as_index=False
    )
    return grouped.agg(first | means)


def fit_pilots(study: Study, pilots: pd.DataFrame) -> list[CurveFit]:
    """Return the law with each time variable from each start of the study, best first.

    The best predicts the last losses of left-out pilots best. Empty if the pilots are refused.
    """
    fits: list[CurveFit] = []
    warmup, options = study.setup.schedule.warmup, Options(study.resamples)
    for start in (round(part * study.tokens) for part in study.starts):
        try:
            how = {"warmup": warmup, "since": start, "options": options}
            fits += [fit_curve(pilots, clock=clock, **how) for clock in CLOCKS]
        except InputError as error:
            say(f"no law of losses since {start:,} tokens: {error}")
    return sorted(fits, key=cv_error)


def cv_error(fit: CurveFit) -> float:
    """Return the error of log loss at the ends of left-out pilots; infinite with too few."""
    return math.inf if fit.cv_error is None else fit.cv_error


def chosen_fit(fits: Sequence[CurveFit]) -> CurveFit | None:
    """Return the first fit that applies to changing batch sizes, else the first."""
    for fit in fits:
        try:
            check_identified(fit, batch_changes=True)
        except InputError as error:
            say(f"the law since {fit.since:,} tokens, {fit.clock} clock: {error}")
            continue
        say(f"the law since {fit.since:,} tokens, {fit.clock} clock: {cv_error(fit):.2g} log loss")
        return fit
    return fits[0] if fits else None


def law_schedules(study: Study, fit: CurveFit | None, base: RunConfig) -> dict[str, BatchSchedule]:
    """Return the schedules of the lowest predicted loss in each LR phase, by their names in LAW.

    They are over the tokens of the base run at the shared LR. Batch sizes are whole numbers of
    shape buckets, from the smallest measured to the study's large one.
    """
    schedules: dict[str, BatchSchedule] = {}
    if fit is None:
        return schedules
    shapes = lr_shapes(study.shared_rate, base.schedule.tokens, base.schedule.warmup, study.decay)
    limits = Limits(multiple_of=batch_unit(study.setup), max_batch=study.large)
    for phase, shape in shapes.items():
        try:
            basis = Basis(fit.seq_len, fit, rate=shape)
            schedules[LAW[phase]] = FunctionalBest()(basis, base.schedule.tokens, limits)
        except InputError as error:
            say(f"{LAW[phase]}: no schedule; {error}")
            continue
        loss = schedule_losses(fit, schedules[LAW[phase]], base.schedule.tokens, shape)[0]
        say(f"{LAW[phase]}: {schedules[LAW[phase]]}, predicted final loss {float(loss):.4f}")
    return schedules


def lr_shapes(peak: float, tokens: int, warmup: int, decay: float) -> dict[str, Rate]:
    """Return the LR over tokens in each LR phase; a last fraction `decay` falls to zero."""
    return {
        "constant": replace(constant(peak, warmup), total=tokens),
        "decay": wsd(peak, tokens, warmup, round(decay * tokens)),
        "cosine": cosine(peak, tokens, warmup),
    }
