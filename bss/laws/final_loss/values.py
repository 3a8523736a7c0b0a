"""The law fitted to final losses, as a value: its JSON form, and its predictions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bss.errors import InputError
from bss.laws.final_loss.best import BestBatch
from bss.laws.final_loss.fitted import FittedForm, Indifference
from bss.laws.final_loss.optimum import Optimum
from bss.laws.final_loss.points import LossPoints
from bss.laws.fitting.estimate import SPANS, Estimate, Fit, too_wide

METHOD = (
    "wild bootstrap: the errors of each (params, tokens) times a draw of mean 0 and variance 1; "
    "percentiles"
)
SIZES = ("params", "tokens", "batch_tokens")


@dataclass(frozen=True)
class HeldOut:
    """Errors at rows that the whole procedure, the choice of the form with it, has not seen.

    Attributes:
        out: what was left out, as tokens>=80B.
        rows: how many.
        rmse, near: root mean square error, and of rows near the best of their cell, in nats.
        form: the one that was chosen without them.
    """

    out: str
    rows: int
    rmse: float
    near: float | None
    form: str


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
class Tested:
    """What the fit has seen of a size, and how far beyond it was put to a test.

    Attributes:
        low, high: measured.
        reach: times the largest that a left-out fold asked for; 1 where none did.
    """

    low: float
    high: float
    reach: float


@dataclass(frozen=True)
class Prediction:
    """What the law says of one run.

    Attributes:
        loss: in nats, with the interval of a new run.
        best_batch: B_opt there in tokens, or why it has no value.
        indifference, wider: the batches as good.
        given_up: the loss above that of B_opt, in nats.
        form: which law said it.
        beyond: how many times outside what was measured, by size; empty inside.
        error: root mean square error at left-out runs of this kind, in nats.
    """

    loss: Estimate
    best_batch: Estimate
    indifference: Indifference
    wider: Indifference
    given_up: float
    form: str
    beyond: dict[str, float]
    error: float | None


@dataclass(frozen=True)
class TableFit(Fit):
    """The law fitted to a table of final losses.

    Attributes:
        form, formula: of the law inside the table.
        inside: the law between the models and budgets measured.
        extrapolating: the law beyond them.
        judged: per form, its left-out error in nats inside, and its worst beyond.
        left_out: root mean square error at left-out cells, at the largest model and at the largest
            budgets, but for losses far above the best of their cell; None where the table has too
            few cells.
        left_out_near: the same over rows near the best of their cell.
        hold_out: rows that a user asked to leave out.
        lack_of_fit: against repetitions.
        best: what tells B_opt.
        optima: per measured model and budget.
        B_opt_exponents: of the measured best batches (vertices) in N and in D, and D's less N's.
        tested: per size what was measured.
        points: the design points.
        cell_error: [n], predicted less measured in nats by a law that has not seen their (N, D).
        status: "converged" or "not converged".
        seq_len: tokens per sequence, if there is one.
    """

    form: str
    formula: str
    inside: FittedForm
    extrapolating: FittedForm
    judged: dict[str, dict[str, float]]
    left_out: dict[str, float | None]
    left_out_near: dict[str, float | None]
    hold_out: tuple[HeldOut, ...]
    lack_of_fit: LackOfFit
    best: BestBatch = field(metadata={"key": "best_batch"})
    optima: tuple[Optimum, ...]
    B_opt_exponents: dict[str, Estimate]
    tested: dict[str, Tested]
    points: LossPoints
    cell_error: np.ndarray
    status: str
    seq_len: float | None
    method: str = field(default=METHOD, kw_only=True)

    KIND = "table"
    SCHEMA = 2

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Points as their count; themselves under `design`."""
        counts = {"points": len(self.points.loss), "design": plain["points"]}
        return super().encoded(plain | counts)

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields again."""
        return entry | {"points": entry["design"]}

    @property
    def batches(self) -> tuple[float, float]:
        """The smallest and largest measured, in sequences, or in tokens without their length."""
        seen, unit = self.tested["batch_tokens"], self.seq_len or 1.0
        return seen.low / unit, seen.high / unit

    def is_beyond(self, params: ArrayLike, tokens: ArrayLike) -> np.ndarray:
        """Whether (N, D) lies beyond those measured, where `extrapolating` speaks."""
        asked = {"params": np.asarray(params, float), "tokens": np.asarray(tokens, float)}
        outside = [(x < self.tested[n].low) | (x > self.tested[n].high) for n, x in asked.items()]
        return np.logical_or(*np.broadcast_arrays(*outside))

    def predict(self, params: ArrayLike, tokens: ArrayLike, batch_tokens: ArrayLike) -> np.ndarray:
        """Final losses in nats at a tuned learning rate, float64; arguments broadcast.

        Raises:
            InputError: a number is not positive.
        """
        given = dict(zip(SIZES, (params, tokens, batch_tokens), strict=True))
        for name, values in given.items():
            if not np.all(np.asarray(values, float) > 0):
                raise InputError(f"{name}: {values} at a prediction; give positive numbers")
        laws = (
            law.losses(params, tokens, batch_tokens) for law in (self.extrapolating, self.inside)
        )
        return np.where(self.is_beyond(params, tokens), *laws)

    def prediction(
        self, params: float, tokens: float, batch_tokens: float, *, extrapolate: bool = False
    ) -> Prediction:
        """What the law says of one run, with intervals.

        Raises:
            InputError: a number is not positive, or lies beyond what the fit was tested for and
                `extrapolate` is false.
        """
        self.predict(params, tokens, batch_tokens)
        asked = {"params": params, "tokens": tokens, "batch_tokens": batch_tokens}
        if not extrapolate:
            self.check_tested(asked)
        beyond = {name: f for name, x in asked.items() if (f := _times(self.tested[name], x)) > 1}
        law = self._law(params, tokens)
        kinds = [name for name in ("params", "tokens") if name in beyond] or ["cell"]
        errors = [error for kind in kinds if (error := self.left_out[kind]) is not None]
        error = max(errors) if errors else None
        scatter = max([law.scatter, *errors])
        best, (indifference, wider) = self._best(params, tokens)
        return Prediction(
            loss=law.loss(params, tokens, batch_tokens, scatter, self.level),
            best_batch=best,
            indifference=indifference,
            wider=wider,
            given_up=float(law.given_up(params, tokens, np.asarray(batch_tokens, float))),
            form=law.form,
            beyond=beyond,
            error=error,
        )

    def best_batch(self, params: float, tokens: float) -> Estimate:
        """B_opt in tokens at N and D, wherever they are; without a value where it is unidentified.

        That is where its interval is too wide, and everywhere if no measured (N, D) tells its own.
        """
        return self._best(params, tokens)[0]

    def indifference(self, params: float, tokens: float) -> Indifference:
        """The batches in tokens within .003 nats of the best at N and D, wherever they are."""
        return self._best(params, tokens)[1][0]

    def check_tested(self, asked: Mapping[str, float]) -> None:
        """Raises InputError where a size lies beyond what the fit was tested for."""
        for name, value in asked.items():
            seen = self.tested[name]
            times, reach = _times(seen, value), seen.reach if value > seen.high else 1.0
            if times > reach * (1 + 1e-9):
                raise InputError(
                    f"{name}: {value:.4g} is {times:.3g} times outside the {seen.low:.4g} to "
                    f"{seen.high:.4g} measured, and the fit was tested to {seen.reach:.3g} times "
                    "the largest; ask with --extrapolate, or measure there"
                )

    def _best(self, params: float, tokens: float) -> tuple[Estimate, tuple[Indifference, ...]]:
        found, alike = self.best.at(self._law(params, tokens), params, tokens, self.level)
        if all(at.batch.value is None for at in self.optima):
            note = "unidentified: so is that of every (params, tokens) measured"
            return Estimate(None, level=self.level, note=note), alike
        if too_wide(found):
            return replace(found, value=None, note=f"unidentified: {SPANS}"), alike
        return found, alike

    def _law(self, params: float, tokens: float) -> FittedForm:
        return self.extrapolating if self.is_beyond(params, tokens) else self.inside


def _times(seen: Tested, value: float) -> float:
    return max(value / seen.high, seen.low / value, 1.0)
