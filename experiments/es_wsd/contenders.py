"""The schedules that E(S) under WSD calls for, and who competes with them."""

from collections.abc import Sequence

import pandas as pd

from bss.errors import InputError
from bss.laws import EsFit, fit_es
from bss.laws.fitting.estimate import Options
from bss.points.crossings import optima
from bss.policies.follow_optimum import FollowOptimum
from bss.policies.late_switch import LateSwitch
from bss.policies.law_optimum import LawOptimum
from bss.policies.measured import Measured
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule
from bss.sweeps.contenders import (
    Contender,
    constant_contenders,
    growing_contenders,
    late_contenders,
)
from bss.training.config import RunConfig
from experiments.es_wsd.measure import Laws
from experiments.es_wsd.study import Study
from experiments.study import batch_unit, say


def contenders(
    study: Study,
    base: RunConfig,
    fits: dict[tuple[str, str], Laws],
    measured: dict[tuple[str, str], pd.DataFrame],
) -> tuple[dict[str, BatchSchedule], list[Contender]]:
    """The derived schedules by name, and every contender at its rates and seeds."""
    horizon, unit = study.setup.schedule.tokens, batch_unit(study.setup)
    stable, decayed = measured["stable", "shared"], measured["annealed", "shared"]

    def follow(key: tuple[str, str]) -> BatchSchedule:
        return follow_optimum(fits[key].best, measured[key], horizon, study.stages, unit)

    def switch(batch: int) -> BatchSchedule:
        policy = LateSwitch(study.late_at, study.late_factor, batch)
        return policy(Basis(base.data.seq_len), horizon, Limits())

    derived = {
        "B_opt along the stable loss": follow(("stable", "shared")),
        "B_opt along the annealed loss": follow(("annealed", "shared")),
        "the surface's own optimum": surface_optimum(stable, horizon, study.settle, [*study.rates]),
        "late": switch(best_batch(stable)),
        "late, annealed": switch(best_batch(decayed)),
        "late, tuned": switch(best_batch(measured["annealed", "envelope"])),
    }
    both = ("none", "sqrt")
    common = (base, study.rates, study.seeds)
    heuristic, own, first = (
        derived[name]
        for name in ("B_opt along the stable loss", "the surface's own optimum", "late")
    )
    found = [*constant_contenders(*common, [heuristic, first])]
    found += growing_contenders(*common, "B_opt along the stable loss", heuristic, both)
    annealed_follow = derived["B_opt along the annealed loss"]
    if annealed_follow != heuristic:
        found += growing_contenders(*common, "B_opt along the annealed loss", annealed_follow)
    if len(own.batches) == 2:
        found += late_contenders(*common, own, name="the surface's own optimum")
    found += late_contenders(*common, first, both)
    for other in dict.fromkeys((derived["late, annealed"], derived["late, tuned"])):
        if other != first:
            found += late_contenders(*common, other)
    return derived, found


def follow_optimum(
    fit: EsFit, measured: pd.DataFrame, tokens: int, stages: int, unit: int
) -> BatchSchedule:
    """B_opt along the loss by a law, or by the measured batches where no law identifies it."""
    basis, limits = Basis(fit.seq_len, fit, measured), Limits(stages, unit)
    try:
        return FollowOptimum()(basis, tokens, limits)
    except InputError as error:
        say(f"{error}; the best measured batches are followed")
        return Measured()(basis, tokens, limits)


def surface_optimum(
    measured: pd.DataFrame, tokens: int, settle: float, batches: Sequence[int]
) -> BatchSchedule:
    """The two-stage schedule with the lowest loss by the surface with the Adam clock."""
    clock = fit_es(measured, "surface, Adam clock", options=Options(1))
    limits = Limits(allowed=tuple(batches))
    return LawOptimum(settle)(Basis(clock.seq_len, clock), tokens, limits)


def best_batch(measured: pd.DataFrame) -> int:
    """The batch with the fewest tokens to the lowest target."""
    return int(optima(measured)[-1].batch)
