"""The runs of a schedule: one a seed, from the start."""

from dataclasses import replace

from bss.errors import InputError
from bss.predictions.draw import Drawn
from bss.predictions.registration import Prediction, Registration
from bss.sweeps.grid import overlay, seeded
from bss.training.config import RunConfig
from experiments.predictions.study import Study


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
