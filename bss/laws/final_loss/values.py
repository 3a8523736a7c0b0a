"""The three-term law of final losses as a value, its closed-form optimum, and its JSON form.

L = L_0 + A·N^−a + C·S^−c + M·B^−m (arXiv 2607.01487), N parameters, S = D/B steps, B tokens per
batch. With m = 1 and one N it is the surface of E(S). At given D the loss is least at
B_opt = (mM/(cC))^(1/(c+m))·D^(c/(c+m)), whatever N is, and any other batch gives up a loss that
follows in closed form (derived here).
"""

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from bss.laws.final_loss.points import LossPoints
from bss.laws.fitting.estimate import Estimate

SCHEMA = 1
METHOD = "parametric bootstrap of least squares without outliers, noise variance drawn; percentiles"


class Law(NamedTuple):
    """Parameters, or arrays of them; A and a are NaN where N does not vary."""

    L_0: Any
    A: Any
    a: Any
    C: Any
    c: Any
    M: Any
    m: Any


@dataclass(frozen=True)
class Optimum:
    """The best batch at one size and budget.

    Attributes:
        params: N.
        tokens: D.
        batch: B_opt in tokens.
        bracketed: whether smaller and larger batches were measured there.
        given_up: per measured batch in tokens, the loss above that of B_opt by the law.
    """

    params: float
    tokens: float
    batch: Estimate
    bracketed: bool
    given_up: dict[float, float]

    def to_dict(self) -> dict[str, Any]:
        """JSON."""
        return {
            "params": self.params,
            "tokens": self.tokens,
            "B_opt_tokens": self.batch.to_dict(),
            "bracketed": self.bracketed,
            "given_up": [{"batch_tokens": b, "loss": x} for b, x in self.given_up.items()],
        }


@dataclass(frozen=True)
class TableFit:
    """The law fitted to a table of final losses.

    Attributes:
        law: its parameters.
        intervals: of them.
        rmse: root mean square error over the points fitted, in nats.
        max_error: the largest of them.
        B_opt_exponent: c/(c + m), of B_opt in D.
        optima: per measured size and budget.
        held_out: root mean square error at the points of each size (or budget, where there is one
            size) when the law is fitted without them.
        held_out_by: "params" or "tokens".
        points: the design points.
        outliers: [n] flags of points set aside.
        status: "converged" or "not converged".
        level: of all intervals.
        resamples: bootstrap refits behind them.
        method: how they were made.
        warnings: what a reader must know.
        version: of the package that made the fit.
    """

    law: Law
    intervals: dict[str, Estimate]
    rmse: float
    max_error: float
    B_opt_exponent: Estimate
    optima: tuple[Optimum, ...]
    held_out: dict[float, float]
    held_out_by: str
    points: LossPoints
    outliers: np.ndarray
    status: str
    level: float
    resamples: int
    method: str = METHOD
    warnings: tuple[str, ...] = ()
    version: str = version("bss")

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: `{"kind": "table", "schema": 1, "law", "rmse", "optima", ...}`."""
        return {
            "kind": "table",
            "schema": SCHEMA,
            "law": {key: float(value) for key, value in self.law._asdict().items()},
            "intervals": {key: value.to_dict() for key, value in self.intervals.items()},
            "rmse": self.rmse,
            "max_error": self.max_error,
            "B_opt_exponent": self.B_opt_exponent.to_dict(),
            "optima": [optimum.to_dict() for optimum in self.optima],
            "held_out": [{self.held_out_by: x, "rmse": e} for x, e in self.held_out.items()],
            "points": len(self.points.loss),
            "outliers": int(self.outliers.sum()),
            "status": self.status,
            "level": self.level,
            "resamples": self.resamples,
            "method": self.method,
            "warnings": list(self.warnings),
            "version": self.version,
        }


def final_loss(law: Law, params, tokens, batch):
    """L in nats of a run of D tokens at batch B in tokens; A·N^−a is 0 where it is unknown."""
    size = np.where(np.isnan(law.A), 0.0, law.A * np.asarray(params, float) ** -law.a)
    steps = np.asarray(tokens, float) / batch
    return law.L_0 + size + law.C * steps**-law.c + law.M * np.asarray(batch, float) ** -law.m


def optimal_batch(law: Law, tokens):
    """B_opt in tokens at D; the minimum of C·(D/B)^−c + M·B^−m over B (derived here).

    Examples:
        >>> float(optimal_batch(Law(1, 1, 1, 2.0, 0.5, 3.0, 0.5), 100.0))
        15.0
    """
    total = law.c + law.m
    return (law.m * law.M / (law.c * law.C)) ** (1 / total) * tokens ** (law.c / total)
