"""Tokens to a target by seed and batch, where a run that missed it says only that it needs more.

Such a run is censored at the tokens it consumed (derived here). Beside batches that reached the
target with fewer it proves that its batch is worse; else it says nothing.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

Bound = Literal["", "at most", "at least", "unknown"]  # "" is a measurement, and no bound


@dataclass(frozen=True)
class Logs:
    """Log tokens to one target, [seed, batch], batches ascending.

    Attributes:
        tokens: to the target; consumed, where it was missed; NaN where there is no run.
        met: whether the run reached the target.
    """

    tokens: pd.DataFrame
    met: pd.DataFrame

    def telling(self) -> "Logs":
        """The batches that tell of the best one in every seed.

        They reached the target, or consumed more without it than the best of those batches that
        every seed reached. Without such a batch there are none.
        """
        whole = self.tokens.columns[self.met.all()]
        least = self.tokens[whole].min(axis=1)
        tells = self.met | self.tokens.gt(least, axis=0)
        batches = self.tokens.columns[tells.all() & self.tokens.notna().all()]
        return Logs(self.tokens.loc[:, batches], self.met.loc[:, batches])

    @property
    def best(self) -> float:
        """The batch of the fewest tokens, geometric mean over seeds, of those that all reached."""
        whole = self.tokens.loc[:, self.met.all()]
        return whole.columns.tolist()[int(np.argmin(whole.sum()))]

    def apart(self, small: float, large: float) -> tuple[list[float], Bound]:
        """Log tokens of one batch less those of another by seed, and what their mean is.

        Seeds in which one of them has no run, or both missed the target, say nothing.
        """
        differences = self.tokens[small] - self.tokens[large]
        known = differences.notna() & (self.met[small] | self.met[large])
        least, most = (bool((known & ~self.met[batch]).any()) for batch in (small, large))
        return differences[known].tolist(), bound(open_below=most, open_above=least)


def bound(*, open_below: bool, open_above: bool) -> Bound:
    """What a value is that may be lower, higher or both."""
    if open_below:
        return "unknown" if open_above else "at most"
    return "at least" if open_above else ""


def by_target(points: pd.DataFrame) -> dict[float, Logs]:
    """The log tokens of a table of points, by target, highest first.

    Args:
        points: columns target_loss, seed, batch, tokens_to_target and reached.
    """
    ordered = points.assign(reached=points["reached"].astype(float)).sort_values(
        "reached", kind="stable"
    )
    tables = {}
    for target, rows in ordered.groupby("target_loss"):
        tokens, met = (
            rows.pivot_table(index="seed", columns="batch", values=name, aggfunc="last")
            for name in ("tokens_to_target", "reached")
        )
        tables[target] = Logs(tokens.map(math.log), met == 1)
    return dict(sorted(tables.items(), reverse=True))  # type: ignore[arg-type]
