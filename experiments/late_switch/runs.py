"""Schedules as runs that share what they have in common: each branches as late as it can.

Two runs are one until their batches or their rates part, so a schedule is trained from the last
checkpoint that another run of the same seed and rate keeps before that point (derived here).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bss.schedules.batch import BatchSchedule
from bss.sweeps.grid import overlay
from bss.training.config import Parent, RunConfig
from bss.training.execution import Execution
from experiments.es_curve.__main__ import Contender, decay_start
from experiments.late_switch.law import LAW
from experiments.late_switch.study import Entry, Study
from experiments.study import seeded


def switching(
    study: Study, base: RunConfig, constants: Sequence[Contender], execution: Execution
) -> list[Contender]:
    """The study's schedules at constant rate, as branches of the constants and of each other."""
    alone, branching = [], []
    for entry in study.schedules:
        found = of_entry(study, base, entry)
        (alone if entry.alone else branching).extend(found)
    return [*alone, *shared(branching, [c.run for c in constants], execution)]


def going_on(study: Study, constants: Sequence[Contender], execution: Execution) -> list[Contender]:
    """The large batch at the shared rate over more tokens, from its last checkpoint."""
    found = []
    for contender in constants if study.continued > 1 else ():
        run = contender.run
        if (
            run.schedule.batch == str(study.large)
            and run.optimizer.lr == study.shared_rate
            and run.seed in study.continued_seeds
        ):
            longer = overlay(run, {"schedule.tokens": round(study.continued * study.tokens)})
            branch = branched(longer, [run], execution)
            found.append(Contender(f"{contender.name} continued", "constant", "constant", branch))
    return found


def by_law(
    study: Study,
    base: RunConfig,
    schedules: dict[str, BatchSchedule],
    known: Sequence[Contender],
    execution: Execution,
) -> dict[str, list[Contender]]:
    """The law's schedules at the shared rate, by the kind of rate that each is for.

    Those for constant rate branch from known runs; the others are from the start, to be decayed.
    """
    found: dict[str, list[Contender]] = {}
    for kind, name in LAW.items():
        schedule = [schedules[name]] if name in schedules else []
        entries = [Entry(name, str(one), (study.shared_rate,)) for one in schedule]
        found[kind] = [contender for entry in entries for contender in of_entry(study, base, entry)]
    found["constant"] = shared(found["constant"], [c.run for c in known], execution)
    return found


def decaying(
    study: Study,
    contenders: Sequence[Contender],
    known: Sequence[Contender],
    execution: Execution,
) -> list[Contender]:
    """The contenders with their last tokens decayed to zero, each from the nearest checkpoint."""
    trained = [contender.run for contender in known]
    found = [decayed(contender, study.decay) for contender in contenders]
    return [replace(c, run=branched(c.run, trained, execution)) for c in found]


def under_cosine(
    study: Study, base: RunConfig, lawful: Sequence[Contender], execution: Execution
) -> tuple[list[Contender], Execution]:
    """Every constant and every schedule under a cosine, and where they keep checkpoints.

    Args:
        study: with the part of the tokens that they have.
        base: the run that they overlay.
        lawful: the law's schedules, from the start at constant rate.
        execution: of the others.
    """
    constants = [
        Entry(f"constant {batch}", str(batch), rates) for batch, rates in study.rates.items()
    ]
    entries = [*constants, *(entry for entry in study.schedules if entry.until == 1)]
    found = [c for entry in entries for c in of_entry(study, base, entry)]
    found = [cosined(contender, study.cosine) for contender in [*found, *lawful]]
    starts = {start for contender in found for start in _batches(contender.run).starts[1:]}
    own = replace(execution, forks=tuple(sorted(starts)))
    return shared(found, [], own), own


def of_entry(study: Study, base: RunConfig, entry: Entry) -> Iterator[Contender]:
    """The contender of a schedule at each rate and seed, from the start; see `shared`."""
    whole = base.schedule.tokens
    # Shares are of the whole budget, so they are resolved before the run is cut short.
    schedule = study.schedule(entry)
    role = "constant" if len(schedule.batches) == 1 else "schedule"
    role = "late" if study.switches_once(entry) else role
    fixed = {"schedule.batch": str(schedule), "schedule.tokens": round(entry.until * whole)}
    for changes in seeded({"seed": study.seeds, "optimizer.lr": study.rates_of(entry)}):
        yield Contender(entry.name, role, "constant", overlay(base, {**fixed, **changes}))


def shared(
    contenders: Sequence[Contender], known: Sequence[RunConfig], execution: Execution
) -> list[Contender]:
    """The contenders in order, each branching from a known run or from one before it."""
    trained = list(known)
    found = []
    for contender in contenders:
        run = branched(contender.run, trained, execution)
        trained.append(run)
        found.append(replace(contender, run=run))
    return found


def branched(run: RunConfig, known: Sequence[RunConfig], execution: Execution) -> RunConfig:
    """The run as a branch of the known run it shares most with; itself where it shares nothing.

    Args:
        run: from the start, without a parent.
        known: trained before it.
        execution: its forks are where known runs keep checkpoints, in tokens.
    """
    whole = run.schedule.tokens
    limit = decay_start(whole, run.schedule.decay / whole)
    best = (0, False)
    found = run
    for other in known:
        if _but_batch(other) != _but_batch(run):
            continue
        last = min(limit, agreement(_batches(run), _batches(other)), other.schedule.tokens)
        at = max((fork for fork in execution.forks if other.start < fork <= last), default=0)
        same = other.schedule.batch == run.schedule.batch
        if same and not run.schedule.decay and whole <= other.schedule.tokens:
            return other
        if (at, same) > best:
            best = (at, same)
            boundary = other.plan(execution.buckets or None).next_boundary(at)
            found = overlay(run, {"parent": vars(Parent(other.id, boundary))})
    return found


def agreement(first: BatchSchedule, second: BatchSchedule) -> float:
    """The count up to which two schedules are one; infinite where they are equal."""
    starts = sorted({*first.starts, *second.starts})
    return next((s for s in starts if first(s) != second(s)), float("inf"))


def decayed(contender: Contender, decay: float) -> Contender:
    """The contender from the start with its last tokens decayed to zero."""
    whole = contender.run.schedule.tokens
    changes = {"schedule.decay": whole - decay_start(whole, decay), "parent": None}
    return replace(contender, rate="decay", run=overlay(contender.run, changes))


def cosined(contender: Contender, part: float) -> Contender:
    """The contender over a part of its tokens, with a cosine from its peak to zero."""
    run = contender.run
    schedule = _batches(run)
    starts = tuple(round(start * part) for start in schedule.starts)
    changes = {
        "schedule.rate": "cosine",
        "schedule.tokens": round(part * run.schedule.tokens),
        "schedule.batch": str(BatchSchedule(starts, schedule.batches)),
    }
    return replace(contender, rate="cosine", run=overlay(run, changes))


def _batches(run: RunConfig) -> BatchSchedule:
    return BatchSchedule.parse(run.schedule.batch, total=run.schedule.tokens)


def _but_batch(run: RunConfig) -> RunConfig:
    """What two runs must share to be one until their batches part."""
    schedule = replace(run.schedule, batch="1")
    if schedule.rate == "wsd":
        schedule = replace(schedule, decay=0, tokens=1)
    return replace(run, schedule=schedule, parent=None)
