"""Train fixed batch sizes and batch switches that are forked from one trunk.

    python -m experiments.late_switch --config=configs/late_switch.py:b1

Runs of one model size and seed share initialization and data order, and each starts from the last
checkpoint of the run it shares most with. `analysis.py` reads the tables that are written here:
runs.parquet (loss curves) and finals.csv (final losses, per LR phase).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bss.errors import InputError
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import Plan
from bss.sweeps.branching import branched, decay_start, shared
from bss.sweeps.branching import decayed as with_decay
from bss.sweeps.contenders import Contender
from bss.sweeps.grid import overlay
from bss.sweeps.setup import planned_run
from bss.training.run_config import RunConfig
from experiments.study import PricedStudy, train_arms


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One compared run.

    Attributes:
        name: Name in tables.
        batch: Batch size in sequences, or a batch schedule as text, e.g. "0:4 70%:16".
        tokens: Token budget of the run; 0 for the budget of the study.
        joins: Name of the arm that it is compared with at equal steps.
        decayed: Whether a second run decays the LR to zero over the last tokens.
        changes: Other fields of the run by dotted name.
        group: Arms of one group are compared with each other.
    """

    name: str
    batch: str
    tokens: int = 0
    joins: str = ""
    decayed: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)
    group: str = ""


@dataclass(frozen=True, kw_only=True)
class Study(PricedStudy):
    """One part of the experiment.

    Attributes:
        arms: Compared runs; a run after those that it is forked from.
        decay: Last fraction of the tokens of a run, over which the LR decays to zero.

    Raises:
        InputError: If two arms of a group have one name, or an arm cannot be trained or compared.
    """

    arms: tuple[Arm, ...]
    decay: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [(arm.group, arm.name) for arm in self.arms]
        if not names or len(set(names)) < len(names):
            raise InputError(f"arms are {names}; expected at least one, each name once")
        for arm in self.arms:
            self._check(arm)

    def tokens_of(self, arm: Arm) -> int:
        """Return the token budget of an arm."""
        return arm.tokens or self.tokens

    def schedule(self, arm: Arm) -> BatchSchedule:
        """Return the batch schedule of an arm; percentages are of its token budget."""
        return BatchSchedule.parse(arm.batch, total=self.tokens_of(arm))

    @property
    def forks(self) -> tuple[int, ...]:
        """Token counts at which runs keep a checkpoint: ends, switches and starts of a decay."""
        points = set[int]()
        for arm in self.arms:
            tokens = self.tokens_of(arm)
            points |= {tokens, *self.schedule(arm).starts[1:]}
            if arm.decayed:
                points.add(decay_start(tokens, self.decay))
        return tuple(sorted(points))

    def _check(self, arm: Arm) -> None:
        tokens = self.tokens_of(arm)
        starts = self.schedule(arm).starts
        last = max(starts)
        if last >= tokens:
            raise InputError(
                f"arm {arm.name}: switches at {last:,} tokens and ends at {tokens:,}; "
                "choose an earlier switch"
            )
        warmup = self.setup.schedule.warmup
        if len(starts) > 1 and starts[1] < warmup:
            raise InputError(
                f"arm {arm.name}: switches at {starts[1]:,} tokens, in the warm-up of {warmup:,}; "
                "choose a larger budget or a later switch"
            )
        if arm.joins:
            self._check_steps(arm, last)

    def _check_steps(self, arm: Arm, switch: int) -> None:
        others = {other.name: other for other in self.arms}
        if arm.joins not in others:
            raise InputError(f"arm {arm.name}: joins {arm.joins!r}; expected one of {[*others]}")
        have = self._plan(others[arm.joins]).steps
        need = self._plan(arm).step_at(switch)
        if have <= need:
            raise InputError(
                f"arm {arm.name}: switches at step {need:,} and {arm.joins} ends at step {have:,}, "
                "so they never meet at equal steps; give that one more tokens"
            )

    def _plan(self, arm: Arm) -> Plan:
        run = planned_run(self.setup)
        changes = {"schedule.tokens": self.tokens_of(arm), "schedule.batch": str(arm.batch)}
        return overlay(run, changes).plan()


def experiment(study: Study) -> None:
    """Train a part and write its tables; print its cost if it is a dry run."""
    train_arms(study, arms, decayed, study.forks)


def arms(study: Study, base: RunConfig) -> list[Contender]:
    """Return every arm at every seed without a decay, each forked as late as it can be."""
    found = []
    for arm in study.arms:
        schedule = study.schedule(arm)
        changes = {"schedule.tokens": study.tokens_of(arm), "schedule.batch": str(schedule)}
        role = "constant" if len(schedule.batches) == 1 else "late"
        role = "schedule" if len(schedule.batches) > 2 else role
        for seed in study.seeds:
            own = {"seed": seed, "data.seed": seed}
            run = overlay(base, changes | dict(arm.changes) | own)
            lr_phase = "cosine" if run.schedule.rate == "cosine" else "constant"
            found.append(Contender(arm.name, role, lr_phase, run, group=arm.group))
    runs = shared([one.run for one in found], [], study.forks)
    return [replace(one, run=run) for one, run in zip(found, runs, strict=True)]


def decayed(study: Study, constant: Sequence[Contender]) -> list[Contender]:
    """Return the runs of arms whose last tokens are decayed to zero, forked from known runs."""
    wanted = {arm.name for arm in study.arms if arm.decayed}
    known = [one.run for one in constant]
    return [
        replace(one, lr_phase="decayed", run=branched(run, known, study.forks))
        for one in constant
        if one.name in wanted
        for run in [with_decay(one.run, study.decay)]
    ]
