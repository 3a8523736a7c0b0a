"""The final losses of the question on beta1, by what was trained."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from bss.schedules.batch import BatchSchedule
from experiments.tables import Tables

CHOOSING = (0, 1)
SHORT, LONG = 500_000, 2_000_000
BATCHES = (1, 2, 4, 8, 16, 32)
BETAS = (0.6, 0.7, 0.8, 0.9, 0.95)
KEPT = 0.9


@dataclass(frozen=True)
class Ended:
    """results/momentum/finals.csv, its decayed losses by what was trained."""

    finals: pd.DataFrame

    @classmethod
    def read(cls, file: str | Path) -> "Ended":
        """From finals.csv, in which a batch is a text."""
        return cls(Tables(Path(file).parent).read(Path(file).name).astype({"batch": str}))

    @cached_property
    def tried(self) -> pd.Series:
        """Held-out losses at 500K tokens of the seeds that choose, by batch, beta1 and rate."""
        chose = self.finals["seed"].isin(CHOOSING) & (self.finals["stop"] == SHORT)
        table = self.finals.loc[chose]
        keys = ["batch", "beta1", "peak_lr"]
        whole = table.groupby(keys)["seed"].transform("nunique") == len(CHOOSING)
        return table.loc[whole].groupby(keys)["eval_loss"].mean()

    @cached_property
    def said(self) -> pd.Series:
        """The batches of each run, as `loss` is asked for them."""
        return pd.Series(self.finals["batch"].map(_said))

    def rate(self, batch: int, beta1: float) -> float:
        """The rate that was chosen."""
        return float(self.tried.loc[str(batch), beta1].idxmin())

    def own(self, batch: int, among: Collection[float] = BETAS) -> float:
        """beta1 of a batch with the lowest held-out loss, at its rate."""
        return min(among, key=lambda beta1: self.tried.loc[str(batch), beta1].min())

    def loss(
        self,
        batch: int | str,
        beta1: float | None = None,
        *,
        rate: float | None = None,
        stop: int = SHORT,
    ) -> pd.Series:
        """Test losses of the judged seeds, by seed; a changing batch as "4 → 8", at any rate.

        Args:
            batch: in sequences.
            beta1: the batch's own by default.
            rate: the chosen one by default.
            stop: tokens of the run.
        """
        beta1 = self.own(int(batch)) if beta1 is None else beta1
        table = self.finals
        rows = (self.said == str(batch)) & np.isclose(table["beta1"], beta1)
        rows &= (table["stop"] == stop) & (table["ending"] == "decay")
        rows &= ~table["seed"].isin(CHOOSING)
        if isinstance(batch, int):
            rate = rate or self.rate(int(batch), beta1)
            rows &= np.isclose(table["peak_lr"], rate)
        name = f"batch {batch}, beta1 {beta1:g}, rate {rate}, {stop} tokens"
        return table.loc[rows].set_index("seed")["test_loss"].sort_index().rename(name)


def _said(schedule: str) -> str:
    """The batches of a schedule, "4 → 8"."""
    return " → ".join(map(str, BatchSchedule.parse(schedule).batches))
