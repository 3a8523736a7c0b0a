"""What a part of the study asks: rules of the second moment, batches under them, seeds."""

from dataclasses import dataclass, field

from bss.errors import InputError
from bss.schedules.batch import BatchSchedule
from bss.sweeps.branching import decay_start
from experiments.study import SweepStudy, check_counts, check_names, check_parts


@dataclass(frozen=True)
class Rule:
    """How the optimizer's averages follow the batch, or one thing about it that is changed.

    Attributes:
        name: in the tables.
        changes: fields of its runs, by dotted names.
    """

    name: str
    changes: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Arm:
    """One batch under one rule.

    Attributes:
        rule: by name.
        batch: a constant or a schedule as text, "4" or "0:1 20%:8".
        rates: learning rates that it is tried at, rising.
    """

    rule: str
    batch: str
    rates: tuple[float, ...]

    @property
    def name(self) -> str:
        """Of its runs in the tables."""
        return f"{self.rule} · {self.batch}"


@dataclass(frozen=True, kw_only=True)
class Study(SweepStudy):
    """A part of the question.

    Attributes:
        rules: of the second moment, and controls.
        arms: what is trained.
        choosing: how many seeds, the first ones, an arm's rate is chosen on; the others are
            trained at the chosen rates alone, and judged.
        widen: how often an arm whose best rate is at an end is tried at one rate more beyond it.
        decay: last part of the tokens decayed to zero.
    """

    rules: tuple[Rule, ...]
    arms: tuple[Arm, ...]
    choosing: int = 2
    widen: int = 2
    decay: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "choosing")
        check_parts(self, "decay")
        self.setup.schedule.check_decay()
        known = [rule.name for rule in self.rules]
        check_names("rules", known)
        check_names("arms", [arm.name for arm in self.arms])
        for arm in self.arms:
            if arm.rule not in known:
                raise InputError(f"arms: rule {arm.rule!r}; expected one of {', '.join(known)}")
            if not arm.rates or list(arm.rates) != sorted(set(arm.rates)):
                raise InputError(f"arms: {arm.name} has rates {arm.rates}; expected rising ones")
            if self.schedule(arm).starts[-1] >= decay_start(self.tokens, self.decay):
                raise InputError(
                    f"arms: {arm.name} changes its batch in the decay; expected its last change "
                    f"before {1 - self.decay:.0%} of the tokens"
                )
        if self.choosing >= len(self.seeds) and any(len(arm.rates) > 1 for arm in self.arms):
            raise InputError(
                f"choosing is {self.choosing} of {len(self.seeds)} seeds; leave some that are "
                "judged, or give every arm one rate"
            )
        self.check_averages()

    def schedule(self, arm: Arm) -> BatchSchedule:
        """The batches of an arm, over the tokens."""
        return BatchSchedule.parse(arm.batch, total=self.tokens)

    @property
    def forks(self) -> tuple[int, ...]:
        """Where runs keep a checkpoint for branches: batch changes, and the decay."""
        changes = {start for arm in self.arms for start in self.schedule(arm).starts[1:]}
        return tuple(sorted(changes | {decay_start(self.tokens, self.decay)}))
