"""What a part of the study asks: beta1 of each batch, what leaves a run, seeds."""

from dataclasses import dataclass, field

from bss.errors import InputError
from bss.sweeps.branching import decay_start
from experiments.study import SweepStudy, check_names

KEPT = 0.9
"""beta1 of the arms that forks leave."""


@dataclass(frozen=True)
class Arm:
    """One constant batch with one beta1.

    Attributes:
        batch: in sequences.
        beta1: per step.
        rates: learning rates that it is tried at.
        judged: those that are judged whichever is chosen.
    """

    batch: int
    beta1: float
    rates: tuple[float, ...]
    judged: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """In what is told."""
        return f"batch {self.batch}, beta1 {self.beta1:g}"


@dataclass(frozen=True)
class Fork:
    """What goes on otherwise from a checkpoint of an arm, at the rate chosen for that.

    Attributes:
        name: in the config.
        batch: of the arm, whose beta1 is KEPT.
        at: part of the tokens at which it leaves.
        grow: factor of the batch from there.
        stop: where it stops, as a multiple of the tokens.
        changes: fields of the run, by dotted names.
    """

    name: str
    batch: int
    at: float
    grow: int = 1
    stop: float = 1.0
    changes: dict = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Study(SweepStudy):
    """A part of the question.

    Attributes:
        registration: the file of what is expected, which its runs record; empty for none.
        arms: what is trained from the start.
        forks: what leaves it.
        choosing: seeds on which an arm's rate is chosen, by decayed held-out losses.
        choosing_tokens: of their runs. The other seeds are judged.
        chosen: finals.csv that has these runs already; empty to train them.
        together: how many seeds are trained at a time.
        decay: last part of the tokens decayed to zero, in branches; 0 for none.
    """

    registration: str
    arms: tuple[Arm, ...]
    forks: tuple[Fork, ...] = ()
    choosing: tuple[int, ...] = ()
    choosing_tokens: int = 500_000
    chosen: str = ""
    together: int = 4
    decay: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.setup.schedule.check_decay()
        check_names("arms", [arm.name for arm in self.arms])
        several = [arm.name for arm in self.arms if len(arm.rates) > 1]
        if several and not self.choosing:
            raise InputError(f"choosing: none, and {several[0]} has several rates; give seeds")
        if both := {*self.seeds} & {*self.choosing}:
            raise InputError(f"seeds {sorted(both)}: choose and are judged; expected other seeds")
        for fork in self.forks:
            if Arm(fork.batch, KEPT, ()).name not in {arm.name for arm in self.arms}:
                raise InputError(f"forks: {fork.name} leaves batch {fork.batch}, which is no arm")

    @property
    def kept(self) -> tuple[int, ...]:
        """Where runs keep a checkpoint for branches."""
        kept = {round(fork.at * self.tokens) for fork in self.forks}
        if self.decay:
            kept.add(decay_start(self.tokens, self.decay))
        return tuple(sorted(kept))
