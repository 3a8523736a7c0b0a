"""Design points of the law of final losses: the least loss at each model, budget and batch."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

SAME_BUDGET = 0.03  # tokens of whole steps differ a little from batch to batch
SAME_RATE = 0.01  # rates this near, relative, are one


@dataclass(frozen=True)
class LossPoints:
    """Least final losses over the learning rate, [n] each.

    Attributes:
        params, tokens: non-embedding parameters N, training tokens D.
        batch: B in tokens.
        loss: in nats.
        lr: the rate of that loss; NaN where the table has none.
        rates: learning rates that the minimum was taken over.
        bracketed: whether a rate was tried on both sides of the best one.
        noise: standard deviation of a loss over repetitions, in nats; NaN where none is known.
        freedom: degrees of freedom behind it; infinite where the table has standard errors.
        seq_len: tokens per sequence; None where it is not known, or not one.
    """

    params: np.ndarray
    tokens: np.ndarray
    batch: np.ndarray
    loss: np.ndarray
    lr: np.ndarray
    rates: np.ndarray
    bracketed: np.ndarray
    noise: float
    freedom: float
    seq_len: float | None

    @cached_property
    def cell(self) -> np.ndarray:
        """[n], which (N, D) a point is of, counted from 0; budgets within 3% are one."""
        order = np.lexsort([self.tokens, self.params])
        same_model = np.diff(self.params[order]) == 0
        same_budget = np.diff(np.log(self.tokens[order])) < SAME_BUDGET
        cell = np.empty(len(order), int)
        cell[order] = np.concatenate([[0], np.cumsum(~(same_model & same_budget))])
        return cell

    def shared_rate(self, rows: np.ndarray) -> bool:
        """Whether these points [k], of several batches, were trained at one rate."""
        lr = self.lr[rows]
        return bool(
            len(rows) > 1
            and (self.rates[rows] == 1).all()
            and lr.max() <= lr.min() * (1 + SAME_RATE)
        )
