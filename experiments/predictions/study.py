"""What is asked of a law of loss curves: schedules drawn from a seed, and what was known before.

That is mean curves of pilots, which it is fitted to, and their constants as a baseline.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.predictions.draw import Drawn, Ranges, draw
from bss.predictions.registration import Prediction, Registration
from bss.sweeps.grid import overlay, seeded
from bss.tables.columns import need
from bss.tables.storage import read_table
from bss.training.config import RunConfig
from experiments.late_switch.law import mean_curves
from experiments.study import SweepStudy, check_counts, check_parts

METRIC = "eval_loss"
"""What the law is fitted to along a curve, and so what it predicts at the end."""
ENDINGS = {"constant": "constant", "wsd": "decay", "cosine": "cosine"}
"""What the tables of the pilots call them."""
STEPS = "constant of equal steps"
RULE = (
    f"mean {METRIC} over seeds of the constants in {{table}} of the same ending, at the schedule's "
    "mean batch (tokens over steps) and peak rate: linear in log rate at each batch, then in log "
    "batch; a peak outside the rates of a batch is taken at the nearest of them: {clamped}"
)


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


def curves(study: Study) -> pd.DataFrame:
    """The pilots that the law is fitted to, a run table; the seeds of a schedule are one mean.

    Raises:
        InputError: the table lacks a pilot, or holds a seed that is to be unseen.
    """
    table, origin = read_table(Path(study.pilots) / "runs.parquet")
    need(table, origin, "name", "ending", "peak_lr", "seed", METRIC)
    for seed in sorted({*study.seeds} & {*table["seed"]}):
        raise InputError(f"seeds: {seed} is in {origin.source}; choose those that no fit has seen")
    for name in study.fitted:
        if name not in set(table["name"]):
            raise InputError(f"fitted: {name!r} is no run of {origin.source}; name those that are")
    some = table.loc[table["name"].isin(study.fitted)]
    runs = some["name"] + ", " + some["ending"] + " at " + some["peak_lr"].map("{:g}".format)
    return mean_curves(some.assign(run=runs))


def constants(study: Study) -> pd.DataFrame:
    """Final losses of the pilots' constants, of all seeds: ending, batch, peak_lr and METRIC."""
    table, origin = read_table(Path(study.pilots) / "every_rate.csv")
    need(table, origin, "role", "ending", "batch", "peak_lr", METRIC)
    return table.loc[table["role"] == "constant"].astype({"batch": int})


def equal_steps(finals: pd.DataFrame, one: Drawn) -> tuple[float, bool]:
    """The loss of the constant of as many steps in nats, and whether a rate had to be clamped.

    Args:
        finals: as `constants` has them.
        one: a schedule whose mean batch is within theirs.

    Raises:
        InputError: there are none of its ending, or its mean batch is outside those measured.
    """
    some = finals.loc[finals["ending"] == ENDINGS[one.ending]]
    batches = np.unique(some["batch"].to_numpy(float))
    size = one.schedule.batch.mean_batch(one.schedule.tokens)
    if not (len(batches) and batches[0] <= size <= batches[-1]):
        raise InputError(
            f"schedule {one.name}: its mean batch is {size:.3g}, and constants of its ending were "
            f"measured at {', '.join(f'{b:g}' for b in batches) or 'none'}; narrow batches"
        )
    around = batches[[np.searchsorted(batches, size, "right") - 1, np.searchsorted(batches, size)]]
    losses, clamped = [], False
    for batch in around:
        means = some.loc[some["batch"] == batch].groupby("peak_lr")[METRIC].mean()
        rates = means.index.to_numpy(float)
        clamped |= not rates[0] <= one.peak_lr <= rates[-1]
        losses.append(np.interp(math.log(one.peak_lr), np.log(rates), means.to_numpy(float)))
    return float(np.interp(math.log(size), np.log(around), losses)), bool(clamped)
