"""The best measured batch of each target, followed; no law is assumed (derived here).

For a design in which no law identifies B_opt. At a target it is the batch with the fewest tokens
(geometric mean over its runs); between targets a power law of tokens; outside them constant.
"""

import math
from dataclasses import dataclass

import numpy as np

from bss.errors import InputError
from bss.policies.policy import Basis, Limits, through
from bss.schedules.batch import BatchSchedule


@dataclass(frozen=True)
class Measured:
    """Reads the table of points."""

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """The schedule through the best batches.

        Raises:
            InputError: there are no points, or no target was reached.
        """
        points = basis.points
        if points is None:
            raise InputError("points: the policy reads a table of `bss points`; give one")
        reached = points[points["reached"].astype(bool)]
        if reached.empty:
            raise InputError("points: no target was reached; train longer or raise the targets")
        best = []
        for _, at_target in reached.groupby("target_loss"):
            needed = {
                batch: float(np.log(rows["tokens_to_target"]).mean())
                for batch, rows in at_target.groupby("batch")
            }
            batch, least = min(needed.items(), key=lambda item: item[1])
            best.append((least, math.log(float(str(batch)))))
        log_tokens, log_batch = np.array(sorted(best)).T
        return limits.within(basis.measured).follow(through(log_tokens, log_batch), tokens)
