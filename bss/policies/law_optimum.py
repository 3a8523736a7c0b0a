"""The schedule that a law E(S) itself calls best: one late switch (derived here).

In a joint law, progress accumulates with the steps, and the noise is that of the current batch
alone. So a growing schedule is best with its smallest batch until the end and a large one just long
enough for the noise of the small one to be forgotten.
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
    """Searches the pair of batches.

    Attributes:
        settle: the last stage as a share of the tokens: how long noise takes to be forgotten,
            which the law does not know.

    Raises:
        InputError: on construction, if settle is no share.
    """

    settle: float = 0.1

    def __post_init__(self):
        share = "a share of the tokens between 0 and 1"
        check(0 < self.settle < 1, "settle", self.settle, share)

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """The best pair.

        Raises:
            InputError: the fit is of no law that has a loss at a changing batch.
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
