"""The batch schedule of branches: each batch size from where it costs at most the tolerance."""

import math
from dataclasses import dataclass

from bss.errors import InputError
from bss.laws import BranchFit
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule


@dataclass(frozen=True)
class LastCrossing:
    """A schedule that starts at the trunk's batch size and grows where the penalty allows it.

    Attributes:
        tolerance: Penalty that is allowed, in nats; the fit's tolerance by default.
    """

    tolerance: float | None = None

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """Return the schedule.

        Raises:
            InputError: If the basis has no fit of branches, or no switch is identified.
        """
        fit = basis.fit
        if not isinstance(fit, BranchFit):
            raise InputError(
                "fit: the policy reads a fit of `bss fit branches`; give one, or another policy"
            )
        if self.tolerance is not None:
            fit = fit.within(self.tolerance)
        if all(one.tokens.value is None for one in fit.grown):
            why = "; ".join(f"batch {one.batch:g}: {one.tokens.why}" for one in fit.grown)
            raise InputError(f"fit: no switch is identified at {fit.tolerance:g} nats ({why})")
        choices = limits.within(fit.batches)
        starts = [0]
        batches = [choices.nearest(fit.trunk_batch)]
        for one in fit.grown:
            at = one.tokens.value
            if at is None or at >= tokens or not choices.low <= one.batch <= choices.high:
                continue
            batch = choices.nearest(one.batch)
            while len(starts) > 1 and starts[-1] >= math.ceil(at):
                starts.pop()  # a larger batch is within the tolerance no later
                batches.pop()
            if math.ceil(at) == 0:
                batches[0] = batch
            else:
                starts.append(math.ceil(at))
                batches.append(batch)
        kept = [0, *range(max(1, len(starts) - limits.stages + 1), len(starts))]
        return BatchSchedule(tuple(starts[i] for i in kept), tuple(batches[i] for i in kept))
