"""The best batch at each measured model and budget, or the reason why the runs cannot tell it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bss.laws.final_loss.best import BestBatch
from bss.laws.final_loss.fitted import FittedForm, Indifference
from bss.laws.final_loss.points import LossPoints
from bss.laws.final_loss.vertex import vertex
from bss.laws.fitting.estimate import SPANS, Estimate, too_wide


@dataclass(frozen=True)
class Optimum:
    """The best batch at one size N and budget D; batches in tokens.

    Attributes:
        params, tokens: N and D.
        bracketed: whether the best measured batch has a smaller and a larger one.
        batch: B_opt by the law; None where it is unidentified, with the reason, and a bound if any.
        vertex: of the parabola through the batches about the least loss; None if it has none there.
        indifference, wider: batches within .003 and .005 nats of the best, by the law.
        given_up: per measured batch, the loss above that of B_opt by the law.
    """

    params: float
    tokens: float
    bracketed: bool
    batch: Estimate = field(metadata={"key": "B_opt_tokens"})
    vertex: float | None = field(metadata={"key": "vertex_tokens"})
    indifference: Indifference
    wider: Indifference
    given_up: dict[float, float]

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """JSON has no numbers for keys; the best batch always has a note."""
        given_up = [{"batch_tokens": b, "loss": x} for b, x in self.given_up.items()]
        best = {**plain["B_opt_tokens"], "note": self.batch.note}
        return plain | {"B_opt_tokens": best, "given_up": given_up}

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields again."""
        return entry | {"given_up": {at["batch_tokens"]: at["loss"] for at in entry["given_up"]}}


def optima(
    points: LossPoints, law: FittedForm, best: BestBatch, at_bound: str, level: float
) -> tuple[Optimum, ...]:
    """The best batch of every measured (N, D).

    Args:
        points: the table.
        law: fitted to it.
        best: what tells the best batch.
        at_bound: names of the parameters that shape the best batch and ended at a bound.
        level: of the intervals.
    """
    at_bound = at_bound if best.source == "law" else ""
    return tuple(
        _optimum(points, np.flatnonzero(points.cell == cell), law, best, at_bound, level)
        for cell in range(points.cell.max() + 1)
    )


def _optimum(
    points: LossPoints,
    rows: np.ndarray,
    law: FittedForm,
    best: BestBatch,
    at_bound: str,
    level: float,
) -> Optimum:
    params, tokens = float(points.params[rows[0]]), float(points.tokens[rows[0]])
    batch, loss = points.batch[rows], points.loss[rows]
    found, (indifference, wider) = best.at(law, params, tokens, level)
    least, at = float(batch[np.argmin(loss)]), vertex(batch, loss)
    note, low, high = _reason(points, rows, found, at_bound, at.batch if at.interior else least)
    given_up = law.given_up(params, tokens, batch)
    return Optimum(
        params=params,
        tokens=tokens,
        bracketed=bool(batch.min() < least < batch.max()),
        batch=Estimate(None, low, high, level, f"unidentified: {note}") if note else found,
        vertex=at.batch if at.interior else None,
        indifference=indifference,
        wider=wider,
        given_up=dict(zip(batch.tolist(), given_up.tolist(), strict=True)),
    )


def _reason(
    points: LossPoints, rows: np.ndarray, found: Estimate, at_bound: str, about: float
) -> tuple[str, float | None, float | None]:
    """Why the best batch is unidentified, if it is, and the bounds that are left."""
    batch = points.batch[rows]
    least = float(batch[np.argmin(points.loss[rows])])
    if points.shared_rate(rows):
        told = f"{about:.3g} tokens is the best batch at {points.lr[rows[0]]:g}, not B_opt"
        return f"all batches share one rate: {told}; retune at two batches", None, None
    if len(batch) == 1:
        return "one batch measured", None, None
    if least == batch.min():
        return f"the smallest batch measured is the best, B_opt ≤ {least:g} tokens", None, least
    if least == batch.max():
        return f"the largest batch measured is the best, B_opt ≥ {least:g} tokens", least, None
    if found.value is not None and found.value < batch.min():  # the least is inside by luck
        return f"by the law below the batches measured, B_opt ≤ {least:g} tokens", None, least
    if found.value is not None and found.value > batch.max():
        return f"by the law above the batches measured, B_opt ≥ {least:g} tokens", least, None
    if at_bound:
        return f"{at_bound} ended at a bound of the fit", found.low, found.high
    if too_wide(found):
        return SPANS, found.low, found.high
    return "", found.low, found.high
