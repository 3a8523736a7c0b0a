"""The law fitted to final losses, as a value: its JSON form, and its predictions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from bss.errors import InputError, check
from bss.laws.base import (
    SPANS,
    BestBatch,
    Estimate,
    Fit,
    Outlier,
    as_positive,
    check_lengths,
    check_names,
    described,
    notes_of,
    run_table,
    too_wide,
)
from bss.laws.final_loss.best import (
    BestLRs,
    CellOptimum,
    best_lr,
    drawn_optimum,
    of_draws,
    tolerances,
)
from bss.laws.final_loss.law import LossLaw
from bss.laws.final_loss.points import SAME_BUDGET
from bss.laws.power import PowerFit, predict
from bss.units import rounded_tokens
from bss.values import Nonnegative, Positive, Range

if TYPE_CHECKING:
    import pandas as pd  # which reading a fit does not load

SIZES: tuple[str, ...] = ("params", "tokens", "batch_tokens")
METHOD = (
    "losses: mean of forms by their left-out errors, Gaussian process of its residuals, with the "
    "differences of the forms and the uncertainty of their parameters, as wide as left-out rows "
    "require; best batches: draws of these losses; exponents: "
    "least squares through best batches"
)


@dataclass(frozen=True)
class TestedRange:
    """The range of a size that was measured, and how far beyond it errors were measured.

    Attributes:
        low, high: measured.
        reach: largest size of a left-out fold, divided by the largest other one; 1 without.
    """

    may_lack: ClassVar[tuple[str, ...]] = ()

    low: Positive
    high: Positive
    reach: Annotated[float, Range(1)]

    def check(self, where: str) -> None:
        """Raise InputError if the JSON that it was read from contradicts itself."""
        if self.low > self.high:
            raise InputError(f"{where}low is above high")

    def times(self, value: float) -> float:
        """Return how many times outside of what was measured a size is; 1 within."""
        return max(value / self.high, self.low / value, 1.0)


def _exceeds(times: float, limit: float) -> bool:
    """Whether a ratio is above a limit by more than rounding."""
    rounding = 1e-9  # relative, far above that of float64
    return times > limit * (1 + rounding)


@dataclass(frozen=True)
class LossPrediction:
    """The prediction for one run.

    Attributes:
        loss: in nats, with the interval of a new run.
        best_batch: B_opt in tokens with equally good batches, or why it has no value.
        excess_loss: the loss minus that of B_opt, in nats; None if B_opt has no value.
        form: name of the form.
        beyond: how many times outside of what was measured, by size; empty inside.
        error: root mean square error at left-out runs of this kind, in nats.
        lr: of the run; None for the best one, or if the table has one LR per batch.
        best_lr: at this batch; None for such a table.
    """

    loss: Estimate
    best_batch: BestBatch
    excess_loss: float | None
    form: str
    beyond: dict[str, float]
    error: float | None
    lr: float | None = None
    best_lr: Estimate | None = None


@dataclass(frozen=True, repr=False)
class LossFit(Fit):
    """The law fitted to a table of final losses.

    Attributes:
        law: the law of losses, with the rows.
        formula: of the form.
        parameters: of the form, each with its interval, at the middle of the table.
        left_out: root mean square errors in nats near the best batches of left-out rows. The rows
            left out are each (N, D), the largest model, or the largest budgets. None if the table
            has too few (N, D).
        optima: per measured model and budget.
        best: the power law through the best batches; None if they are too few.
        B_opt_exponents: of B_opt in N and in D.
        outliers: rows far from the others, which are not in the law.
        tested: per size what was measured.
        rmse: root mean square residual, in nats.
        cell_error: [n], predicted minus measured in nats by a law without their (N, D).
        best_lrs: best LRs; None if they do not vary.

    Source: derived here; a form for loss over N, D, batch size and LR.

    Examples:
        >>> from importlib.resources import files
        >>> from bss import read_fit
        >>> fit = read_fit(files("bss.laws") / "published" / "steplaw_dense.json")
        >>> fit.predict(params="1B", tokens="100B", batch=512)["loss"].round(3).tolist()  # nats
        [2.088]
    """

    law: LossLaw
    formula: str
    parameters: dict[str, Estimate]
    left_out: dict[str, Nonnegative | None]
    optima: tuple[CellOptimum, ...]
    best: PowerFit | None = field(metadata={"key": "best_batch_law"})
    B_opt_exponents: dict[str, Estimate]
    outliers: tuple[Outlier, ...]
    tested: dict[str, TestedRange]
    rmse: Nonnegative
    cell_error: Annotated[np.ndarray, Range(nan=True)]
    best_lrs: BestLRs | None = field(default=None, metadata={"key": "best_rates"})
    method: str = field(default=METHOD, kw_only=True)

    KIND = "loss"
    SCHEMA = 8  # version of the JSON
    RESIDUAL_UNIT = "nats"

    def check(self, where: str) -> None:
        """See `Fit.check`."""
        lr = ("lr",) if self.with_lr else ()
        if {*SIZES} - {*self.tested} or {*self.tested} - {*SIZES, *lr}:
            raise InputError(f"{where}tested has {', '.join(self.tested)}")
        check_names(self.left_out, ("cell", "params", "tokens"), f"{where}left_out")
        check_lengths({"optima": self.optima}, where, len(self.law.points.cells))
        check_lengths({"cell_error": self.cell_error}, where, len(self.law.points.loss))
        if self.best is not None and {*self.best.variables} - {*SIZES}:
            raise InputError(f"{where}best_batch_law is of {', '.join(self.best.variables)}")

    @property
    def RESIDUAL_AXES(self) -> dict[str, str]:  # pyrefly: ignore
        """Columns of `residuals` to plot against, with axis labels."""
        axes = {"params": "N", "tokens": "D (tokens)", "log_batch_over_best": "log $B/B_{opt}$"}
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
        """Whether the learning rate is a variable of the law."""
        return self.law.points.with_lr

    @property
    def cv_error(self) -> float | None:
        """Root mean square error at left-out (N, D), in nats."""
        return self.left_out["cell"]

    @property
    def batches(self) -> tuple[float, float]:
        """The smallest and largest measured, in sequences, or in tokens without their length."""
        seen = self.tested["batch_tokens"]
        unit = self.seq_len or 1.0
        return seen.low / unit, seen.high / unit

    def _new_runs(
        self, params: ArrayLike, tokens: ArrayLike, batch_tokens: ArrayLike, lr: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return expected losses [m] of single runs, and half-widths of their intervals."""
        self._check(params, tokens, batch_tokens, lr)
        loss, deviation = self.law.predictions(params, tokens, batch_tokens, lr)
        return loss, NormalDist().inv_cdf((1 + self.level) / 2) * deviation

    def losses(
        self, params: ArrayLike, tokens: ArrayLike, batch_tokens: ArrayLike, lr: Any = None
    ) -> np.ndarray:
        """Return expected final losses in nats; arguments broadcast. Without lr at the best one.

        Raises:
            InputError: If a number is not positive, or lr is given and the law has none.
        """
        self._check(params, tokens, batch_tokens, lr)
        return self.law.losses(params, tokens, batch_tokens, lr)

    def _check(self, params: Any, tokens: Any, batch_tokens: Any, lr: Any) -> None:
        """Raise InputError if a number is not positive, or lr is given and the law has none."""
        given = {"params": params, "tokens": tokens, "batch_tokens": batch_tokens}
        if lr is not None:
            given["lr"] = lr
        for name, values in given.items():
            check(bool(np.all(np.asarray(values, float) > 0)), name, values, "positive numbers")
        if lr is not None:
            self._check_lr()

    def _check_lr(self) -> None:
        """Raise InputError if the law has no LR."""
        if not self.with_lr:
            raise InputError(
                "lr: no batch of the fit's table has several LRs, so the law has no LR; fit a "
                "table with several LRs per batch, or leave lr out"
            )

    def predict(
        self,
        runs: "pd.DataFrame | None" = None,
        *,
        params: Any = None,
        tokens: Any = None,
        batch: Any = None,
        lr: Any = None,
    ) -> "pd.DataFrame":
        """Return final losses of new runs, with the intervals of new runs.

        Args:
            runs: One run per row: params, tokens, batch_tokens, and lr if the law has it.
            params: Non-embedding parameters, without a table, e.g. "350M".
            tokens: Token budget, without a table, e.g. "30B".
            batch: Batch size in sequences, without a table; by default B_opt.
            lr: Peak learning rate; by default the best one.

        Returns:
            Columns loss, loss_low, loss_high in nats, and note, with what of the run lies beyond
            what the fit was tested for.

        Raises:
            InputError: If a column is missing, a value is not a positive number, the law has no LR
                but lr is given by name, or B_opt is needed and not identified.
        """
        import pandas as pd

        size = None
        if runs is None:
            missing = [n for n, x in (("params", params), ("tokens", tokens)) if x is None]
            if missing:
                raise InputError(f"predict: {', '.join(missing)} missing; give both, or a table")
            size = self._sizes_in_tokens(params, tokens, batch)
        given = {"params": params, "tokens": tokens, "batch_tokens": size, "lr": lr}
        table = run_table(runs, SIZES, given, optional=("lr",) if self.with_lr else ())
        if lr is not None:
            self._check_lr()
        sizes = {name: table[name].to_numpy() for name in SIZES}
        lrs = table["lr"].to_numpy() if "lr" in table else None
        loss, half = self._new_runs(**sizes, lr=lrs)
        losses = {"loss": loss, "loss_low": loss - half, "loss_high": loss + half}
        return pd.DataFrame(losses | {"note": notes_of(self, table)}, table.index)

    def _sizes_in_tokens(self, params: Any, tokens: Any, batch: Any) -> Any:
        """Return batch sizes in tokens, of batch sizes in sequences, or B_opt if there is none."""
        if batch is None:
            best = self.best_batch(params, tokens)
            if best.value is None:
                raise InputError(f"batch: missing, and B_opt is {best.note}; give it")
            return best.value
        if self.seq_len is None:
            raise InputError(
                "batch: the fit's table had no sequence length; give a table with batch_tokens"
            )
        listed = [batch] if isinstance(batch, str) else np.ravel(batch)
        return as_positive("batch", listed) * self.seq_len

    def draws_at(self, table: "pd.DataFrame") -> np.ndarray:
        """Return draws [R, n] of losses in nats; columns params, tokens, batch_tokens."""
        return self.law.draws(*(table[name].to_numpy(float) for name in SIZES))[1:]

    @property
    def _largest(self) -> CellOptimum:
        """The largest measured (N, D) that identifies B_opt."""
        known = [at for at in self.optima if at.batch.value is not None] or [*self.optima]
        return max(known, key=lambda at: (at.params, at.tokens))

    @property
    def goal(self) -> str:
        """B_opt at the largest measured (N, D) that identifies it."""
        sizes = (self._largest.params, self._largest.tokens)
        digits = 4  # within 0.05%; sizes within 3% are one
        return f"B_opt@{','.join(rounded_tokens(size, digits) for size in sizes)}"

    @property
    def answer(self) -> str:
        """B_opt at the largest measured (N, D) that identifies it."""
        at = self._largest
        name = f"B_opt at N = {rounded_tokens(at.params)}, D = {rounded_tokens(at.tokens)} tokens"
        unit = self.seq_len or 1.0
        noun = "sequences" if self.seq_len else "tokens"
        ends = [end and end / unit for end in (at.batch.value, at.batch.low, at.batch.high)]
        method = at.batch.method if at.batch.value is not None else at.batch.status
        return described(name, Estimate(*ends, level=at.batch.level), noun, method)

    def details(self) -> "dict[str, pd.DataFrame]":
        """Return errors at left-out runs, exponents, and parameters of the form."""
        import pandas as pd

        alone = self.law.cv_errors if self.law.others else {}
        errors = [*((self.law.mixture, *pair) for pair in self.left_out.items())]
        errors += [(name, "cell", error) for name, error in alone.items()]
        columns = ["law", "left out", "rms error (nats)"]
        powers = {f"B_opt ∝ {n}": e for n, e in self.B_opt_exponents.items()}
        if self.best_lrs is not None:
            powers |= {f"best LR ∝ {n}": e for n, e in self.best_lrs.exponents.items()}

        def table(estimates: Mapping[str, Estimate], name: str) -> pd.DataFrame:
            return pd.DataFrame([
                {name: key, "value": e.value, "low": e.low, "high": e.high, "note": e.why}
                for key, e in estimates.items()
            ])  # fmt: skip

        return {
            "Cross-validation": pd.DataFrame(errors, columns=columns),
            "Exponents": table(powers, "power law"),
            f"Parameters of the {self.law.form} form": table(self.parameters, "parameter"),
        }

    def summary(self) -> "pd.DataFrame":
        """Return params, tokens, B_opt_tokens with _low and _high per measured (N, D).

        Further columns are method, status, and measured_tokens: B_opt by its own runs alone.
        """
        import pandas as pd

        rows = []
        for at in self.optima:
            row = {"params": at.params, "tokens": at.tokens}
            for name, one in (("B_opt_tokens", at.batch), ("measured_tokens", at.measured)):
                row |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
            rows.append(row | {"method": at.batch.method, "status": at.batch.status})
        return pd.DataFrame(rows)

    def residuals(self) -> "pd.DataFrame":
        """Return sizes, measured, fitted, residual and left_out of each run, in nats.

        Residuals are measured minus fitted; left_out is the residual of a law without its (N, D).
        """
        import pandas as pd

        points = self.law.points
        best = np.array([at.batch.value or np.nan for at in self.optima])[points.cell]
        fitted = self.law.losses(points.params, points.tokens, points.batch, points.lr)
        table = {"params": points.params, "tokens": points.tokens, "batch_tokens": points.batch}
        if self.with_lr:
            table["lr"] = points.lr
        table |= {
            "steps": points.tokens / points.batch,
            "log_batch_over_best": np.log(points.batch / best),
            "measured": points.loss,
            "fitted": fitted,
            "residual": points.loss - fitted,
            "left_out": -self.cell_error,
        }
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
        """Return the prediction for one run, with intervals; without lr at the best one.

        Raises:
            InputError: If a number is not positive, the law has no LR but lr is given, or a number
                is outside the tested range without `extrapolate`.
        """
        law = self.law
        (loss,), (half,) = self._new_runs(params, tokens, batch_tokens, lr)
        sizes = dict(zip(SIZES, (params, tokens, batch_tokens), strict=True))
        if lr is not None:
            sizes["lr"] = lr
        if not extrapolate:
            self.check_tested(sizes)
        beyond = self.outside(sizes)
        kinds = [name for name in ("params", "tokens") if name in beyond] or ["cell"]
        errors = [error for kind in kinds if (error := self.left_out[kind]) is not None]
        best = self.best_batch(params, tokens)
        excess = max(float(loss - law.curve(params, tokens)[1].min()), 0.0)
        at_best = best_lr(law, params, tokens, batch_tokens, self.level) if self.with_lr else None
        return LossPrediction(
            loss=Estimate(float(loss), float(loss - half), float(loss + half), self.level),
            best_batch=best,
            excess_loss=excess if best.value is not None else None,
            form=law.form,
            beyond=beyond,
            error=max(errors, default=None),
            lr=lr,
            best_lr=at_best,
        )

    def best_batch(self, params: Any = None, tokens: Any = None) -> BestBatch:
        """Return B_opt in tokens at any N and D; without a value if it is unidentified.

        At a measured (N, D) it is the one in `optima`. Elsewhere it has no value if its interval is
        too wide, or if no measured (N, D) has one.

        Args:
            params: Non-embedding parameters N, e.g. "350M".
            tokens: Token budget D, e.g. "30B". Without both, it is of the largest measured (N, D)
                that identifies B_opt.

        Raises:
            InputError: If one is missing or no positive number.
        """
        if params is None and tokens is None:
            return self._largest.batch
        if params is None or tokens is None:
            raise InputError(f"{'params' if params is None else 'tokens'}: missing; give both")
        (params,) = as_positive("params", [params])
        (tokens,) = as_positive("tokens", [tokens])
        for at in self.optima:
            if np.hypot(np.log(at.params / params), np.log(at.tokens / tokens)) < SAME_BUDGET:
                return at.batch
        none = BestBatch(None, level=self.level, method="law" if self.best is None else "power law")
        if all(at.batch.value is None for at in self.optima):
            why = "no measured (params, tokens) has a best batch"
            return none.unknown(self.optima[0].batch.status, why)
        if self.best is None:
            seen = self.tested["batch_tokens"]
            found = of_draws(
                drawn_optimum(self.law, params, tokens, (seen.low, seen.high)), none.level
            )
        else:
            found = predict(self.best, {"params": params, "tokens": tokens})
        best = replace(none, value=found.value, low=found.low, high=found.high)
        best = best.at_least(float(self.seq_len or 1.0))
        if best.value is None or too_wide(best):
            return best.unknown("interval_too_wide", SPANS)
        return replace(best, ranges=tolerances(self.law, params, tokens, best.value))

    def _range(self, name: str) -> TestedRange:
        """Return the range measured of a size, or of the learning rate."""
        if name != "lr":
            return self.tested[name]
        rates = self.law.points.lr
        return TestedRange(float(rates.min()), float(rates.max()), 1.0)

    def outside(self, sizes: Mapping[str, float]) -> dict[str, float]:
        """Return how many times outside of what was measured, by size; empty inside."""
        times = {name: self._range(name).times(value) for name, value in sizes.items()}
        return {name: factor for name, factor in times.items() if _exceeds(factor, 1.0)}

    def untested(self, sizes: Mapping[Any, float]) -> list[str]:
        """Return what of a run lies beyond what the fit was tested for."""
        texts = []
        for name, value in sizes.items():
            seen = self._range(name)
            times = seen.times(value)
            reach = seen.reach if value > seen.high else 1.0
            if _exceeds(times, reach):
                texts.append(
                    f"{name}: {value:.4g} is {times:.3g} times outside the {seen.low:.4g} to "
                    f"{seen.high:.4g} measured, and the fit was tested to {seen.reach:.3g} times "
                    "the largest"
                )
        return texts

    def check_tested(self, sizes: Mapping[str, float]) -> None:
        """Raise InputError if a size lies beyond what the fit was tested for."""
        for text in self.untested(sizes):
            raise InputError(f"{text}; pass --extrapolate, or measure there")
