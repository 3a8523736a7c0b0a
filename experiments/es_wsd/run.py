"""Train every arm of a part at every model size and seed, with decays from its checkpoints.

    python -m experiments.es_wsd --config=configs/es_wsd.py:a1

A part is a list of arms (a batch size or batch schedule, and other changes of a run), model sizes
and seeds. All runs of one seed share initialization and data order. `analysis.py` reads the tables
that are written here: runs.parquet (loss curves) and finals.csv (final losses, per LR phase).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bss.sweeps.branching import decay_start, shared
from bss.sweeps.contenders import Contender, decaying
from bss.sweeps.grid import overlay
from bss.training.run_config import RunConfig
from experiments.study import PricedStudy, train_arms


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One compared run.

    Attributes:
        batch: Batch size in sequences, or a batch schedule as text.
        name: Name in tables.
        role: "constant", "schedule" or "late", see `bss.stats.ROLES`.
        changes: Other fields of the run by dotted name.
        group: Arms of one group are compared with each other.
    """

    batch: str
    name: str = ""
    role: str = "constant"
    changes: Mapping[str, Any] = field(default_factory=dict)
    group: str = ""


@dataclass(frozen=True, kw_only=True)
class Study(PricedStudy):
    """One part of the experiment.

    Attributes:
        models: Model sizes by name in tables; a named size or a group of fields.
        arms: Compared runs.
        ends: Token counts, as fractions of the token budget, at which a decay branch ends.
        forks: Token counts at which runs keep a checkpoint. If there are any, a run starts from the
            last one that it shares with an arm before it.
        decay: Last fraction of the tokens of a branch, over which the LR decays to zero.
    """

    models: Mapping[str, Any]
    arms: tuple[Arm, ...]
    ends: tuple[float, ...] = ()
    forks: tuple[int, ...] = ()
    decay: float = 0.2

    @property
    def stops(self) -> list[int]:
        """Token counts at which decay branches end."""
        return [round(end * self.setup.schedule.tokens) for end in self.ends]


def experiment(study: Study) -> None:
    """Train a part and write its tables; print its cost if it is a dry run."""
    starts = [decay_start(stop, study.decay) for stop in study.stops]
    train_arms(study, arms, decayed, sorted({*starts, *study.forks}))


def arms(study: Study, base: RunConfig) -> list[Contender]:
    """Return every arm at every model size and seed, at constant LR."""
    found = []
    for model, fields in study.models.items():
        for arm in study.arms:
            for seed in study.seeds:
                changes = {"model": fields, "schedule.batch": arm.batch, **arm.changes}
                run = overlay(base, changes | {"seed": seed, "data.seed": seed})
                lr_phase = "cosine" if run.schedule.rate == "cosine" else "constant"
                name = arm.name or arm.batch
                found.append(Contender(name, arm.role, lr_phase, run, model, arm.group))
    if not study.forks:
        return found
    runs = shared([one.run for one in found], [], study.forks)
    return [replace(one, run=run) for one, run in zip(found, runs, strict=True)]


def decayed(study: Study, constant: Sequence[Contender]) -> list[Contender]:
    """Return the decay branches of arms at every end of the study."""
    return [
        decaying(replace(arm, run=overlay(arm.run, {"schedule.tokens": stop})), study.decay)
        for arm in constant
        for stop in study.stops
    ]
