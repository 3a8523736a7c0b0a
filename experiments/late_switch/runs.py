"""The runs of a late-switch study: its schedules under each learning rate, as branches."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bss.schedules.batch import BatchSchedule
from bss.sweeps.branching import branched, decayed, shared
from bss.sweeps.contenders import Contender
from bss.sweeps.grid import overlay, seeded
from bss.training.config import RunConfig
from experiments.late_switch.law import LAW
from experiments.late_switch.study import Entry, Study


def switching(study: Study, base: RunConfig, constants: Sequence[Contender]) -> list[Contender]:
    """The study's schedules at constant rate, as branches of the constants and of each other."""
    alone, branching = [], []
    for entry in study.schedules:
        found = of_entry(study, base, entry)
        (alone if entry.alone else branching).extend(found)
    return [*alone, *sharing(branching, constants, study.fork_tokens)]


def going_on(study: Study, constants: Sequence[Contender]) -> list[Contender]:
    """The large batch at the shared rate over more tokens, from its last checkpoint."""
    found = []
    for contender in constants if study.continued > 1 else ():
        run = contender.run
        if (
            run.schedule.batch == BatchSchedule.constant(study.large)
            and run.optimizer.lr == study.shared_rate
            and run.seed in study.continued_seeds
        ):
            longer = overlay(run, {"schedule.tokens": round(study.continued * study.tokens)})
            branch = branched(longer, [run], study.fork_tokens)
            found.append(Contender(f"{contender.name} continued", "constant", "constant", branch))
    return found


def by_law(
    study: Study,
    base: RunConfig,
    schedules: dict[str, BatchSchedule],
    known: Sequence[Contender],
) -> dict[str, list[Contender]]:
    """The law's schedules at the shared rate, by the kind of rate that each is for.

    Those for constant rate branch from known runs; the others are from the start, to be decayed.
    """
    found: dict[str, list[Contender]] = {}
    for kind, name in LAW.items():
        schedule = [schedules[name]] if name in schedules else []
        entries = [Entry(name, str(one), (study.shared_rate,)) for one in schedule]
        found[kind] = [contender for entry in entries for contender in of_entry(study, base, entry)]
    found["constant"] = sharing(found["constant"], known, study.fork_tokens)
    return found


def decaying(
    study: Study,
    contenders: Sequence[Contender],
    known: Sequence[Contender],
) -> list[Contender]:
    """The contenders with their last tokens decayed to zero, each from the nearest checkpoint."""
    trained = [contender.run for contender in known]
    runs = [branched(decayed(c.run, study.decay), trained, study.fork_tokens) for c in contenders]
    return [replace(c, ending="decay", run=run) for c, run in zip(contenders, runs, strict=True)]


def under_cosine(
    study: Study, base: RunConfig, lawful: Sequence[Contender]
) -> tuple[list[Contender], list[int]]:
    """Every constant and every schedule under a cosine, and where they keep checkpoints, in tokens.

    Args:
        study: with the part of the tokens that they have.
        base: the run that they overlay.
        lawful: the law's schedules, from the start at constant rate.
    """
    constants = [
        Entry(f"constant {batch}", str(batch), rates) for batch, rates in study.rates.items()
    ]
    entries = [*constants, *(entry for entry in study.schedules if entry.until == 1)]
    found = [c for entry in entries for c in of_entry(study, base, entry)]
    found = [cosined(contender, study.cosine) for contender in [*found, *lawful]]
    starts = {start for c in found for start in c.run.schedule.batch.starts[1:]}
    return sharing(found, [], sorted(starts)), sorted(starts)


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
