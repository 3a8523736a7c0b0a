"""A law E(S) as the batch schedule with the fewest tokens, least time or least cost (derived here).

As in `follow_optimum`, where t tokens have brought the loss to L, train with the batch size that is
best for L: here the one that reaches L from the start soonest, or with the lowest cost.
Between the targets of the fit it is a power law of tokens.
"""

from dataclasses import dataclass

import numpy as np

from bss.errors import InputError, check
from bss.laws import EsFit
from bss.laws.step_time import CRITERIA, StepTime, best_batches
from bss.policies.policy import Basis, Limits, through
from bss.schedules.batch import BatchSchedule


@dataclass(frozen=True)
class Soonest:
    """Reads a fitted law E(S) and seconds per step.

    Attributes:
        minimize: tokens, time or cost.
        step_time: seconds per step as text, e.g. "0.05 + 0.002*B", or a CSV file.
        devices: devices that take a step, where a table has no such column.

    Raises:
        InputError: on construction, if a setting is none of these.
    """

    minimize: str = "time"
    step_time: str = ""
    devices: float = 1.0

    def __post_init__(self):
        check(self.minimize in CRITERIA, "minimize", self.minimize, f"one of {', '.join(CRITERIA)}")
        check(0 < self.devices < np.inf, "devices", self.devices, "a positive number")

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """Return the schedule.

        Raises:
            InputError: If a fit of E(S) or the step times are missing.
        """
        fit = basis.fitted(EsFit)
        if not self.step_time:
            raise InputError("step_time: missing; write seconds per step, e.g. '0.05 + 0.002*B'")
        times = StepTime.read(self.step_time, self.devices)
        rows = [best_batches(fit, at.target_loss, times).set_index("criterion") for at in fit.fits]
        best = sorted(tuple(row.loc[self.minimize, ["tokens", "batch"]]) for row in rows)
        at, batch = np.log(np.array(best, float)).T
        power = float(np.polyfit(at, batch, 1)[0]) if len(at) > 1 else 0.0
        return limits.within(basis.measured).follow(through(at, batch, power), tokens)
