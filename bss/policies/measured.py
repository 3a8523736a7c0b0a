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


def _mean(rows: pd.DataFrame) -> float | None:
    """Mean log tokens of a batch's runs at a target, a lower bound where some missed it."""
    logs, reached = np.log(rows["tokens_to_target"].to_numpy(float)), rows["reached"].to_numpy(bool)
    if not reached.any():
        return None
    return float(logs[reached | (logs > logs[reached].mean())].mean())
