"""The law fitted to final losses, as a value: its JSON form, and its predictions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bss.errors import InputError
from bss.laws.final_loss.elsewhere import CellOptimum, Elsewhere
from bss.laws.final_loss.facts import (
    SIZES,
    HoldOut,
    LackOfFit,
    LossPrediction,
    OutlierRow,
    Tested,
)
from bss.laws.final_loss.fitted import FittedForm, MeanLaw
from bss.laws.final_loss.points import SAME_BUDGET, USES, LossPoints, uses
from bss.laws.final_loss.rated.best import BestRates, batch_at, best_lr
from bss.laws.final_loss.rated.hidden import COST, widened
from bss.laws.final_loss.rated.law import Posterior, RatedLaw
from bss.laws.fitting.estimate import SPANS, BestBatch, Estimate, Fit, too_wide

METHOD = (
    "losses: wild bootstrap, the errors of each (params, tokens) times a draw of mean 0 and "
    "variance 1, percentiles over the forms by their weights; best batches: posterior of the "
    "valleys and of their power law"
)
RATED_ONLY = ("rates", "best_rates", "rate_off")  # fields that only some tables have


@dataclass(frozen=True, repr=False)
class TableFit(Fit):
    """The law fitted to a table of final losses.

    Attributes:
        form: the forms inside the table with their weights.
        formula: of the heaviest of them.
        forms: those with a weight for any use, by name.
        weights: per use ("inside" the table, "beyond" its largest model or budget, "below" its
            smallest) of each form; they sum to 1.
        judged: per form its left-out error in nats, by use.
        left_out: root mean square error at left-out cells, at the largest model and at the largest
            budgets, but for losses far above the best of their cell; None where the table has too
            few cells.
        left_out_near: the same over rows near the best of their cell.
        hold_out: rows that a user asked to leave out.
        lack_of_fit: against repetitions.
        best: what tells B_opt where nothing was measured.
        optima: per measured model and budget.
        outliers: rows far from the others of their (N, D); they have no weight in the forms.
        B_opt_exponents: of the power law of best batches in N and in D, and D's less N's.
        tested: per size what was measured.
        points: the design points.
        cell_error: [n], predicted less measured in nats by a law that has not seen their (N, D).
        status: "converged" or "not converged".
        seq_len: tokens per sequence, if there is one.
        rates: the law of (N, D, B, rate); None where the table's rates do not vary.
        best_rates: what it says of rates.
        rate_off: logarithm of the factor by which rates that were not tuned may be off; else 0.
    """

    form: str
    formula: str
    forms: dict[str, FittedForm]
    weights: dict[str, dict[str, float]]
    judged: dict[str, dict[str, float]]
    left_out: dict[str, float | None]
    left_out_near: dict[str, float | None]
    hold_out: tuple[HoldOut, ...]
    lack_of_fit: LackOfFit
    best: Elsewhere = field(metadata={"key": "best_batch"})
    optima: tuple[CellOptimum, ...]
    outliers: tuple[OutlierRow, ...]
    B_opt_exponents: dict[str, Estimate]
    tested: dict[str, Tested]
    points: LossPoints
    cell_error: np.ndarray
    status: str
    seq_len: float | None
    method: str = field(default=METHOD, kw_only=True)
    rates: RatedLaw | None = field(default=None, kw_only=True)
    best_rates: BestRates | None = field(default=None, kw_only=True)
    rate_off: float = field(default=0.0, kw_only=True)

    KIND = "table"
    SCHEMA = 3

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Points as their count; themselves under `design`."""
        counts = {"points": len(self.points.loss), "design": plain["points"]}
        kept = {n: x for n, x in plain.items() if x or n not in RATED_ONLY}
        return super().encoded(kept | counts)

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields again."""
        return entry | {"points": entry["design"]}

    @property
    def batches(self) -> tuple[float, float]:
        """The smallest and largest measured, in sequences, or in tokens without their length."""
        seen, unit = self.tested["batch_tokens"], self.seq_len or 1.0
        return seen.low / unit, seen.high / unit

    def law(self, use: str = "inside") -> MeanLaw:
        """The mean of the forms for a use."""
        seen = self.tested["batch_tokens"]
        return MeanLaw.of(self.forms, self.weights[use], (seen.low, seen.high))

    def law_at(self, params: float, tokens: float) -> MeanLaw:
        """The mean of the forms at N and D."""
        return self.law(uses(np.log([[params, tokens]]), self._seen)[0])

    @property
    def _seen(self) -> np.ndarray:
        ends = [self.tested[name] for name in SIZES[:2]]
        return np.log([[one.low for one in ends], [one.high for one in ends]])

    def predict(
        self,
        params: ArrayLike,
        tokens: ArrayLike,
        batch_tokens: ArrayLike,
        lr: ArrayLike | None = None,
    ) -> np.ndarray:
        """Final losses in nats, float64; arguments broadcast. Without `lr` at a tuned rate.

        Raises:
            InputError: a number is not positive, or a rate is asked of a table of one.
        """
        given = dict(zip(SIZES, (params, tokens, batch_tokens), strict=True))
        given |= {} if lr is None else {"lr": lr}
        for name, values in given.items():
            if not np.all(np.asarray(values, float) > 0):
                raise InputError(f"{name}: {values} at a prediction; give positive numbers")
        if lr is not None and self.rates is None:
            raise InputError(
                "lr: the fit's table has no batch of several rates, so it tells nothing of the "
                "rate; fit a table in which rates vary, or leave it out"
            )
        if self.rates is not None:
            if lr is None:
                return self.rates.tuned(params, tokens, batch_tokens)
            return self.rates.losses(params, tokens, batch_tokens, lr)
        shaped = np.broadcast_arrays(*(np.asarray(x, float) for x in given.values()))
        flat = [x.ravel() for x in shaped]
        use = np.array(uses(np.log(np.stack(flat[:2], axis=1)), self._seen))
        losses = np.zeros(len(use))
        for one in (one for one in USES if (use == one).any()):
            rows = use == one
            losses[rows] = self.law(one).losses(*(x[rows] for x in flat))
        return losses.reshape(shaped[0].shape)

    def posterior(
        self,
        params: ArrayLike,
        tokens: ArrayLike,
        batch_tokens: ArrayLike,
        lr: ArrayLike | None = None,
    ) -> tuple[Posterior, ...]:
        """What each form says of points [m]; without `lr` at a tuned rate. Arguments broadcast."""
        sizes = [np.asarray(x, float) for x in (params, tokens, batch_tokens)]
        shaped = [x.ravel() for x in np.broadcast_arrays(*sizes)]
        if (law := self.rates) is not None:
            N, D, B = sizes
            return law.posterior(N, D, B, law.best_lr(N, D, B) if lr is None else lr)
        law, told = self.law_at(float(shaped[0][0]), float(shaped[1][0])), []
        for weight, one in zip(law.weights, law.forms, strict=True):
            draws = one.losses(one.draws.T[..., None], *shaped)
            covariance = np.atleast_2d(np.cov(draws, rowvar=False))
            mean, noise = one.losses(one.theta, *shaped), np.full(len(shaped[0]), one.scatter)
            told.append(Posterior(weight, mean, covariance, noise))
        return tuple(told)

    def prediction(
        self,
        params: float,
        tokens: float,
        batch_tokens: float,
        lr: float | None = None,
        *,
        extrapolate: bool = False,
    ) -> LossPrediction:
        """What the law says of one run, with intervals; without `lr` of one at a tuned rate.

        Raises:
            InputError: a number is not positive, or lies beyond what the fit was tested for and
                `extrapolate` is false; or a rate is asked of a table of one.
        """
        self.predict(params, tokens, batch_tokens, lr)
        sizes = dict(zip(SIZES, (params, tokens, batch_tokens), strict=True))
        sizes |= {} if lr is None else {"lr": lr}
        if not extrapolate:
            self.check_tested(sizes)
        beyond = self.outside(sizes)
        kinds = [name for name in ("params", "tokens") if name in beyond] or ["cell"]
        tested = self.left_out if self.rates is None else self.rates.left_out
        errors = [error for kind in kinds if (error := tested[kind]) is not None]
        error, best = max(errors) if errors else None, self.best_batch(params, tokens)
        if self.rates is not None:
            return self._rated(self.rates, sizes, best, beyond, error)
        law = self.law_at(params, tokens)
        scatter = float(np.hypot(max([law.scatter, *errors]), COST * self.rate_off**2))
        lost = float(law.given_up(params, tokens, np.asarray(batch_tokens, float)))
        return LossPrediction(
            loss=law.loss(params, tokens, batch_tokens, scatter, self.level),
            best_batch=best,
            given_up=lost if best.value is not None else None,
            form=law.text,
            beyond=beyond,
            error=error,
        )

    def predictions(
        self,
        params: np.ndarray,
        tokens: np.ndarray,
        batch_tokens: np.ndarray,
        lr: np.ndarray | None = None,
    ) -> list[Estimate]:
        """Of runs [m], each with the interval of a new run; without `lr` at tuned rates."""
        if self.rates is None:
            rows = zip(params, tokens, batch_tokens, strict=True)
            return [self.prediction(*row, extrapolate=True).loss for row in rows]
        self.predict(params, tokens, batch_tokens, lr)
        if lr is None:
            lr = self.rates.best_lr(params, tokens, batch_tokens)
        return self.rates.predictions(params, tokens, batch_tokens, lr, self.level)

    def _rated(
        self,
        law: RatedLaw,
        sizes: Mapping[str, float],
        best: BestBatch,
        beyond: dict[str, float],
        error: float | None,
    ) -> LossPrediction:
        params, tokens, batch = (sizes[name] for name in SIZES)
        lr = sizes.get("lr") or float(law.best_lr(params, tokens, batch))
        (loss,) = law.predictions(params, tokens, batch, lr, self.level)
        least = float(law.valley(params, tokens)[2].min())
        return LossPrediction(
            loss=loss,
            best_batch=best,
            given_up=max((loss.value or least) - least, 0.0) if best.value is not None else None,
            form=law.text(law.use(params, tokens)),
            beyond=beyond,
            error=error,
            lr=sizes.get("lr"),
            best_lr=best_lr(law, params, tokens, batch, self.level),
            best_batch_at_lr=batch_at(law, params, tokens, lr, self.level)
            if "lr" in sizes
            else None,
        )

    def best_batch(self, params: float, tokens: float) -> BestBatch:
        """B_opt in tokens at N and D, wherever they are; without a value where it is unidentified.

        At a measured (N, D) that of its own runs. Elsewhere it has no value where its interval is
        too wide, nor if no measured (N, D) tells its own.
        """
        for at in self.optima:
            if np.hypot(np.log(at.params / params), np.log(at.tokens / tokens)) < SAME_BUDGET:
                return at.batch
        least = self.seq_len or 1.0
        best = self.best.at(self.law_at(params, tokens), params, tokens, self.level, least)
        best = widened(best, self.rate_off)
        if all(at.batch.value is None for at in self.optima):
            why = "so is that of every (params, tokens) measured"
            return replace(best, low=None, high=None).unknown(self.optima[0].batch.status, why)
        if best.value is not None and too_wide(best):
            return best.unknown("too wide", SPANS)
        return best

    def _range(self, name: str) -> Tested:
        """What was measured of a size, or of the rate."""
        if name != "lr":
            return self.tested[name]
        rates = self.rates.points.lr if self.rates else np.ones(1)
        return Tested(float(rates.min()), float(rates.max()), 1.0)

    def outside(self, sizes: Mapping[str, float]) -> dict[str, float]:
        """How many times outside what was measured, by size; empty inside."""
        return {n: f for n, x in sizes.items() if (f := self._range(n).times(x)) > 1 + 1e-9}

    def check_tested(self, sizes: Mapping[str, float]) -> None:
        """Raises InputError where a size lies beyond what the fit was tested for."""
        if why := self.untested(sizes):
            raise InputError(f"{why}; ask with --extrapolate, or measure there")

    def untested(self, sizes: Mapping[str, float]) -> str:
        """Why a size lies beyond what the fit was tested for; nothing where none does."""
        for name, value in sizes.items():
            seen = self._range(name)
            times, reach = seen.times(value), seen.reach if value > seen.high else 1.0
            if times > reach * (1 + 1e-9):
                return (
                    f"{name}: {value:.4g} is {times:.3g} times outside the {seen.low:.4g} to "
                    f"{seen.high:.4g} measured, and the fit was tested to {seen.reach:.3g} times "
                    "the largest"
                )
        return ""
