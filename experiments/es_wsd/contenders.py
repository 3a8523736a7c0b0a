"""The schedules that E(S) under WSD calls for, and who competes with them."""

import pandas as pd

from bss.errors import InputError
from bss.laws import fit_es
from bss.laws.fitting.estimate import Options
from bss.points.crossings import optima
from bss.policies.follow_optimum import FollowOptimum
from bss.policies.late_switch import LateSwitch
from bss.policies.law_optimum import LawOptimum
from bss.policies.measured import FollowMeasured
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


def derived_schedules(
    study: Study,
    fits: dict[tuple[str, str], Laws],
    measured: dict[tuple[str, str], pd.DataFrame],
) -> dict[str, BatchSchedule]:
    """The schedules that the measurements call for, by name."""
    horizon, seq_len = study.setup.schedule.tokens, study.setup.text.seq_len

    def follow(kind: str) -> BatchSchedule:
        """B_opt along the loss by a law, or by the measured batches where no law identifies it."""
        points = measured[kind, "shared"]
        basis = Basis(seq_len, fits[kind, "shared"].best, points)
        limits = Limits(study.stages, batch_unit(study.setup))
        try:
            return FollowOptimum()(basis, horizon, limits)
        except InputError as error:
            say(f"{error}; the best measured batches are followed")
            return FollowMeasured()(basis, horizon, limits)

    def late(points: pd.DataFrame) -> BatchSchedule:
        """A late switch from the batch with the fewest tokens to the lowest target."""
        policy = LateSwitch(study.late_at, study.late_factor, int(optima(points)[-1].batch))
        return policy(Basis(seq_len), horizon, Limits())

    stable = measured["stable", "shared"]
    clock = Basis(seq_len, fit_es(stable, "surface, Adam clock", options=Options(1)))
    return {
        "B_opt along the stable loss": follow("stable"),
        "B_opt along the annealed loss": follow("annealed"),
        "the surface's own optimum": LawOptimum(study.settle)(
            clock, horizon, Limits(allowed=tuple(study.rates))
        ),
        "late": late(stable),
        "late, annealed": late(measured["annealed", "shared"]),
        "late, tuned": late(measured["annealed", "envelope"]),
    }


def contenders(study: Study, base: RunConfig, derived: dict[str, BatchSchedule]) -> list[Contender]:
    """The constants and the derived schedules at their rates and seeds, equal schedules once."""
    both = ("none", "sqrt")
    common = (base, study.rates, study.seeds)
    names = ("B_opt along the stable loss", "B_opt along the annealed loss")
    (stable, annealed), late = (derived[name] for name in names), derived["late"]
    own = derived["the surface's own optimum"]
    entries = [*constant_contenders(*common, [stable, late])]
    entries += growing_contenders(*common, names[0], stable, both)
    if annealed != stable:
        entries += growing_contenders(*common, names[1], annealed)
    if len(own.batches) == 2:
        entries += late_contenders(*common, own, name="the surface's own optimum")
    entries += late_contenders(*common, late, both)
    for other in dict.fromkeys((derived["late, annealed"], derived["late, tuned"])):
        if other != late:
            entries += late_contenders(*common, other)
    return entries
