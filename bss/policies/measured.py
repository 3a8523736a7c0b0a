"""The best measured batch of each target, followed; no law is assumed (derived here).

For a design in which no law identifies B_opt. At a target it is the batch with the fewest tokens
(geometric mean over its runs); between targets a power law of tokens; outside them constant. A run
that missed the target counts with what it consumed, where that is above the mean of those that
reached it; else it says nothing.
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
    """Reads the table of points."""

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """The schedule through the best batches.

        Raises:
            InputError: there are no points, or no target was reached.
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
    """The schedule of a fit, or of the points where it identifies B_opt at no target.

    Args:
        fit: of the points; None where no law could be fitted.
        points: table of points.
        tokens: the budget.
        limits: what the schedule may be made of.

    Returns:
        The schedule, its law, and a sentence on how it was chosen.

    Raises:
        InputError: no target was reached, or the limits leave no schedule.
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
    """Mean log tokens of a batch's runs at a target, a lower bound where some missed it."""
    logs, reached = np.log(rows["tokens_to_target"].to_numpy(float)), rows["reached"].to_numpy(bool)
    if not reached.any():
        return None
    return float(logs[reached | (logs > logs[reached].mean())].mean())
