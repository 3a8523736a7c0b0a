"""What is asked of a law of loss curves: schedules drawn from a seed, and what it is fitted to."""

from dataclasses import dataclass, replace
from pathlib import Path

from bss.errors import InputError
from bss.predictions.draw import Drawn, Ranges, draw
from bss.predictions.registration import Prediction, Registration
from bss.sweeps.grid import overlay, seeded
from bss.training.config import RunConfig
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


def runs_of(study: Study, base: RunConfig, one: Drawn | Prediction) -> list[RunConfig]:
    """The runs of a drawn or a registered schedule, in the order of the study's seeds."""
    if one.schedule is None or one.peak_lr is None:
        raise InputError(f"schedule {one.name}: has no schedule or no peak_lr; register it anew")
    own = replace(base, schedule=one.schedule)
    rates = {"seed": study.seeds, "optimizer.lr": (one.peak_lr,)}
    return [overlay(own, changes) for changes in seeded(rates)]


def registered_runs(study: Study, base: RunConfig, registration: Registration) -> list[RunConfig]:
    """The runs that were registered.

    Raises:
        InputError: the study would train others.
    """
    runs = [run for one in registration.predictions for run in runs_of(study, base, one)]
    theirs = registration.runs
    if len(runs) != len(theirs):
        raise InputError(
            f"seeds: {len(runs)} runs are asked for, {len(theirs)} registered; train with the "
            "seeds of the registration"
        )
    for ours, registered in zip(runs, theirs, strict=True):
        if ours.id != registered:
            raise InputError(
                f"run {registered} is registered, this config asks for {ours.id} in its place; "
                "train with the config, the corpus and the seeds of the registration"
            )
    return runs
