"""The three-term law of final losses as a value, its closed-form optimum, and its JSON form.

L = L_0 + A·N^−a + C·S^−c + M·B^−m (arXiv 2607.01487), N parameters, S = D/B steps, B tokens per
batch. With m = 1 and one N it is the surface of E(S). At given D the loss is least at
B_opt = (mM/(cC))^(1/(c+m))·D^(c/(c+m)), whatever N is, and any other batch gives up a loss that
follows in closed form (derived here).
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bss.errors import InputError
from bss.laws.final_loss.points import LossPoints
from bss.laws.fitting.estimate import Estimate, Fit, floats

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
    """The best batch at one size N and budget D.

    Attributes:
        params, tokens: N and D.
        batch: B_opt in tokens.
        bracketed: whether smaller and larger batches were measured there.
        given_up: per measured batch in tokens, the loss above that of B_opt by the law.
    """

    params: float
    tokens: float
    batch: Estimate = field(metadata={"key": "B_opt_tokens"})
    bracketed: bool
    given_up: dict[float, float]

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """JSON has no numbers for keys."""
        given_up = self.given_up.items()
        return plain | {"given_up": [{"batch_tokens": b, "loss": x} for b, x in given_up]}

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields again."""
        return entry | {"given_up": {at["batch_tokens"]: at["loss"] for at in entry["given_up"]}}


@dataclass(frozen=True)
class TableFit(Fit):
    """The law fitted to a table of final losses.

    Attributes:
        law, intervals: its parameters, and of them.
        rmse, max_error: root mean square and largest error over the points fitted, in nats.
        B_opt_exponent: c/(c + m), of B_opt in D.
        optima: per measured size and budget.
        held_out: root mean square error at the points of each size (or budget, where there is one
            size) when the law is fitted without them.
        held_out_by: "params" or "tokens".
        points, outliers: the design points, and [n] flags of those set aside.
        status: "converged" or "not converged".
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
    method: str = field(default=METHOD, kw_only=True)

    KIND = "table"

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Points and outliers as counts; themselves under `design`."""
        design = plain["points"] | {"outlier": plain["outliers"]}
        counts = {"points": len(self.points.loss), "outliers": int(self.outliers.sum())}
        held_out = [{self.held_out_by: x, "rmse": error} for x, error in self.held_out.items()]
        return super().encoded(plain | counts | {"held_out": held_out, "design": design})

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields again."""
        held_out = {at[entry["held_out_by"]]: at["rmse"] for at in entry["held_out"]}
        design = {"points": entry["design"], "outliers": entry["design"]["outlier"]}
        return entry | design | {"law": floats(entry["law"]), "held_out": held_out}

    def predict(self, params: ArrayLike, tokens: ArrayLike, batch_tokens: ArrayLike) -> np.ndarray:
        """Final losses in nats at a tuned learning rate, float64; arguments broadcast.

        Where all runs had one size the law says nothing of others, and params are not looked at.

        Raises:
            InputError: a number is not positive.
        """
        given = {"params": params, "tokens": tokens, "batch_tokens": batch_tokens}
        for name, values in given.items():
            if not np.all(np.asarray(values, float) > 0):
                raise InputError(f"{name}: {values} at a prediction; give positive numbers")
        return np.asarray(final_loss(self.law, params, tokens, np.asarray(batch_tokens, float)))


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
