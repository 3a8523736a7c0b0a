"""Predictions of the law of loss curves with intervals, and the ranges in which it was tested.

An interval adds two parts in quadrature (derived here). The uncertainty of the parameters comes
from the laws of the bootstrap. The lack of fit is the error of log loss at runs left out of the
fit, by Student's t. The lack of fit is UNSEEN times as large for a token budget, a peak LR or an LR
over batch that no run had. If no runs were left out, it is the error at the fitted losses.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from bss.errors import InputError
from bss.laws.base import Estimate, tails
from bss.laws.functional.curves import VARIED, Curves, stack
from bss.laws.functional.law import CurveLaw, law_losses
from bss.laws.functional.paths import plan_path
from bss.schedules.batch import BatchSchedule
from bss.units import format_tokens

if TYPE_CHECKING:
    from bss.laws.functional.values import CurveFit

FAR = 1.25  # times a range measured: beyond it nothing was tested
UNSEEN = 1.25  # times the error at left-out runs: covers 9 of 10 planted ends at a new budget or LR
DECAYED = 0.1  # of the peak: an LR that falls to it or below has fallen to zero
Rate = Callable[[Any], Any] | float


def forecast(fit: "CurveFit", curves: Curves) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return losses in nats, and the ends of their intervals, each [R, N].

    Raises:
        InputError: if the curves have another sequence length than the fit.
    """
    if curves.seq_len != fit.seq_len:
        raise InputError(
            f"runs: seq_len {curves.seq_len}, but the fit has {fit.seq_len}; batches of sequences "
            "of another length cannot be compared"
        )
    value = law_losses(fit.law, curves)
    draws = np.array([law_losses(CurveLaw(*row), curves) for row in fit.draws] or [value])
    parameters = np.nanquantile(np.log(draws / value), tails(fit.level), axis=0, method="hazen")
    misfit = stats.t.ppf((1 + fit.level) / 2, max(fit.runs - 1, 1)) * _misfit(fit, curves)[:, None]
    below = np.hypot(np.minimum(parameters[0], 0), misfit)
    above = np.hypot(np.maximum(parameters[1], 0), misfit)
    return value, value * np.exp(-below), value * np.exp(above)


def _misfit(fit: "CurveFit", curves: Curves) -> np.ndarray:
    """Return the standard deviation of log loss of each run [R] for the law's lack of fit."""
    error = fit.rmse if fit.cv_error is None else fit.cv_error
    steps, lr, batch = curves.segments
    ratio = np.where(steps > 0, lr / batch, 0.0).max(axis=1)
    new = ratio > FAR * (fit.max_lr_over_batch or np.inf)
    for values, known in ((curves.budgets, fit.budgets), (curves.peak_lrs, fit.peak_lrs)):
        apart = np.abs(np.log(values[:, None] / np.array(known or values)))
        new |= apart.min(axis=1) > np.log(VARIED)
    return np.where(new, UNSEEN, 1.0) * error


def predict_schedule(
    fit: "CurveFit",
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
    fit: "CurveFit",
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
    return law_losses(fit.law, stack([path], fit.seq_len))[0, : len(path.at)]


def last_losses(fit: "CurveFit", curves: Curves) -> list[Estimate]:
    """Return the loss at the last point of each run [R], with its interval."""
    rows = np.arange(len(curves.runs)), curves.last
    ends = (x[rows].tolist() for x in forecast(fit, curves))
    return [Estimate(*numbers, level=fit.level) for numbers in zip(*ends, strict=True)]


def check_identified(fit: "CurveFit", *, batch_changes: bool) -> None:
    """Raise InputError if the effect of a changing learning rate, or batch, is unidentified."""
    _refuse(_unidentified(fit, batch_changes, True))


def unidentified_for(
    fit: "CurveFit", steps: np.ndarray, lr: np.ndarray, batch: np.ndarray
) -> tuple[str, ...]:
    """Return why the fit does not apply to changes along segments [G]; empty if it does."""
    late = lr[np.cumsum(steps) > steps.sum() / 2]  # no warm-up
    lr_changes = np.ptp(late) > 0.01 * late.max()
    return _unidentified(fit, bool(np.ptp(batch) > 0), bool(lr_changes))


def _unidentified(fit: "CurveFit", batch_changes: bool, lr_changes: bool) -> tuple[str, ...]:
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
    fit: "CurveFit", curves: Curves, *, extrapolate: bool = False
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


def untested(fit: "CurveFit", curves: Curves) -> list[tuple[str, ...]]:
    """Return what of each run [R] is outside the ranges measured, and by how much."""
    used = curves.segments.steps > 0
    own = [[x[i][row] for x in curves.segments] for i, row in enumerate(used)]
    return [_untested(fit, d, *some) for d, some in zip(curves.budgets.tolist(), own, strict=True)]


def _untested(
    fit: "CurveFit", tokens: float, steps: np.ndarray, lr: np.ndarray, batch: np.ndarray
) -> tuple[str, ...]:
    peak, ratio = float(lr.max()), float((lr / batch).max())
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
    falls_to, known = float(np.min(lr / np.maximum.accumulate(lr))), fit.min_lr_over_peak
    if max(falls_to, DECAYED) < max(known, DECAYED) / FAR:
        texts.append(f"the LR falls to {falls_to:.2g} of its peak, measured to {known:.2g}")
    return (*texts, *unidentified_for(fit, steps, lr, batch))
