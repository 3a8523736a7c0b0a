"""The schedule through the best measured batch size of each target, without a law (derived here).

It is used if no law identifies B_opt. At a target it has the batch size with the fewest tokens
(geometric mean over its runs). Between targets it is a power law of tokens, outside them constant.
A run that missed the target counts with the tokens that it consumed if these exceed the mean of
the runs that reached it; otherwise it is ignored.
"""

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws import EsFit
from bss.policies.follow_optimum import FollowOptimum
from bss.policies.policy import Basis, Limits, through
from bss.schedules.batch import BatchSchedule


def follow_measured(points: pd.DataFrame, tokens: int, limits: Limits) -> BatchSchedule:
    """Return the schedule through the best measured batch sizes.

    Args:
        points: A table of points.
        tokens: Token budget.
        limits: Limits of the schedule.

    Raises:
        InputError: If no run reached a target.
    """
    reached, cell = points["reached"].to_numpy(bool), ["target_loss", "batch"]
    if not reached.any():
        raise InputError("points: no target was reached; train longer or raise the targets")
    logs = points[cell].assign(log=np.log(points["tokens_to_target"].to_numpy(float)))
    typical = logs[reached].groupby(cell)["log"].mean().rename("typical")
    logs = logs.join(typical, on=cell)
    means = logs[reached | (logs["log"] > logs["typical"])].groupby(cell)["log"].mean()
    best = means[means.groupby("target_loss").idxmin()].sort_values()
    ideal = through(best.to_numpy(), np.log(best.index.get_level_values("batch").to_numpy(float)))
    return limits.within(points["batch"].unique()).follow(ideal, tokens)


def derive_schedule(
    fit: EsFit | None, points: pd.DataFrame, tokens: int, limits: Limits
) -> tuple[BatchSchedule, str, str]:
    """Return the schedule of a fit, or of the points if the fit does not identify B_opt.

    Args:
        fit: A fit to the points, or None if no law could be fitted.
        points: A table of points.
        tokens: Token budget.
        limits: Limits of the schedule.

    Returns:
        The schedule, its law, and a sentence on how it was chosen.

    Raises:
        InputError: If no target was reached, or the limits leave no schedule.
    """
    why = "no law is fitted"
    if fit is not None:
        try:
            schedule = FollowOptimum()(Basis(fit.seq_len, fit), tokens, limits)
            sources = dict.fromkeys(at.best.method for at in fit.fits if at.best.value)
            by = "measured minimum" if fit.law_name == "measured" else f"{fit.law.name} law"
            note = f"{by}, {fit.choice}; B_opt: {', '.join(sources)}"
            return schedule, fit.law_name, note
        except InputError as error:
            why = str(error)
    note = f"the best measured batch at each target is followed: {why}"
    return follow_measured(points, tokens, limits), "measured", note
