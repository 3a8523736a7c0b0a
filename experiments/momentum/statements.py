"""The registered statements, each as a contrast over paired seeds: below 0 is as it says.

results/predictions/momentum.json has them in words, and how they are tested.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.tables import Tables

CHOOSING = (0, 1)
SHORT, MIDDLE, LONG = 500_000, 1_000_000, 2_000_000
BATCHES, LARGE = (1, 2, 4, 8, 16, 32), (4, 8, 16, 32)
BETAS = (0.6, 0.7, 0.8, 0.9, 0.95)
KEPT, FAST = 0.9, 8e-3
MATTERS, CUT, LATE = 0.003, 0.4, 0.015

Contrasts = dict[str, pd.Series]
"""By statement, a number a seed in nats."""


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

    def rate(self, batch: int, beta1: float) -> float:
        """The rate that was chosen."""
        return float(self.tried.loc[str(batch), beta1].idxmin())

    def own(self, batch: int, among: Collection[float] = BETAS) -> float:
        """beta1 of a batch with the lowest held-out loss, at its rate."""
        return min(among, key=lambda beta1: self.tried.loc[str(batch), beta1].min())

    def best(self, among: Collection[int], beta1: float | None = None) -> int:
        """The batch with the lowest held-out loss, with its own beta1 or one for all."""
        betas = BETAS if beta1 is None else (beta1,)
        return min(
            among, key=lambda batch: min(self.tried.loc[str(batch), beta].min() for beta in betas)
        )

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
        first, _, last = str(batch).partition(" → ")
        text = rf"0:{first} \d+:{last}" if last else first
        rows = table["batch"].str.fullmatch(text) & np.isclose(table["beta1"], beta1)
        rows &= (table["stop"] == stop) & (table["ending"] == "decay")
        rows &= ~table["seed"].isin(CHOOSING)
        if not last:
            rate = rate or self.rate(int(batch), beta1)
            rows &= np.isclose(table["peak_lr"], rate)
        return table.loc[rows].set_index("seed")["test_loss"].sort_index()


def statements(finals: pd.DataFrame) -> dict[str, Contrasts]:
    """Those of every prediction, by its number."""
    ended = Ended(finals)
    return {"1": _excess(ended), "2": _steps(ended), "3": _moves(ended), "4": _grows(ended)}


def _excess(ended: Ended) -> Contrasts:
    """The large batches' excess over the best, with own beta1 against .9."""
    tuned, kept = (ended.best(BATCHES, beta1) for beta1 in (None, KEPT))
    contrasts = {}
    for rate, at in ((None, "its rate"), (FAST, f"{FAST:g}")):
        for batch in LARGE[2:]:
            own = ended.loss(batch) - ended.loss(tuned)
            excess = ended.loss(batch, KEPT, rate=rate) - ended.loss(kept, KEPT)
            contrasts[f"batch {batch}, .9 at {at}"] = own - CUT * excess
    return contrasts


def _steps(ended: Ended) -> Contrasts:
    """beta1 by the steps of the run."""
    contrasts = {}
    for batch in LARGE[2:]:
        low = ended.own(batch, BETAS[:3])
        contrasts[f"batch {batch}: .8 or less"] = ended.loss(batch, low) - ended.loss(batch, KEPT)
    for batch, other, stop in ((2, 0.8, SHORT), (2, 0.95, SHORT), (1, 0.8, SHORT),
                               (1, 0.95, SHORT), (8, 0.8, LONG)):  # fmt: skip
        apart = ended.loss(batch, KEPT, stop=stop) - ended.loss(batch, other, stop=stop)
        contrasts[f"batch {batch}, {stop:,} tokens: .9, not {other}"] = apart - MATTERS
    like, unlike, long = (
        ended.loss(batch, 0.7, stop=stop) - ended.loss(batch, KEPT, stop=stop)
        for batch, stop in ((8, SHORT), (32, SHORT), (32, LONG))
    )
    contrasts["by steps, not by batch"] = ((like + unlike) / 2 - long).dropna()
    return contrasts


def _moves(ended: Ended) -> Contrasts:
    """The best batch, with .9 and with own beta1."""
    kept, large = ended.best(LARGE, KEPT), ended.best(LARGE)
    return {
        ".9: 2 is below 4 and more": ended.loss(2, KEPT) - ended.loss(kept, KEPT),
        **{f"own: {large} is below {b}": ended.loss(large) - ended.loss(b) for b in (2, 1)},
    }


def _grows(ended: Ended) -> Contrasts:
    """Growing against constants, and late growing with beta1 that follows the batch."""
    growing = ended.loss("4 → 8", KEPT)
    follows, stays = (ended.loss("4 → 32", b, stop=MIDDLE) for b in (KEPT**8, KEPT))
    best = ended.loss(1, KEPT, rate=2e-3, stop=MIDDLE)
    return {
        **{f"4 → 8 less {b}": growing - ended.loss(b, KEPT) for b in (5, 6)},
        "4 → 32, beta1 .43, less the best constant": follows - best - LATE,
        "4 → 32, beta1 .43, less .9": follows - stays,
    }
