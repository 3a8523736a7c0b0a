"""The law fitted to final losses, as a value: its JSON form, and its predictions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bss.errors import InputError
from bss.laws.base import BestBatch, Estimate, Fit
from bss.laws.final_loss.best import (
    BestBatchLaw,
    BestRates,
    CellOptimum,
    batch_at,
    best_lr,
    bounded_elsewhere,
    drawn_optimum,
    tolerances,
)
from bss.laws.final_loss.law import LossLaw
from bss.laws.final_loss.points import SAME_BUDGET

if TYPE_CHECKING:
    import pandas as pd  # which reading a fit does not load

SIZES: tuple[str, ...] = ("params", "tokens", "batch_tokens")
METHOD = (
    "losses: kriging of what the forms miss, with the uncertainty of their parameters, as wide as "
    "left-out rows ask for; best batches: draws of these losses"
)


@dataclass(frozen=True)
class HoldOut:
    """Errors at rows that a user asked to leave out.

    Attributes:
        out: what was left out, as tokens>=80B.
        rows: how many, but for diverged ones.
        rmse, near: root mean square error, and of rows near the best of their (N, D), in nats.
    """

    out: str
    rows: int
    rmse: float
    near: float | None


@dataclass(frozen=True)
class OutlierRow:
    """A row that lies far from what all others say of it.

    Attributes:
        params, tokens, batch_tokens, lr: of the row; no lr where the table has none.
        above: the median of the others of its (N, D), in nats; negative below.
        times: its expected error.
    """

    params: float
    tokens: float
    batch_tokens: float
    lr: float | None
    above: float
    times: float


@dataclass(frozen=True)
class TestedRange:
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


@dataclass(frozen=True, repr=False)
class TableFit(Fit):
    """The law fitted to a table of final losses.

    Attributes:
        law: the law of losses, with the rows.
        formula: of the heaviest form.
        parameters: of the heaviest form, each with its interval, at the middle of the table.
        left_out: root mean square error near the best of left-out (N, D), of the largest model and
            of the largest budgets, in nats; None where the table has too few (N, D).
        hold_out: rows that a user asked to leave out.
        optima: per measured model and budget.
        best: the power law through the best batches; None where they are too few.
        B_opt_exponents: of B_opt in N and in D, and D's less N's.
        outliers: rows far from the others, which are not in the law.
        tested: per size what was measured.
        rmse: root mean square of losses about the law, in nats.
        cell_error: [n], predicted less measured in nats by a law that has not seen their (N, D).
        best_rates: what the law says of rates; None where they do not vary.
    """

    law: LossLaw
    formula: str
    parameters: dict[str, Estimate]
    left_out: dict[str, float | None]
    hold_out: tuple[HoldOut, ...]
    optima: tuple[CellOptimum, ...]
    best: BestBatchLaw | None = field(metadata={"key": "best_batch_law"})
    B_opt_exponents: dict[str, Estimate]
    outliers: tuple[OutlierRow, ...]
    tested: dict[str, TestedRange]
    rmse: float
    cell_error: np.ndarray
    best_rates: BestRates | None = None
    method: str = field(default=METHOD, kw_only=True)

    KIND = "table"
    SCHEMA = 4
    RESIDUAL_UNIT = "nats"

    @property
    def RESIDUAL_AXES(self) -> dict[str, str]:  # pyright: ignore
        """Columns of `residuals` to plot against, with axis labels."""
        axes = {"params": "N", "tokens": "D (tokens)", "log_batch_over_best": "log B/B_opt"}
        return axes | {"steps": "steps S"} | ({"lr": "learning rate"} if self.with_lr else {})

    @property
    def status(self) -> str:
        """Whether the fit converged."""
        return "converged" if self.law.converged else "not converged"

    @property
    def seq_len(self) -> float | None:
        """Tokens per sequence, if there is one length."""
        return self.law.points.seq_len

    @property
    def with_lr(self) -> bool:
        """Whether the rate is a variable of the law."""
        return self.law.points.with_lr

    @property
    def cv_error(self) -> float | None:
        """Root mean square error at left-out (N, D), in nats."""
        return self.left_out["cell"]

    @property
    def batches(self) -> tuple[float, float]:
        """The smallest and largest measured, in sequences, or in tokens without their length."""
        seen, unit = self.tested["batch_tokens"], self.seq_len or 1.0
        return seen.low / unit, seen.high / unit

    def losses(
        self, params: ArrayLike, tokens: ArrayLike, batch_tokens: ArrayLike, lr: Any = None
    ) -> np.ndarray:
        """Expected final losses in nats; arguments broadcast. Without `lr` at a tuned rate.

        Raises:
            InputError: a number is not positive, or a rate is asked of a table of one.
        """
        given = dict(zip(SIZES, (params, tokens, batch_tokens), strict=True))
        given |= {} if lr is None else {"lr": lr}
        for name, values in given.items():
            if not np.all(np.asarray(values, float) > 0):
                raise InputError(f"{name}: {values} at a prediction; give positive numbers")
        if lr is not None and not self.with_lr:
            raise InputError(
                "lr: the fit's table has no batch of several rates, so it tells nothing of the "
                "rate; fit a table in which rates vary, or leave it out"
            )
        return self.law.losses(params, tokens, batch_tokens, lr)

    def predict(self, table: "pd.DataFrame") -> "pd.DataFrame":
        """Columns loss, low, high in nats, of a new run of each row; at a tuned rate without lr.

        Args:
            table: params, tokens, batch_tokens, and lr where the law has it.
        """
        import pandas as pd

        params, tokens, batch = (table[name].to_numpy(float) for name in SIZES)
        lr = table["lr"].to_numpy(float) if self.with_lr and "lr" in table else None
        self.losses(params, tokens, batch, lr)
        found = self.law.predictions(params, tokens, batch, lr, level=self.level)
        rows = [(one.value, one.low, one.high) for one in found]
        return pd.DataFrame(rows, table.index, columns=["loss", "low", "high"])

    def summary(self) -> "pd.DataFrame":
        """A row per measured (N, D): params, tokens, B_opt in tokens with B_opt_low and _high.

        Beside them method, status, and the same measured by its own runs alone.
        """
        import pandas as pd

        rows = []
        for at in self.optima:
            row = {"params": at.params, "tokens": at.tokens}
            for name, one in (("B_opt", at.batch), ("measured", at.measured)):
                row |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
            rows.append(row | {"method": at.batch.method, "status": at.batch.status})
        return pd.DataFrame(rows)

    def residuals(self) -> "pd.DataFrame":
        """A row per run: its sizes, measured, fitted, residual and left_out (measured less
        predicted by a law that has not seen its (N, D)), in nats."""
        import pandas as pd

        points = self.law.points
        best = np.array([at.batch.value or np.nan for at in self.optima])[points.cell]
        fitted = self.law.losses(points.params, points.tokens, points.batch, points.lr)
        table = {"params": points.params, "tokens": points.tokens, "batch_tokens": points.batch}
        table |= {"lr": points.lr} if self.with_lr else {}
        table |= {"steps": points.tokens / points.batch}
        table |= {"log_batch_over_best": np.log(points.batch / best), "measured": points.loss}
        table |= {"fitted": fitted, "residual": points.loss - fitted, "left_out": -self.cell_error}
        return pd.DataFrame(table)

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
        law, sizes = self.law, dict(zip(SIZES, (params, tokens, batch_tokens), strict=True))
        self.losses(params, tokens, batch_tokens, lr)
        sizes |= {} if lr is None else {"lr": lr}
        if not extrapolate:
            self.check_tested(sizes)
        beyond = self.outside(sizes)
        kinds = [name for name in ("params", "tokens") if name in beyond] or ["cell"]
        errors = [error for kind in kinds if (error := self.left_out[kind]) is not None]
        best = self.best_batch(params, tokens)
        (loss,) = law.predictions(params, tokens, batch_tokens, lr, level=self.level)
        least = float(law.curve(params, tokens)[1].min())
        rates = {}
        if self.with_lr:
            rates = {"lr": lr, "best_lr": best_lr(law, params, tokens, batch_tokens, self.level)}
        if lr is not None:
            rates |= {"best_batch_at_lr": batch_at(law, params, tokens, lr, self.level)}
        return LossPrediction(
            loss=loss,
            best_batch=best,
            given_up=max((loss.value or least) - least, 0.0) if best.value is not None else None,
            form=law.text(law.regime(params, tokens)),
            beyond=beyond,
            error=max(errors, default=None),
            **rates,
        )

    def best_batch(self, params: float, tokens: float) -> BestBatch:
        """B_opt in tokens at N and D, wherever they are; without a value where it is unidentified.

        At a measured (N, D) that of its own. Elsewhere it has no value where its interval is too
        wide, nor if no measured (N, D) tells its own.
        """
        for at in self.optima:
            if np.hypot(np.log(at.params / params), np.log(at.tokens / tokens)) < SAME_BUDGET:
                return at.batch
        none = BestBatch(None, level=self.level, method="power law")
        if all(at.batch.value is None for at in self.optima):
            why = "so is that of every (params, tokens) measured"
            return none.unknown(self.optima[0].batch.status, why)
        seen = self.tested["batch_tokens"]
        if self.best is None:
            ends = seen.low, seen.high
            draws = drawn_optimum(self.law, params, tokens, ends)
            best = bounded_elsewhere(replace(none, method="law"), draws, self.seq_len)
        else:
            best = bounded_elsewhere(none, self.best.at(params, tokens), self.seq_len)
        if best.value is None:
            return best
        return replace(best, ranges=tolerances(self.law, params, tokens, best.value))

    def _range(self, name: str) -> TestedRange:
        """What was measured of a size, or of the rate."""
        if name != "lr":
            return self.tested[name]
        rates = self.law.points.lr
        return TestedRange(float(rates.min()), float(rates.max()), 1.0)

    def outside(self, sizes: Mapping[str, float]) -> dict[str, float]:
        """How many times outside what was measured, by size; empty inside."""
        return {n: f for n, x in sizes.items() if (f := self._range(n).times(x)) > 1 + 1e-9}

    def check_tested(self, sizes: Mapping[str, float]) -> None:
        """Raises InputError where a size lies beyond what the fit was tested for."""
        for name, value in sizes.items():
            seen = self._range(name)
            times, reach = seen.times(value), seen.reach if value > seen.high else 1.0
            if times > reach * (1 + 1e-9):
                raise InputError(
                    f"{name}: {value:.4g} is {times:.3g} times outside the {seen.low:.4g} to "
                    f"{seen.high:.4g} measured, and the fit was tested to {seen.reach:.3g} times "
                    "the largest; ask with --extrapolate, or measure there"
                )
