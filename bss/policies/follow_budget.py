"""The batch schedule of a law of final losses: the best batch of every budget on the way to D.

At each moment the batch size is the one that would be best if the run ended there, so it grows with
the data. The law of final losses does not model how a run depends on its earlier batch sizes
(derived here).
"""

from dataclasses import dataclass

import numpy as np

from bss.errors import InputError
from bss.laws import LossFit
from bss.policies.policy import Basis, Limits, through
from bss.schedules.batch import BatchSchedule
from bss.units import format_tokens

BUDGETS = 33


@dataclass(frozen=True)
class FollowBudget:
    """A schedule that follows B_opt(N, D) along D.

    Attributes:
        params: Non-embedding parameters N of the model.
        constant: Whether to use the best batch size of the whole budget throughout.
    """

    params: int = 0
    constant: bool = False

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """Return the schedule.

        Raises:
            InputError: If params are missing, if the fit was not tested for this model and budget,
                or if B_opt is not identified at a smaller budget.
        """
        fit = basis.fitted(LossFit)
        if self.params <= 0:
            raise InputError("params: missing; say the model's size, as --set params=350M")
        fit.check_tested({"params": self.params, "tokens": tokens})

        first = tokens if self.constant else min(fit.tested["tokens"].low, tokens)
        budgets = np.unique(np.geomspace(first, tokens, BUDGETS))
        batches = [_batch(fit, self.params, at) / basis.seq_len for at in budgets]
        ideal = through(np.log(budgets), np.log(np.maximum(batches, 1.0)))
        return limits.within(basis.measured).follow(ideal, tokens)


def _batch(fit: LossFit, params: int, tokens: float) -> float:
    best = fit.best_batch(params, tokens)
    if best.value is None:
        raise InputError(
            f"fit: B_opt at {format_tokens(params)} and {format_tokens(int(tokens))} tokens is "
            f"{best.note}; measure smaller and larger batches, each at its best LR"
        )
    return best.value
