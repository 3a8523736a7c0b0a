"""The registered statements, judged by the one test of runs to come: below 0 is as each says.

results/predictions/momentum.json has them in words, and how they are tested; each prediction is one
question. They are told once some of a question's judged runs have been decayed.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from bss.contests.claims import Claim, Question
from bss.contests.contrasts import Contrast
from bss.contests.moderated import weighted
from bss.schedules.batch import BatchSchedule
from experiments.tables import Tables

TABLE = "results/momentum/finals.csv"
CHOOSING = (0, 1)
SHORT, MIDDLE, LONG = 500_000, 1_000_000, 2_000_000
BATCHES, LARGE = (1, 2, 4, 8, 16, 32), (4, 8, 16, 32)
BETAS = (0.6, 0.7, 0.8, 0.9, 0.95)
KEPT, FAST = 0.9, 8e-3
MATTERS, CUT, LATE = 0.003, 0.4, 0.015


class Statement(NamedTuple):
    """A weighted sum of losses, each of an arm by seed, less what it must stay below, in nats."""

    terms: tuple[tuple[float, pd.Series], ...]
    less: float = 0.0


Family = dict[str, Statement]
"""The statements of a prediction, by what each says."""


def claims(results: Path) -> Iterator[Claim]:
    """Of every prediction some of whose runs have ended, from a results directory of it."""
    file = results.parent / "predictions" / "momentum.json"
    finals = Tables(results).registered("finals.csv", file).astype({"batch": str})
    families = statements(finals).values()
    predictions = Tables(file.parent).json(file.name)["predictions"]
    for prediction, family in zip(predictions, families, strict=True):
        question, known = Question.of_loss(prediction["says"]), judged(family)
        for says in family if known else ():
            if says in known:
                yield question.claim(says, known[says], TABLE, "registered; one test")
            else:
                yield question.untestable(says, TABLE, "registered; its runs have not ended")


def judged(family: Mapping[str, Statement]) -> dict[str, Contrast]:
    """The statements whose arms share two seeds or more, by the moderated t and Holm."""
    terms = [term for one in family.values() for term in one.terms]
    table, weights = pd.DataFrame({loss.name: loss for _, loss in terms}).T, {}
    for says, one in family.items():
        own: Counter[str] = Counter()
        for weight, loss in one.terms:
            own[str(loss.name)] += weight  # type: ignore[assignment]
        if table.loc[[*own]].notna().all().sum() > 1:
            weights[says] = own
    return weighted(table.dropna(how="all"), weights, {says: family[says].less for says in weights})


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
        rows = (self.said == str(batch)) & np.isclose(table["beta1"], beta1)
        rows &= (table["stop"] == stop) & (table["ending"] == "decay")
        rows &= ~table["seed"].isin(CHOOSING)
        if isinstance(batch, int):
            rate = rate or self.rate(int(batch), beta1)
            rows &= np.isclose(table["peak_lr"], rate)
        name = f"batch {batch}, beta1 {beta1:g}, rate {rate}, {stop} tokens"
        return table.loc[rows].set_index("seed")["test_loss"].sort_index().rename(name)


def statements(finals: pd.DataFrame) -> dict[str, Family]:
    """Those of every prediction, by its number."""
    ended = Ended(finals)
    return {"1": _excess(ended), "2": _steps(ended), "3": _moves(ended), "4": _grows(ended)}


def _said(schedule: str) -> str:
    """The batches of a schedule, "4 → 8"."""
    return " → ".join(map(str, BatchSchedule.parse(schedule).batches))


def _apart(loss: pd.Series, other: pd.Series, less: float = 0.0) -> Statement:
    return Statement(((1.0, loss), (-1.0, other)), less)


def _excess(ended: Ended) -> Family:
    """The large batches' excess over the best, with own beta1 against .9."""
    tuned, kept = (ended.best(BATCHES, beta1) for beta1 in (None, KEPT))
    best, best_kept = ended.loss(tuned), ended.loss(kept, KEPT)
    family = {}
    for rate, at in ((None, "its rate"), (FAST, f"{FAST:g}")):
        for batch in LARGE[2:]:
            own, fixed = ended.loss(batch), ended.loss(batch, KEPT, rate=rate)
            terms = (1.0, own), (-1.0, best), (-CUT, fixed), (CUT, best_kept)
            family[f"batch {batch}, .9 at {at}"] = Statement(terms)
    return family


def _steps(ended: Ended) -> Family:
    """beta1 by the steps of the run."""
    family = {}
    for batch in LARGE[2:]:
        low = ended.loss(batch, ended.own(batch, BETAS[:3]))
        family[f"batch {batch}: .8 or less"] = _apart(low, ended.loss(batch, KEPT))
    for batch, other, stop in ((2, 0.8, SHORT), (2, 0.95, SHORT), (1, 0.8, SHORT),
                               (1, 0.95, SHORT), (8, 0.8, LONG)):  # fmt: skip
        kept, moved = (ended.loss(batch, beta1, stop=stop) for beta1 in (KEPT, other))
        family[f"batch {batch}, {stop:,} tokens: .9, not {other}"] = _apart(kept, moved, MATTERS)
    gains = ((0.5, 8, SHORT), (0.5, 32, SHORT), (-1.0, 32, LONG))
    family["by steps, not by batch"] = Statement(
        tuple(
            (sign * weight, ended.loss(batch, beta1, stop=stop))
            for weight, batch, stop in gains
            for sign, beta1 in ((1, 0.7), (-1, KEPT))
        )
    )
    return family


def _moves(ended: Ended) -> Family:
    """The best batch, with .9 and with own beta1."""
    kept, large = ended.best(LARGE, KEPT), ended.best(LARGE)
    return {
        ".9: 2 is below 4 and more": _apart(ended.loss(2, KEPT), ended.loss(kept, KEPT)),
        **{f"own: {large} is below {b}": _apart(ended.loss(large), ended.loss(b)) for b in (2, 1)},
    }


def _grows(ended: Ended) -> Family:
    """Growing against constants, and late growing with beta1 that follows the batch."""
    growing = ended.loss("4 → 8", KEPT)
    follows, stays = (ended.loss("4 → 32", b, stop=MIDDLE) for b in (KEPT**8, KEPT))
    best = ended.loss(1, KEPT, rate=2e-3, stop=MIDDLE)
    return {
        **{f"4 → 8 less {b}": _apart(growing, ended.loss(b, KEPT)) for b in (5, 6)},
        "4 → 32, beta1 .43, less the best constant": _apart(follows, best, LATE),
        "4 → 32, beta1 .43, less .9": _apart(follows, stays),
    }
