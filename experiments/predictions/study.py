"""What is asked of a law of loss curves: schedules drawn from a seed, and what it is fitted to."""

from dataclasses import dataclass
from pathlib import Path

from bss.predictions.draw import Drawn, Ranges, draw
from experiments.study import SweepStudy, check_counts, check_parts


@dataclass(frozen=True, kw_only=True)
class Study(SweepStudy):
    """The question.

    Attributes:
        name: of the registration.
        predictions: directory of registrations.
        pilots: results of a late-switch study on the same setup: runs.parquet and every_rate.csv.
        fitted: names of its runs that the law is fitted to, at every rate and with every ending.
        exclusions: what it is not fitted to, and why.
        since: part of the tokens before which their losses are left out of the fit.
        schedules: how many are drawn,
        draw: from this seed,
        batches: of these batches, in sequences,
        peaks: and of peak rates between these two.
        switches: first and last part of the tokens at which a batch changes.
        decay: last part of the tokens decayed to zero, where the ending is "wsd".
    """

    name: str
    predictions: str
    pilots: str
    fitted: tuple[str, ...]
    exclusions: tuple[str, ...]
    since: float
    schedules: int
    draw: int
    batches: tuple[int, ...]
    peaks: tuple[float, float]
    switches: tuple[float, float]
    decay: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "schedules")
        check_parts(self, "since", "decay")
        _ = self.ranges  # refuses what nothing can be drawn from

    @property
    def file(self) -> Path:
        """The registration."""
        return Path(self.predictions) / f"{self.name}.json"

    @property
    def ranges(self) -> Ranges:
        """What is drawn from; tokens and warm-up are those of the setup."""
        whole = self.setup.schedule
        return Ranges(
            whole.tokens, self.batches, self.peaks, self.switches, whole.warmup, self.decay
        )

    @property
    def drawn(self) -> tuple[Drawn, ...]:
        """The schedules."""
        return draw(self.ranges, self.draw, self.schedules)
