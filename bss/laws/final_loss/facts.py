"""What a fit of final losses tells beside its law: errors, outliers, ranges, one prediction."""

from dataclasses import dataclass
from typing import Any

from bss.laws.fitting.estimate import BestBatch, Estimate

SIZES: tuple[str, ...] = ("params", "tokens", "batch_tokens")


@dataclass(frozen=True)
class HoldOut:
    """Errors at rows that the whole procedure, the weights of the forms with it, has not seen.

    Attributes:
        out: what was left out, as tokens>=80B.
        rows: how many.
        rmse, near: root mean square error, and of rows near the best of their cell, in nats.
        weights: of the forms, made without them.
    """

    out: str
    rows: int
    rmse: float
    near: float | None
    weights: dict[str, float]


@dataclass(frozen=True)
class LackOfFit:
    """Whether the law misses the losses by more than repetitions of a run differ.

    Attributes:
        rmse: standard deviation of the losses about the law, in nats.
        noise: of a loss over repetitions; None where the table has neither seeds nor loss_se.
        p: of the F test that they are one; None without noise.
        note: what was not tested, or what was found.
    """

    rmse: float
    noise: float | None
    p: float | None
    note: str


@dataclass(frozen=True)
class OutlierRow:
    """A row that lies far from the valley through the others of its (N, D).

    Attributes:
        params, tokens, batch_tokens: of the row.
        above: the valley, in nats; negative below.
        times: the scatter of one run.
        moves: the factor by which the best batch of the valley is another without it, less 1.
    """

    params: float
    tokens: float
    batch_tokens: float
    above: float
    times: float
    moves: float


@dataclass(frozen=True)
class Tested:
    """What the fit has seen of a size, and how far beyond it was put to a test.

    Attributes:
        low, high: measured.
        reach: times the largest that a left-out fold asked for; 1 where none did.
    """

    low: float
    high: float
    reach: float

    def times(self, value: float) -> float:
        """How many times outside what was measured a size is; 1 within."""
        return max(value / self.high, self.low / value, 1.0)


@dataclass(frozen=True)
class LossPrediction:
    """What the law says of one run.

    Attributes:
        loss: in nats, with the interval of a new run.
        best_batch: B_opt there in tokens with the batches as good, or why it has no value.
        given_up: the loss above that of B_opt, in nats; None where B_opt has no value.
        form: which forms said it, with their weights.
        beyond: how many times outside what was measured, by size; empty inside.
        error: root mean square error at left-out runs of this kind, in nats.
        lr: the rate asked; None for the best one, or of a table whose rates do not vary.
        best_lr: at the batch asked; None of such a table.
        best_batch_at_lr: in tokens, at the rate asked.
    """

    loss: Estimate
    best_batch: BestBatch
    given_up: float | None
    form: str
    beyond: dict[str, float]
    error: float | None
    lr: float | None = None
    best_lr: Estimate | None = None
    best_batch_at_lr: Estimate | None = None

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Rates only where the table's vary."""
        names = ("lr", "best_lr", "best_batch_at_lr")
        return {n: x for n, x in plain.items() if n not in names or x is not None}
