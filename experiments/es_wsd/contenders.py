"""The schedules that E(S) under WSD calls for."""

from collections.abc import Sequence

import pandas as pd

from bss.errors import InputError
from bss.laws import EsFit, fit_es
from bss.laws.fitting.estimate import Options
from bss.points.crossings import optima
from bss.policies.follow_optimum import FollowOptimum
from bss.policies.law_optimum import LawOptimum
from bss.policies.measured import Measured
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule
from experiments.study import say


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
