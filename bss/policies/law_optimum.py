"""The optimal schedule under a joint law E(S): one late switch (derived here).

In a joint law progress accumulates over steps, and noise depends on the current batch size only. So
the best schedule keeps the small batch size for as long as possible. The large batch size follows
for just as long as the noise of the small one takes to decay.
"""

import itertools
from dataclasses import dataclass

from bss.errors import InputError, check
from bss.laws import EsFit
from bss.laws.es import FAMILIES
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule


@dataclass(frozen=True)
class LawOptimum:
    """A late switch with the best pair of batch sizes.

    Attributes:
        settle: Length of the last stage as a share of the tokens. It is the time in which noise
            decays, which the law does not contain.

    Raises:
        InputError: If settle is not between 0 and 1.
    """

    settle: float = 0.1

    def __post_init__(self):
        share = "a share of the tokens between 0 and 1"
        check(0 < self.settle < 1, "settle", self.settle, share)

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """Return the schedule.

        Raises:
            InputError: If the fitted law is not a joint law.
        """
        fit = basis.fitted(EsFit)
        law = fit.law
        if not law.joint:
            known = " or ".join(other.name for other in FAMILIES if other.joint)
            raise InputError(
                f"fit: the {law.name} law has no loss at a changing batch; fit the {known}"
            )
        choices = limits.within(basis.measured)
        choices.check_switch()
        parameters = fit.parameters(fit.fits[0].target_loss)
        switch = round((1 - self.settle) * tokens)

        def progress(batch: int, count: int) -> float:
            return count / (batch * fit.seq_len) * law.intrinsic_time(parameters, batch)

        def loss(pair: tuple[int, int]) -> float:
            first, last = pair
            total = progress(first, switch) + progress(last, tokens - switch)
            return law.loss(parameters, total / law.intrinsic_time(parameters, last), last)

        ladder = choices.ladder()
        first, last = min(itertools.product(ladder, ladder), key=loss)
        return BatchSchedule.late_switch(first, last, switch)
