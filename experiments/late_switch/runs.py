"""The runs of a late-switch study: its schedules under each learning rate, as branches.

What they cost, and how they are trained: each part on what the parts before it found.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from bss.laws import CurveFit
from bss.schedules.batch import BatchSchedule
from bss.sweeps.branching import branched, decayed, shared
from bss.sweeps.contenders import Contender, constant_contenders
from bss.sweeps.grid import overlay, seeded
from bss.sweeps.price import price
from bss.sweeps.setup import planned_run
from bss.sweeps.trainer import Trainer
from bss.training.run_config import RunConfig
from experiments.late_switch.law import LAW, chosen_fit, fit_pilots, law_schedules, seed_means
from experiments.late_switch.study import Entry, Study
from experiments.study import say


def switching(study: Study, base: RunConfig, constants: Sequence[Contender]) -> list[Contender]:
    """The study's schedules at constant rate, as branches of the constants and of each other."""
    alone, branching = [], []
    for entry in study.schedules:
        entries = of_entry(study, base, entry)
        (alone if entry.alone else branching).extend(entries)
    return [*alone, *sharing(branching, constants, study.fork_tokens)]


def going_on(study: Study, constants: Sequence[Contender]) -> list[Contender]:
    """The large batch at the shared rate over more tokens, from its last checkpoint."""
    branches, large = [], (BatchSchedule.constant(study.large), study.shared_rate)
    for contender in constants if study.continued > 1 else ():
        run = contender.run
        kind = run.schedule.batch, run.optimizer.lr
        if kind == large and run.seed in study.continued_seeds:
            longer = overlay(run, {"schedule.tokens": round(study.continued * study.tokens)})
            branch = branched(longer, [run], study.fork_tokens)
            branches.append(
                Contender(f"{contender.name} continued", "constant", "constant", branch)
            )
    return branches


def by_law(
    study: Study,
    base: RunConfig,
    schedules: dict[str, BatchSchedule],
    known: Sequence[Contender],
) -> dict[str, list[Contender]]:
    """The law's schedules at the shared rate, by the kind of rate that each is for.

    Those for constant rate branch from known runs; the others are from the start, to be decayed.
    """
    by_rate: dict[str, list[Contender]] = {}
    for kind, name in LAW.items():
        by_rate[kind] = []
        if name in schedules:
            entry = Entry(name, str(schedules[name]), (study.shared_rate,))
            by_rate[kind] += of_entry(study, base, entry)
    by_rate["constant"] = sharing(by_rate["constant"], known, study.fork_tokens)
    return by_rate


def decaying(
    study: Study, contenders: Sequence[Contender], known: Sequence[Contender]
) -> list[Contender]:
    """The contenders with their last tokens decayed to zero, each from the nearest checkpoint."""
    trained = [contender.run for contender in known]
    runs = [branched(decayed(c.run, study.decay), trained, study.fork_tokens) for c in contenders]
    return [replace(c, ending="decay", run=run) for c, run in zip(contenders, runs, strict=True)]


def under_cosine(
    study: Study, base: RunConfig, lawful: Sequence[Contender]
) -> tuple[list[Contender], list[int]]:
    """Every constant and every schedule under a cosine, and where they keep checkpoints, in tokens.

    The law's schedules are given as from the start at constant rate.
    """
    entries = [Entry(f"constant {batch}", str(batch), study.rates[batch]) for batch in study.rates]
    entries += [entry for entry in study.schedules if entry.until == 1]
    entrants = [c for entry in entries for c in of_entry(study, base, entry)]
    entrants = [cosined(contender, study.cosine) for contender in [*entrants, *lawful]]
    starts = {start for c in entrants for start in c.run.schedule.batch.starts[1:]}
    return sharing(entrants, [], sorted(starts)), sorted(starts)


def of_entry(study: Study, base: RunConfig, entry: Entry) -> Iterator[Contender]:
    """The contender of a schedule at each rate and seed, from the start; see `sharing`."""
    whole = base.schedule.tokens
    # Shares are of the whole budget, so they are resolved before the run is cut short.
    schedule = study.schedule(entry)
    role = "constant" if len(schedule.batches) == 1 else "schedule"
    role = "late" if study.switches_once(entry) else role
    fixed = {"schedule.batch": str(schedule), "schedule.tokens": round(entry.until * whole)}
    for changes in seeded({"seed": study.seeds, "optimizer.lr": study.rates_of(entry)}):
        yield Contender(entry.name, role, "constant", overlay(base, {**fixed, **changes}))


def sharing(
    contenders: Sequence[Contender], known: Sequence[Contender], forks: Sequence[int]
) -> list[Contender]:
    """The contenders in order, each branching from a known run or from one before it."""
    runs = shared([c.run for c in contenders], [c.run for c in known], forks)
    return [replace(c, run=run) for c, run in zip(contenders, runs, strict=True)]


def cosined(contender: Contender, part: float) -> Contender:
    """The contender over a part of its tokens, with a cosine from its peak to zero."""
    run = contender.run
    schedule = run.schedule.batch
    starts = tuple(round(start * part) for start in schedule.starts)
    changes = {
        "schedule.rate": "cosine",
        "schedule.tokens": round(part * run.schedule.tokens),
        "schedule.batch": str(BatchSchedule(starts, schedule.batches)),
    }
    return replace(contender, ending="cosine", run=overlay(run, changes))


def is_whole(study: Study, contender: Contender) -> bool:
    """Whether it takes all tokens; others serve the best switch point alone."""
    return contender.run.schedule.tokens == study.tokens


def say_price(study: Study) -> None:
    """Prints what each part costs, the law's schedules as if from the start; no data are read."""
    base = planned_run(study.setup)
    constants = list(constant_contenders(base, study.rates, study.seeds))
    switched = switching(study, base, constants)
    stable = [*constants, *switched]
    stages = BatchSchedule.stages([study.small, study.large], study.tokens)
    lawful = by_law(study, base, dict.fromkeys(LAW.values(), stages), [])
    whole = [c for c in stable if is_whole(study, c)]
    parts = {
        "constants": constants,
        "switches": [*switched, *going_on(study, constants)],
        "law": lawful["constant"],
        "WSD": decaying(study, [*whole, *lawful["decay"]], stable),
        "cosine": under_cosine(study, base, lawful["cosine"])[0],
    }
    prices = {name: price([c.run for c in some]) for name, some in parts.items()}
    for name, cost in prices.items():
        say(f"{name}: {cost}")
    study.print_hours(prices)


@dataclass(frozen=True)
class TrainedRuns:
    """What a study trained, and the law on the way.

    Attributes:
        stable: constants, switches and the law's schedule, all at constant rate.
        continued: the large batch over more tokens.
        decays: of the stable that take all tokens, with their last part decayed to zero.
        cosines: from the start.
        pilots: what the law was fitted to,
        means: their curves, seeds averaged.
        fits: the law from every start, with each clock.
        fit: the one that is used.
        lawful: the schedules that it recommends, by name.
    """

    stable: list[Contender]
    continued: list[Contender]
    decays: list[Contender]
    cosines: list[Contender]
    pilots: list[Contender]
    means: pd.DataFrame
    fits: list[CurveFit]
    fit: CurveFit | None
    lawful: dict[str, BatchSchedule]


def train(study: Study, base: RunConfig, trainer: Trainer) -> TrainedRuns:
    """Trains all parts, and fits the law on the way."""
    forks = study.fork_tokens
    constants = list(constant_contenders(base, study.rates, study.seeds))
    constants = trainer.contend(constants, "1/5 constants", forks)
    switched = switching(study, base, constants)
    stable = [*constants, *trainer.contend(switched, "2/5 switches", forks)]
    continued = going_on(study, constants)
    continued = trainer.contend(continued, "2/5 the large batch goes on", forks)

    say("fitting the functional law")
    pilots = [c for c in stable if c.role in ("constant", "late") and is_whole(study, c)]
    means = seed_means(trainer.runs, [c.run for c in pilots])
    fits = fit_pilots(study, means)
    fit = chosen_fit(fits)
    lawful = law_schedules(study, fit, base)

    by_rate = by_law(study, base, lawful, stable)
    stable += trainer.contend(by_rate["constant"], "3/5 the law's schedules", forks)
    whole = [c for c in stable if is_whole(study, c)]
    decays = decaying(study, [*whole, *by_rate["decay"]], stable)
    decays = trainer.contend(decays, "4/5 WSD", forks)
    cosines, own = under_cosine(study, base, by_rate["cosine"])
    cosines = trainer.contend(cosines, "5/5 cosine", own)
    return TrainedRuns(stable, continued, decays, cosines, pilots, means, fits, fit, lawful)
