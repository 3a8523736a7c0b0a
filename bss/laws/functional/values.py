"""The fitted law of loss curves as a value, and its JSON form."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.base import BestBatch, Estimate, Fit, Outlier, bounded, described, interval
from bss.laws.functional.curves import Curves, curves_of, stack
from bss.laws.functional.forecast import forecast, untested
from bss.laws.functional.law import CurveLaw, law_losses
from bss.laws.functional.paths import plan_path
from bss.schedules.batch import BatchSchedule

MAX_ROWS = 1500  # losses saved: the rest of the 150 kB
MAY_LACK = ("cv_errors", "budgets", "peak_lrs", "outliers", "curves")
METHOD = (
    "parametric bootstrap of the robust fit in log loss, run offset and independent noise; "
    "percentiles"
)


@dataclass(frozen=True)
class FittedRun:
    """The losses of one run that were fitted, in nats, with tokens, batch and LR at each."""

    run: str
    tokens: tuple[float, ...]
    batch: tuple[float, ...]
    lr: tuple[float, ...]
    measured: tuple[float, ...]
    fitted: tuple[float, ...]


@dataclass(frozen=True, repr=False)
class CurveFit(Fit):
    """The functional scaling law fitted to loss curves of one model.

    Attributes:
        clock: time variable, "sgd" (m = 1, B_phi = 0) or "adam".
        law: the parameters used in predictions, in steps, sequences and the LRs given;
            those that the runs do not identify have a conventional value.
        parameters: each with its interval; value None and a note if it is unidentified.
        status: "converged", "not converged" or "unidentified: ...".
        identified: whether losses of schedules that change can be predicted.
        rmse: root mean square error of log loss over the losses fitted.
        cv_errors: RMS error of log loss per time variable, at the ends of runs left out one at a
            time; empty with too few runs.
        seq_len: tokens per sequence.
        batches, rates: smallest and largest batch (sequences); smallest and largest LR above 0.
        tokens: of the longest run.
        losses, runs: number fitted.
        since, warmup: tokens before which losses were left out, and tokens of linear warm-up.
        measured: number of losses before curves were thinned.
        min_lr_over_peak: the lowest learning rate of a run after its peak, over the peak.
        max_lr_over_batch: the largest learning rate over batch.
        draws: laws of the bootstrap, one row of the values of `CurveLaw` each; at most MAX_DRAWS.
        budgets, peak_lrs: token budgets and peak LRs of the runs.
        outliers: runs whose end differs from the law of the others.
        curves: the losses fitted; at most MAX_ROWS.
    """

    clock: str
    law: CurveLaw
    parameters: dict[str, Estimate]
    status: str
    identified: bool
    rmse: float
    cv_errors: dict[str, float]
    seq_len: int
    batches: tuple[float, float]
    rates: tuple[float, float]
    tokens: int
    losses: int
    runs: int
    since: int = 0
    warmup: int = 0
    measured: int = 0
    min_lr_over_peak: float = 0.0
    max_lr_over_batch: float = 0.0
    draws: tuple[tuple[float, ...], ...] = ()
    budgets: tuple[float, ...] = ()
    peak_lrs: tuple[float, ...] = ()
    outliers: tuple[Outlier, ...] = ()
    curves: tuple[FittedRun, ...] = ()
    method: str = field(default=METHOD, kw_only=True)

    KIND = "curve"
    SCHEMA = 2
    RESIDUAL_UNIT = "log loss"
    RESIDUAL_AXES: ClassVar[dict[str, str]] = {
        "tokens": "tokens",
        "share": "share of the run's tokens",
        "batch": "batch size (sequences)",
        "lr": "learning rate",
    }

    @property
    def unidentified(self) -> dict[str, str]:
        """Parameters without a value, and why."""
        return {name: e.note for name, e in self.parameters.items() if e.value is None}

    @property
    def cv_error(self) -> float | None:
        """Root mean square error of log loss at left-out ends; None with too few runs."""
        return self.cv_errors.get(self.clock)

    @property
    def answer(self) -> str:
        """The irreducible loss, and the error at left-out ends."""
        line = described("L_0", self.parameters["L_0"], "nats", f"clock: {self.clock}")
        error = self.cv_error
        return line if error is None else f"{line}; CV error {error:.2%} of the loss"

    @property
    def goal(self) -> str:
        """The text `loss@batch` for the best fixed batch size at the longest budget measured."""
        best = self.best_batch(self.tokens)
        return f"loss@{round(best.value or best.high or best.low or self.batches[1])}"

    def draws_at(self, table: pd.DataFrame) -> np.ndarray:
        """Return draws [R, n] of log losses at the ends of runs of one learning rate each.

        Args:
            table: columns batch (a schedule as text, or a number of sequences), tokens, lr.
        """
        schedules = [
            (BatchSchedule.parse(f"{batch}", total=int(tokens)), int(tokens), self.seq_len, lr)
            for batch, tokens, lr in table[["batch", "tokens", "lr"]].itertuples(index=False)
        ]
        curves = stack([plan_path(*one) for one in schedules], self.seq_len)
        ends = [law_losses(CurveLaw(*row), curves)[:, 0] for row in self.draws]
        return np.log(np.reshape(ends, (-1, len(schedules))))

    def details(self) -> dict[str, pd.DataFrame]:
        """Return the error per time variable at the ends of left-out runs."""
        rows = [{"clock": name, "CV error (log loss)": x} for name, x in self.cv_errors.items()]
        return {"Cross-validation": pd.DataFrame(rows)} if rows else {}

    def summary(self) -> pd.DataFrame:
        """Return a row per parameter: parameter, value, low, high, note, in_predictions.

        `in_predictions` is the value that predictions use, also of an unidentified parameter.
        """
        used = self.law._asdict()
        return pd.DataFrame([
            {"parameter": name, "value": e.value, "low": e.low, "high": e.high, "note": e.note,
             "in_predictions": used[name]}
            for name, e in self.parameters.items()
        ])  # fmt: skip

    def predict(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return losses in nats at the rows of a run table: loss, low, high, outside.

        Args:
            table: runs or plans as `fit_curve` takes them, with the warm-up of the fit; losses are
                not needed.

        Returns:
            One row per row of the table, with its index; NaN at step 0 and up to `since`.
            `outside` has what of the run is outside the ranges measured, else it is empty.

        Raises:
            InputError: If the table is not a run table, or has another sequence length.
        """
        curves = curves_of(table, warmup=self.warmup, every_row=True)
        columns, beyond = [*forecast(self, curves), curves.tokens], untested(self, curves)
        runs = table["run"].astype(str).to_numpy()
        found, outside = np.full((len(table), 3), np.nan), np.full(len(table), "", object)
        for i, run in enumerate(curves.runs):
            *losses, tokens = (x[i, curves.weight[i] > 0] for x in columns)
            rows = np.flatnonzero(runs == run)
            outside[rows] = "; ".join(beyond[i])
            known = np.where(tokens > self.since, losses, np.nan).T
            found[rows[-len(tokens) :]] = known  # without step 0
        predictions = pd.DataFrame(found, table.index, columns=["loss", "low", "high"])
        return predictions.assign(outside=outside)

    def fixed_batches(
        self, tokens: int, rate: Callable[[Any], Any] | float
    ) -> tuple[list[int], Curves]:
        """Return 33 fixed batch sizes in the range measured, and the path of a run of each."""
        least, most = self.batches
        batch = np.unique(np.geomspace(max(1, least), most, 33).round().astype(int)).tolist()
        paths = [plan_path(BatchSchedule.constant(b), tokens, self.seq_len, rate) for b in batch]
        return batch, stack(paths, self.seq_len)

    def best_batch(
        self, tokens: int, rate: Callable[[Any], Any] | float | None = None
    ) -> BestBatch:
        """Return the fixed batch size, in sequences, with the lowest predicted loss.

        It is one of `fixed_batches`.

        Args:
            tokens: budget.
            rate: the learning rate of all batches, or a function of tokens, e.g.
                `bss.schedules.rates.wsd`; by default constant at the largest one measured.
        """
        batch, curves = self.fixed_batches(tokens, self.rates[1] if rate is None else rate)
        laws = [self.law, *(CurveLaw(*row) for row in self.draws)]
        found = np.array([batch[law_losses(law, curves)[:, 0].argmin()] for law in laws], float)
        ends = interval(found[0], found[1:] if self.draws else found, level=self.level)
        best = BestBatch(ends.value, ends.low, ends.high, self.level, method="law")
        return bounded(best, found[1:], (batch[0], batch[-1]))

    def peak_lr(self, lr: float | None) -> float:
        """Return the requested peak learning rate, or else the one that all runs had.

        Raises:
            InputError: if none is requested and the runs had several.
        """
        least, most = self.rates
        if lr is None and least != most:
            raise InputError(f"--lr: missing; give the peak LR, {least:.4g} to {most:.4g} measured")
        return most if lr is None else lr

    def residuals(self) -> pd.DataFrame:
        """Return a row per loss fitted: run, tokens, share, batch, lr, measured, fitted, residual.

        Losses are in nats and residuals in log loss. `share` is tokens divided by the tokens of the
        run's last loss.
        """
        columns = ("tokens", "batch", "lr", "measured", "fitted")
        parts = [pd.DataFrame({"run": one.run} | {n: getattr(one, n) for n in columns})
                 for one in self.curves]  # fmt: skip
        table = pd.concat(parts or [pd.DataFrame(columns=["run", *columns])], ignore_index=True)
        share = table["tokens"] / table.groupby("run")["tokens"].transform("max")
        residual = np.log(table["measured"].astype(float) / table["fitted"].astype(float))
        return table.assign(share=share, residual=residual)

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON form: also what is unidentified; some fields only if not empty."""
        plain = {name: x for name, x in plain.items() if x or name not in MAY_LACK}
        return super().encoded(plain | {"unidentified": self.unidentified})

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """Return the fields again; null in the law is NaN."""
        numbers = {n: np.nan if x is None else float(x) for n, x in entry["law"].items()}
        return {"cv_errors": {}} | entry | {"law": numbers}
