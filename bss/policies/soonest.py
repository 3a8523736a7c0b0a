"""The batch schedule of a law E(S) that minimizes tokens, time or cost (derived here).

As in `follow_optimum`, the schedule uses the batch size that is best for the loss L reached so far.
Here it is the batch size that reaches L from the start soonest, or at the lowest cost. Between the
targets of the fit it is a power law of tokens.
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
    """A schedule from a fitted law E(S) and seconds per step.

    Attributes:
        minimize: "tokens", "time" or "cost".
        step_time: Seconds per step as text, e.g. "0.05 + 0.002*B", or a CSV file.
        devices: Number of devices per step, if the table has no such column.

    Raises:
        InputError: If a setting is invalid.
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
