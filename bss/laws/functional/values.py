"""The fitted law of loss curves as a value: predictions, the ranges tested, and its JSON form.

An interval adds two parts in quadrature (derived here). The uncertainty of the parameters comes
from the laws of the bootstrap. The lack of fit is the error of log loss at runs left out of the
fit, by Student's t. The lack of fit is UNSEEN times as large for a token budget, a peak LR or an LR
over batch that no run had. If no runs were left out, it is the error at the fitted losses.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtrit

from bss.errors import InputError
from bss.laws.base import (
    BestBatch,
    Estimate,
    Fit,
    Outlier,
    bounded,
    check_lengths,
    check_names,
    check_status,
    described,
    interval,
    tails,
)
from bss.laws.functional.data import VARIED, Curves, curves_of, plan_path, stack
from bss.laws.functional.law import CurveLaw, law_losses, noise_share
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import wsd
from bss.units import format_tokens, parse_tokens
from bss.values import Count, Finite, Nonnegative, Positive, PositiveCount, Range

FAR = 1.25  # times a range measured: beyond it nothing was tested
UNSEEN = 1.25  # times the error at left-out runs: covers 9 of 10 planted ends at a new budget or LR
# Of p between peak LRs: that of SGD, and 1.55 of runs at five peaks (results/late_switch/fit.json).
ACROSS = {"mean": 1.0, "sd": 0.5}
DECAYED = 0.1  # of the peak: an LR that falls to it or below has fallen to zero
Rate = Callable[[Any], Any] | float
MAX_ROWS = 1500  # losses saved: the rest of the 150 kB
MAY_LACK = ("cv_errors", "budgets", "peak_lrs", "outliers", "curves")
PREDICTED = ("loss", "loss_low", "loss_high")
METHOD = (
    "parametric bootstrap of the robust fit in log loss, run offset and independent noise; "
    "percentiles"
)


@dataclass(frozen=True)
class FittedRun:
    """The losses of one run that were fitted, in nats, with tokens, batch and LR at each."""

    may_lack: ClassVar[tuple[str, ...]] = ()

    run: str
    tokens: tuple[Positive, ...]
    batch: tuple[Positive, ...]
    lr: tuple[Nonnegative, ...]
    measured: tuple[Positive, ...]
    fitted: tuple[Positive, ...]

    def check(self, where: str) -> None:
        """Raise InputError if the JSON that it was read from is damaged."""
        columns = {name: column for name, column in vars(self).items() if name != "run"}
        check_lengths(columns, where)


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

    Source: the functional scaling law (arXiv 2509.19189); the clock of Adam is derived here.

    Examples:
        >>> from bss import read_fit
        >>> fit = read_fit("results/late_switch/fit.json")
        >>> fit.clock, round(fit.parameters["L_0"].value, 2)  # nats
        ('adam', 1.57)
    """

    may_lack: ClassVar[tuple[str, ...]] = (*Fit.may_lack, *MAY_LACK)

    clock: str
    law: CurveLaw
    parameters: dict[str, Estimate]
    status: str
    identified: bool
    rmse: Nonnegative
    cv_errors: dict[str, Nonnegative]
    seq_len: PositiveCount
    batches: tuple[Positive, Positive]
    rates: tuple[Positive, Positive]
    tokens: PositiveCount
    losses: Count
    runs: Count
    since: Count = 0
    warmup: Count = 0
    measured: Count = 0
    min_lr_over_peak: Nonnegative = 0.0
    max_lr_over_batch: Nonnegative = 0.0
    draws: tuple[tuple[Finite, ...], ...] = ()
    budgets: tuple[Positive, ...] = ()
    peak_lrs: tuple[Positive, ...] = ()
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

    def check(self, where: str) -> None:
        """See `Fit.check`."""
        check_status(self.status, where)
        if self.clock not in ("sgd", "adam"):
            raise InputError(f"{where}clock is {self.clock!r}; expected sgd or adam")
        check_names(self.parameters, CurveLaw._fields, f"{where}parameters")
        for low, high in (self.batches, self.rates):
            if low > high:
                raise InputError(f"{where}batches or rates has a smallest value above the largest")
        for name, row in (("law", self.law), *(("draws", row) for row in self.draws)):
            check_lengths({name: row}, where, len(CurveLaw._fields))
            numbers = CurveLaw(*row)
            Range().check(numbers, f"{where}{name}")
            scales = {n: getattr(numbers, n) for n in ("T_0", "c_K")}
            for scale, value in scales.items():
                Range(0, inside=True).check(value, f"{where}{name}.{scale}")
            rest = [x for n, x in numbers._asdict().items() if n not in scales]
            Range(0).check(rest, f"{where}{name}")

    @property
    def unidentified(self) -> dict[str, str]:
        """Parameters without a value, and why."""
        return {name: e.note for name, e in self.parameters.items() if e.value is None}

    @property
    def peaks_vary(self) -> bool:
        """Whether the runs show how noise grows with the peak LR."""
        one = len(self.peak_lrs) > 0 and np.ptp(np.log(self.peak_lrs)) < np.log(VARIED)
        return not one and "p" not in self.unidentified

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
        laws = [at_peaks(self, CurveLaw(*row), curves) for row in self.draws]
        ends = [law_losses(law, curves)[:, 0] for law in laws]
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

    def predict(
        self,
        runs: pd.DataFrame | None = None,
        *,
        batch: Any = None,
        tokens: str | int | None = None,
        lr: Any = None,
        warmup: str | int = 0,
        decay: str | int = 0,
    ) -> pd.DataFrame:
        """Return losses in nats, of one run at its end or at the rows of a run table.

        Args:
            runs: Runs or plans as `fit_curve` takes them, with the warm-up of the fit; losses are
                not needed.
            batch: Without a table: a batch size in sequences, or a schedule, "0:8 2M:16".
            tokens: Token budget of this run, e.g. "10B".
            lr: Its peak LR, or its LR as a function of tokens; by default the LR of all runs.
            warmup: Tokens of its warm-up, or a percentage of the budget.
            decay: Tokens of its final decay, or a percentage of the budget.

        Returns:
            Columns loss, loss_low, loss_high and note, one row per row of the table, with its
            index; NaN at step 0 and up to `since`. `note` has what of the run is outside the ranges
            measured.

        Raises:
            InputError: If the table is not a run table, or has another sequence length; or if the
                run by name lacks an argument or changes in a way that the fit does not identify.
        """
        if runs is None:
            return self._predict_run(batch, tokens, lr, (warmup, decay))
        if not isinstance(runs, pd.DataFrame):
            raise InputError(f"runs: {type(runs).__name__} given; expected a table (DataFrame)")
        table = runs
        curves = curves_of(table, warmup=self.warmup, every_row=True)
        losses = np.array(forecast(self, curves))
        beyond = untested(self, curves)
        names = table["run"].astype(str).to_numpy()
        found = np.full((len(table), len(PREDICTED)), np.nan)
        notes = np.full(len(table), "", object)
        for i, run in enumerate(curves.runs):
            used = curves.weight[i] > 0
            consumed = curves.tokens[i, used]
            rows = np.flatnonzero(names == run)
            notes[rows] = "; ".join(beyond[i])
            known = np.where(consumed > self.since, losses[:, i, used], np.nan).T
            found[rows[-len(consumed) :]] = known  # without step 0
        predictions = pd.DataFrame(found, table.index, columns=[*PREDICTED])
        return predictions.assign(note=notes)

    def _predict_run(self, batch: Any, tokens: Any, lr: Any, ends: tuple[Any, Any]) -> pd.DataFrame:
        """Return the prediction for one run by name."""
        for name, value in (("batch", batch), ("tokens", tokens)):
            if value is None:
                raise InputError(f"predict: {name} missing; give batch and tokens, or a run table")
        budget = parse_tokens(tokens, field="tokens")
        schedule = BatchSchedule.parse(str(batch), total=budget, seq_len=self.seq_len)
        rate = lr if callable(lr) else lr_of(self.peak_lr(lr), budget, *ends)
        loss = predict_schedule(self, schedule, budget, rate, extrapolate=True)
        row = dict(zip(PREDICTED, (loss.value, loss.low, loss.high), strict=True))
        return pd.DataFrame([row | {"note": "; ".join(untested_of(self, schedule, budget, rate))}])

    def untested(self, run: Mapping[str, Any]) -> list[str]:
        """Return what of a run is outside the ranges measured; batch, tokens and lr are given."""
        tokens = int(run["tokens"])
        schedule = BatchSchedule.parse(str(run["batch"]), total=tokens, seq_len=self.seq_len)
        return [*untested_of(self, schedule, tokens, run["lr"])]

    def fixed_batches(self, tokens: int, rate: Rate) -> tuple[list[int], Curves]:
        """Return 33 fixed batch sizes in the range measured, and the path of a run of each."""
        least, most = self.batches
        count = 33  # 24% apart over three decades
        grid = np.geomspace(max(1, least), most, count)
        batch = np.unique(grid.round().astype(int)).tolist()
        paths = [plan_path(BatchSchedule.constant(b), tokens, self.seq_len, rate) for b in batch]
        return batch, stack(paths, self.seq_len)

    def best_batch(self, tokens: str | int | None = None, rate: Rate | None = None) -> BestBatch:
        """Return the fixed batch size, in sequences, with the lowest predicted loss.

        It is one of `fixed_batches`.

        Args:
            tokens: Budget, e.g. "10B"; by default that of the longest run.
            rate: the learning rate of all batches, or a function of tokens, e.g.
                `bss.schedules.rates.wsd`; by default constant at the largest one measured.

        Raises:
            InputError: If the budget is no count above 0.
        """
        budget = self.tokens if tokens is None else parse_tokens(tokens, field="tokens")
        batch, curves = self.fixed_batches(budget, self.rates[1] if rate is None else rate)
        rows = [self.law, *(CurveLaw(*row) for row in self.draws)]
        laws = [at_peaks(self, law, curves) for law in rows]
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
            raise InputError(f"lr: missing; give the peak LR, {least:.4g} to {most:.4g} measured")
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
        numbers = {n: np.nan if x is None else x for n, x in entry["law"].items()}
        for name, x in numbers.items():
            if isinstance(x, bool) or not isinstance(x, int | float):
                raise InputError(f"fit.law.{name} is {x!r}; expected a number")
        return {"cv_errors": {}} | entry | {"law": numbers}


def forecast(fit: CurveFit, curves: Curves) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return losses in nats, and the ends of their intervals, each [R, N].

    Raises:
        InputError: if the curves have another sequence length than the fit.
    """
    if curves.seq_len != fit.seq_len:
        raise InputError(
            f"runs: seq_len {curves.seq_len}, but the fit has {fit.seq_len}; batches of sequences "
            "of another length cannot be compared"
        )
    law = at_peaks(fit, fit.law, curves)
    value = law_losses(law, curves)
    laws = [at_peaks(fit, CurveLaw(*row), curves) for row in fit.draws]
    draws = np.array([law_losses(one, curves) for one in laws] or [value])
    parameters = np.nanquantile(np.log(draws / value), tails(fit.level), axis=0, method="hazen")
    misfit = stdtrit(max(fit.runs - 1, 1), (1 + fit.level) / 2) * _misfit(fit, curves)[:, None]
    below = np.hypot(np.minimum(parameters[0], 0), misfit)
    above = np.hypot(np.maximum(parameters[1], 0), misfit)
    if not fit.peaks_vary:
        noise = noise_share(law, curves)
        grown = ndtri((1 + fit.level) / 2) * ACROSS["sd"] * np.abs(_peak_ratios(fit, curves))
        below = np.hypot(below, np.log1p(noise * np.expm1(-grown)))
        above = np.hypot(above, np.log1p(noise * np.expm1(grown)))
    return value, value * np.exp(-below), value * np.exp(above)


def _peak_ratios(fit: CurveFit, curves: Curves) -> np.ndarray:
    """Return [R, 1], log of each peak LR over the nearest one of the fitted runs."""
    apart = np.log(curves.peak_lrs[:, None] / np.array(fit.peak_lrs or curves.peak_lrs))
    nearest = np.abs(apart).argmin(axis=1)
    return apart[np.arange(len(apart)), nearest][:, None]


def at_peaks(fit: CurveFit, law: CurveLaw, curves: Curves) -> CurveLaw:
    """Return a law of the fit with the noise of runs at the peak LRs of curves.

    If p is unidentified, noise grows between peaks as under SGD.
    """
    if "p" not in fit.unidentified:
        return law
    scale = np.exp((ACROSS["mean"] - law.p) * _peak_ratios(fit, curves))
    return law._replace(A_0=law.A_0 * scale, A_1=law.A_1 * scale)


def _misfit(fit: CurveFit, curves: Curves) -> np.ndarray:
    """Return the standard deviation of log loss of each run [R] for the law's lack of fit."""
    error = fit.rmse if fit.cv_error is None else fit.cv_error
    steps, lr, batch = curves.segments
    ratio = np.where(steps > 0, lr / batch, 0.0).max(axis=1)
    new = ratio > FAR * (fit.max_lr_over_batch or np.inf)
    for values, known in ((curves.budgets, fit.budgets), (curves.peak_lrs, fit.peak_lrs)):
        apart = np.abs(np.log(values[:, None] / np.array(known or values)))
        new |= apart.min(axis=1) > np.log(VARIED)
    return np.where(new, UNSEEN, 1.0) * error


def lr_of(peak: float, tokens: int, warmup: str | int, decay: str | int) -> Rate:
    """Return the LR over a budget, with lengths in tokens or percentages of it."""
    start = parse_tokens(warmup, field="warmup", total=tokens)
    end = parse_tokens(decay, field="decay", total=tokens)
    return wsd(peak, tokens, start, end, "linear")


def predict_schedule(
    fit: CurveFit,
    schedule: BatchSchedule,
    tokens: int,
    rate: Rate,
    *,
    extrapolate: bool = False,
) -> Estimate:
    """Return the loss in nats at the end of a schedule, with its interval.

    Args:
        fit: the law.
        schedule: batches in sequences.
        tokens: budget.
        rate: the learning rate, or a function of tokens, e.g. `bss.schedules.rates.wsd`.
        extrapolate: predict outside the ranges measured, too.

    Raises:
        InputError: if the budget holds no step, the fit did not converge, or the schedule is
            outside the ranges measured.
    """
    curves = stack([plan_path(schedule, tokens, fit.seq_len, rate)], fit.seq_len)
    check_tested(fit, curves, extrapolate=extrapolate)
    return last_losses(fit, curves)[0]


def schedule_losses(
    fit: CurveFit,
    schedule: BatchSchedule,
    tokens: int,
    rate: Rate,
    at: np.ndarray | None = None,
) -> np.ndarray:
    """Return losses [N] in nats, float64, along a schedule.

    Args:
        fit: the law.
        schedule, tokens, rate: as in `predict_schedule`.
        at: [N] tokens at which to predict; by default the end of the last step.

    Raises:
        InputError: if the budget holds no step, a count lies outside it, or the schedule changes
            and the fit does not identify how noise is forgotten.
    """
    path = plan_path(schedule, tokens, fit.seq_len, rate, at)
    _refuse(unidentified_for(fit, path.steps, path.lr, path.batch))
    curves = stack([path], fit.seq_len)
    return law_losses(at_peaks(fit, fit.law, curves), curves)[0, : len(path.at)]


def untested_of(fit: CurveFit, schedule: BatchSchedule, tokens: int, rate: Rate) -> tuple[str, ...]:
    """Return what of a schedule is outside the ranges measured; arguments: `predict_schedule`."""
    return untested(fit, stack([plan_path(schedule, tokens, fit.seq_len, rate)], fit.seq_len))[0]


def last_losses(fit: CurveFit, curves: Curves) -> list[Estimate]:
    """Return the loss at the last point of each run [R], with its interval."""
    rows = np.arange(len(curves.runs)), curves.last
    ends = (x[rows].tolist() for x in forecast(fit, curves))
    return [Estimate(*numbers, level=fit.level) for numbers in zip(*ends, strict=True)]


def check_identified(fit: CurveFit, *, batch_changes: bool) -> None:
    """Raise InputError if the effect of a changing learning rate, or batch, is unidentified."""
    _refuse(_unidentified(fit, batch_changes, True))


def unidentified_for(
    fit: CurveFit, steps: np.ndarray, lr: np.ndarray, batch: np.ndarray
) -> tuple[str, ...]:
    """Return why the fit does not apply to changes along segments [G]; empty if it does."""
    late = lr[np.cumsum(steps) > steps.sum() / 2]  # no warm-up
    lr_changes = np.ptp(late) > 0.01 * late.max()
    return _unidentified(fit, bool(np.ptp(batch) > 0), bool(lr_changes))


def _unidentified(fit: CurveFit, batch_changes: bool, lr_changes: bool) -> tuple[str, ...]:
    reasons = [] if fit.status == "converged" else [fit.status]
    if not fit.identified:
        reasons.append("noise is unidentified")
    if batch_changes and "m" in fit.unidentified:
        reasons.append(f"m is {fit.unidentified['m']}")
    return tuple(reasons[:1]) if batch_changes or lr_changes else ()


def _refuse(reasons: tuple[str, ...]) -> None:
    if reasons:
        raise InputError(
            f"fit: {reasons[0]}; add runs that change their batch or rate after some losses, or "
            "ask for a constant schedule"
        )


def check_tested(
    fit: CurveFit, curves: Curves, *, extrapolate: bool = False
) -> list[tuple[str, ...]]:
    """Return what of each run [R] is outside the ranges measured.

    Raises:
        InputError: if something is and `extrapolate` is false, or the fit did not converge.
    """
    if fit.status == "not converged":
        raise InputError("fit: it did not converge; fit other losses")
    beyond = untested(fit, curves)
    for run, exceeded in zip(curves.runs, beyond, strict=True):
        if exceeded and not extrapolate:
            raise InputError(
                f"run {run}: beyond what the fit was tested for: {'; '.join(exceeded)}; "
                "ask within it, or extrapolate (--extrapolate)"
            )
    return beyond


def untested(fit: CurveFit, curves: Curves) -> list[tuple[str, ...]]:
    """Return what of each run [R] is outside the ranges measured, and by how much."""
    runs = zip(curves.budgets.tolist(), *curves.segments, strict=True)
    return [_untested(fit, D, *np.array(run)[:, run[0] > 0]) for D, *run in runs]


def _untested(
    fit: CurveFit, tokens: float, steps: np.ndarray, lr: np.ndarray, batch: np.ndarray
) -> tuple[str, ...]:
    peak = float(lr.max())
    ratio = float((lr / batch).max())
    spans = {
        "tokens": (np.inf, tokens, (0.0, fit.tokens)),
        "batch": (batch.min(), batch.max(), fit.batches),
        "lr": (peak, peak, fit.rates),
        "lr over batch": (np.inf, ratio, (0.0, fit.max_lr_over_batch or np.inf)),
    }
    texts = []
    for name, (low, high, (least, most)) in spans.items():
        if high > FAR * most:
            texts.append(f"{name} {high:.4g} is {high / most:.3g} times the largest measured")
        if low < least / FAR:
            texts.append(f"{name} {low:.4g} is {low / least:.3g} times the smallest measured")
    if tokens <= fit.since:
        texts.append(f"the fit is of losses after {format_tokens(fit.since)} tokens")
    falls_to = float(np.min(lr / np.maximum.accumulate(lr)))
    known = fit.min_lr_over_peak
    if max(falls_to, DECAYED) < max(known, DECAYED) / FAR:
        texts.append(f"the LR falls to {falls_to:.2g} of its peak, measured to {known:.2g}")
    return (*texts, *unidentified_for(fit, steps, lr, batch))
