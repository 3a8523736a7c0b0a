"""Design points of the law of final losses: the least loss at each model, budget and batch."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

SAME_BUDGET = 0.03  # tokens of whole steps differ a little from batch to batch
SAME_RATE = 0.01  # rates this near, relative, are one
USES: tuple[str, ...] = ("inside", "beyond", "below")
"""Of a law: inside the table, beyond its largest model or budget, below its smallest."""


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
        count: runs that were averaged.
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
    count: np.ndarray
    noise: float
    freedom: float
    seq_len: float | None

    @cached_property
    def cell(self) -> np.ndarray:
        """[n], which (N, D) a point is of, counted from 0; budgets within 3% are one."""
        return cells_of_sizes(self.params, self.tokens)

    def shared_rate(self, rows: np.ndarray) -> bool:
        """Whether these points [k], of several batches, were trained at one rate.

        So were those about the least loss, where of several rates the same one, an end, was best.
        """
        alone = bool((self.rates[rows] == 1).all())
        if not alone:
            near = int(np.argmin(self.loss[rows]))
            rows = rows[max(min(near - 1, len(rows) - 3), 0) :][:3]
            alone = not self.bracketed[rows].any()
        lr = self.lr[rows]
        return len(rows) > 1 and alone and bool(lr.max() <= lr.min() * (1 + SAME_RATE))


def cells_of_sizes(params: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """[n], which (N, D) a row is of, counted from 0; budgets within 3% are one."""
    order = np.lexsort([tokens, params])
    same_model = np.diff(params[order]) == 0
    same_budget = np.diff(np.log(tokens[order])) < SAME_BUDGET
    cell = np.empty(len(order), int)
    cell[order] = np.concatenate([[0], np.cumsum(~(same_model & same_budget))])
    return cell


def uses(logs: np.ndarray, seen: np.ndarray) -> list[str]:
    """Per row of log N and log D [n, 2], for which use it is, where those `seen` [m, 2] are fitted.

    A size within 3% of the largest or smallest is inside; of two directions the farther counts.
    """
    above = (logs - seen.max(axis=0)).max(axis=1)
    below = (seen.min(axis=0) - logs).max(axis=1)
    outside = np.maximum(above, below) > SAME_BUDGET
    return [USES[0] if not out else USES[1] if a >= b else USES[2]
            for out, a, b in zip(outside, above, below, strict=True)]  # fmt: skip
