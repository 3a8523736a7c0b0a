"""The schedule through the best measured batch size of each target, without a law (derived here).

It is used if no law identifies B_opt. At a target it has the batch size with the fewest tokens
(geometric mean over its runs). Between targets it is a power law of tokens, outside them constant.
A run that missed the target counts with the tokens that it consumed if these exceed the mean of
the runs that reached it; otherwise it is ignored.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws import EsFit
from bss.policies.follow_optimum import FollowOptimum
from bss.policies.policy import Basis, Limits, through
from bss.schedules.batch import BatchSchedule


@dataclass(frozen=True)
class FollowMeasured:
    """A schedule through the best measured batch sizes."""

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """Return the schedule.

        Raises:
            InputError: If there are no points, or no run reached a target.
        """
        points = basis.points
        if points is None:
            raise InputError("points: the policy reads a table of `bss points`; give one")
        if not points["reached"].to_numpy(bool).any():
            raise InputError("points: no target was reached; train longer or raise the targets")
        best = []
        for _, at_target in points.groupby("target_loss"):
            means = {batch: _mean(rows) for batch, rows in at_target.groupby("batch")}
            needed = {batch: log for batch, log in means.items() if log is not None}
            if not needed:
                continue
            batch, least = min(needed.items(), key=lambda item: item[1])
            best.append((least, math.log(float(str(batch)))))
        log_tokens, log_batch = np.array(sorted(best)).T
        return limits.within(basis.measured).follow(through(log_tokens, log_batch), tokens)


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
    basis = Basis(int(points["seq_len"].iloc[0]), fit, points)
    note = "the best measured batch at each target is followed"
    if fit is None:
        return FollowMeasured()(basis, tokens, limits), "measured", f"no law is fitted, so {note}"
    try:
        schedule = FollowOptimum()(basis, tokens, limits)
    except InputError as error:
        return FollowMeasured()(basis, tokens, limits), "measured", f"{note}; {error}"
    sources = dict.fromkeys(at.best.method for at in fit.fits if at.best.value)
    return schedule, fit.law_name, f"{fit.label}, {fit.choice}; B_opt: {', '.join(sources)}"


def _mean(rows: pd.DataFrame) -> float | None:
    """Return the mean log tokens of the runs; a lower bound if some missed the target."""
    logs, reached = np.log(rows["tokens_to_target"].to_numpy(float)), rows["reached"].to_numpy(bool)
    if not reached.any():
        return None
    return float(logs[reached | (logs > logs[reached].mean())].mean())
