"""What a study of E(S) at one shared learning rate asks, and what it refuses."""

from dataclasses import dataclass

from bss.errors import InputError
from bss.policies import POLICIES
from experiments.study import SweepStudy, check_counts, check_parts


@dataclass(frozen=True, kw_only=True)
class Study(SweepStudy):
    """The question: which batches, how long, what the schedule is tested against.

    Attributes:
        batches: constant batches, in sequences.
        targets: how many target losses.
        stages: of the derived schedule.
        decay: last part of the tokens decayed to zero in the second comparison.
        late_at: part of the tokens at which the late switch grows the batch.
        late_factor: and by how much.
        policies: whose schedules compete too, by name: registered, or package.module:ATTRIBUTE.
    """

    batches: tuple[int, ...]
    seeds: tuple[int, ...] = (0,)
    targets: int = 5
    stages: int = 4
    decay: float = 0.2
    late_at: float = 0.7
    late_factor: int = 8
    policies: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "targets", "stages", "late_factor")
        check_parts(self, "decay", "late_at")
        self.setup.schedule.check_decay()
        if self.late_at > 1 - self.decay:
            raise InputError(
                f"late_at is {self.late_at}; expected at most 1 - decay, {1 - self.decay:g}, so "
                "that the late switch comes before the decay"
            )
        for name in self.policies:
            POLICIES[name]
        if len(set(self.batches)) < 4:
            raise InputError(
                f"batches are {list(self.batches)}; expected 4 different ones or more, so that "
                "the laws can be judged on one left out"
            )
