"""What a study of E(S) under WSD asks, and what it refuses."""

from dataclasses import dataclass

from bss.errors import InputError
from experiments.study import TunedStudy, check_counts, check_parts


@dataclass(frozen=True, kw_only=True)
class Study(TunedStudy):
    """The question.

    Attributes:
        horizons: fractions of the tokens at which a decay branch ends, log-spaced.
        targets: target losses of each E(S).
        stages: of the derived schedules.
        settle: last stage of the surface's own optimum, as a part of the tokens.
        late_at: part of the tokens at which the late switch grows the batch.
        late_factor: and by how much.
    """

    horizons: tuple[float, ...] = (0.25, 0.4, 0.63, 1.0)
    targets: int = 5
    stages: int = 4
    settle: float = 0.25
    late_at: float = 0.7
    late_factor: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "targets", "stages", "late_factor")
        check_parts(self, "late_at", "settle")
        for name, at in (("late_at", self.late_at), ("1 - settle", 1 - self.settle)):
            if not at < 1 - self.decay:
                raise InputError(
                    f"{name} is {at:g}; expected less than 1 - decay, {1 - self.decay:g}, so that "
                    "the batch grows before the decay"
                )
        batches = [entry.batch for entry in self.grid]
        if len(set(batches)) < 4 or len(set(batches)) < len(batches):
            raise InputError(f"grid has batches {batches}; expected 4 or more, each once")
        for entry in self.grid:
            if len(set(entry.rates)) < len(entry.rates) or not entry.rates:
                raise InputError(
                    f"grid: batch {entry.batch} has rates {entry.rates}; name each once"
                )
        ends = self.horizons
        if len(ends) < 4 or list(ends) != sorted(set(ends)) or ends[0] <= 0 or ends[-1] != 1:
            raise InputError(
                f"horizons are {ends}; expected 4 rising parts of the tokens or more, the last 1"
            )
        self.check_averages()

    @property
    def ends(self) -> list[int]:
        """The horizons in tokens."""
        return [round(part * self.setup.schedule.tokens) for part in self.horizons]
