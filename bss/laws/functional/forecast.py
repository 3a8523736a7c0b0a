"""Predictions of the law of loss curves with their intervals, and how far the law was tested.

An interval has two parts (derived here): the parameters', from the laws of the bootstrap; and the
lack of fit, the error of log loss at runs that were left out of the fit, by Student's t: one by one
or, of a horizon or a peak rate that no run had, all runs of one together. Where no runs were left
out it is the error at the fitted losses.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from bss.errors import InputError
from bss.laws.base import Estimate, tails
from bss.laws.functional.curves import Curves, curves_of, stack
from bss.laws.functional.groups import horizons, is_level, peaks, taken_of
from bss.laws.functional.law import CurveLaw, Readings
from bss.laws.functional.paths import plan_path
from bss.laws.functional.values import CurveFit, check_sequences, law_losses, undriven
from bss.schedules.batch import BatchSchedule
from bss.units import format_tokens

FAR = 1.25  # beyond the measured range by more than this factor nothing was tested
LOW = 0.1  # a rate that falls to this part of its peak or less has fallen to zero
WITHIN = (0.03, 0.1, 0.3, 1.0)  # parts of a piece
PARTS = 41  # quantiles of the lack of fit


def forecast(fit: CurveFit, curves: Curves) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Losses in nats, and the ends of their intervals at the level of the fit, each [R, N].

    Raises:
        InputError: the curves have another sequence length than the fit.
    """
    check_sequences(fit, curves.seq_len)
    value = law_losses(fit.law, curves)
    laws = [CurveLaw(*row)._replace(a=fit.law.a) for row in fit.draws]
    drawn = np.array([law_losses(law, curves) for law in laws] or [value])
    parts = stats.t.ppf((np.arange(PARTS) + 0.5) / PARTS, max(fit.runs - 1, 1))
    apart = np.log(drawn / value)[:, None] + parts[:, None, None] * _misfit(fit, curves)[:, None]
    every = apart.reshape(-1, *value.shape)
    low, high = np.nanquantile(every, tails(fit.level), axis=0, method="hazen")
    return value, value * np.exp(np.minimum(low, 0)), value * np.exp(np.maximum(high, 0))


def predict_schedule(
    fit: CurveFit,
    schedule: BatchSchedule,
    tokens: int,
    rate: Callable[[Any], Any] | float,
    *,
    extrapolate: bool = False,
) -> Estimate:
    """The loss in nats at the end of a schedule, as `bss predict` answers it.

    Args:
        fit: the law.
        schedule: batches in sequences.
        tokens: budget.
        rate: the learning rate, or a function of tokens, such as `bss.schedules.rates.wsd`.
        extrapolate: answer beyond what the fit was tested for, too.

    Returns:
        The loss with its interval; its note tells where another start of the losses moves it out.

    Raises:
        InputError: the budget holds no step, the fit did not converge, or it was not tested so far.
    """
    curves = stack([plan_path(schedule, tokens, fit.seq_len, rate)], fit.seq_len)
    check_tested(fit, curves, extrapolate=extrapolate)
    return replace(last_losses(fit, curves)[0], note=moved(fit, curves)[0])


def predict_runs(
    fit: CurveFit, runs: pd.DataFrame, *, warmup: int = 0, extrapolate: bool = False
) -> pd.DataFrame:
    """Predicted beside measured losses of runs, which the fit need not have seen.

    Args:
        fit: the law; losses before its `since` are left out.
        runs: a run table.
        warmup: as in `bss.laws.functional.fit.fit_curve`.
        extrapolate: answer beyond what the fit was tested for, too.

    Returns:
        A row per loss (curves are thinned): run, tokens, loss, predicted. Losses in nats.

    Raises:
        InputError: as `bss.laws.functional.curves.curves_of`, another sequence length, the fit did
            not converge, or it was not tested so far.
    """
    curves = curves_of(runs, warmup=warmup, since=fit.since)
    check_sequences(fit, curves.seq_len)
    if not extrapolate:
        check_tested(fit, curves)
    predicted = law_losses(fit.law, curves)
    measured = {"tokens": curves.tokens, "loss": curves.loss}
    return curves.table(curves.weight > 0, **measured, predicted=predicted)


def _misfit(fit: CurveFit, curves: Curves) -> np.ndarray:
    """The error of log loss to expect of each run [R] for the law's lack of fit."""
    by = fit.left_out_by.get(fit.clock, {})
    errors = np.full(len(curves.runs), fit.left_out_rmse.get(fit.clock, fit.rmse))
    asked = {"horizon": (horizons(curves), fit.horizons), "peak": (peaks(curves), fit.peaks)}
    for name, (values, known) in asked.items():
        new = [not is_level(value, known) for value in values.tolist()]
        errors = np.maximum(errors, np.where(new, by.get(name, 0.0), 0.0))
    return errors


def moved(fit: CurveFit, curves: Curves) -> list[str]:
    """Of each run [R] what is said where another start of the losses moves its answer too far."""
    texts = [""] * len(curves.runs)
    if not fit.starts:
        return texts
    value, low, high = (x[:, 0] for x in forecast(fit, curves))
    others = np.array([law_losses(one.law, curves)[:, 0] for one in fit.starts])
    furthest = np.abs(others - value).argmax(axis=0)
    for i, k in enumerate(furthest.tolist()):
        if not low[i] <= others[k, i] <= high[i]:
            since = format_tokens(fit.starts[k].since)
            texts[i] = (
                f"the answer moves by {others[k, i] - value[i]:+.2g}, more than its interval, with "
                f"losses since {since} tokens"
            )
    return texts


def last_losses(fit: CurveFit, curves: Curves) -> list[Estimate]:
    """The first reading of each run [R], with its interval: of paths to be trained, their end."""
    ends = (x[:, 0].tolist() for x in forecast(fit, curves))
    return [Estimate(*numbers, level=fit.level) for numbers in zip(*ends, strict=True)]


def along(curves: Curves) -> tuple[Curves, np.ndarray]:
    """The curves read within each of their G pieces, and the tokens there, [R, G·len(WITHIN)].

    More densely after a piece begins, where the batch may have changed; 0 tokens where padded.
    """
    steps, taken = curves.pieces.steps, taken_of(curves)
    parts = np.broadcast_to(WITHIN, (*steps.shape, len(WITHIN)))
    tokens = (np.cumsum(taken, axis=1) - taken)[..., None] + taken[..., None] * parts
    tokens = np.where(steps[..., None] > 0, tokens, 0.0)
    pieces = np.broadcast_to(np.arange(steps.shape[1], dtype=float)[:, None], parts.shape)
    piece, part, tokens = (x.reshape(len(steps), -1) for x in (pieces, parts, tokens))
    return replace(curves, readings=Readings(piece, part)), tokens


def tested(fit: CurveFit) -> dict[str, Any]:
    """How well the fit predicts what it has not seen, and over which ranges, ready for JSON."""
    ranges = {"tokens": (fit.since, fit.tokens), "batch": fit.batches, "lr": fit.rates}
    return {
        "left_out_rmse": fit.left_out_rmse.get(fit.clock),
        "rmse": fit.rmse,
        "runs": fit.runs,
        **{name: {"low": low, "high": high} for name, (low, high) in ranges.items()},
        "rate_falls_to": fit.lowest,
    }


def check_tested(
    fit: CurveFit, curves: Curves, *, extrapolate: bool = False
) -> list[tuple[str, ...]]:
    """What of each run [R] is beyond what the fit was tested for; refused unless it was asked for.

    Raises:
        InputError: something is and `extrapolate` is not set, or the fit did not converge.
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
    """What of each run [R] is beyond what the fit was tested for, and by how much."""
    pieces, tokens = np.array(curves.pieces), horizons(curves).tolist()
    own = [pieces[:, row, used] for row, used in enumerate(curves.pieces.steps > 0)]
    return [_untested(fit, taken, *some) for taken, some in zip(tokens, own, strict=True)]


def _untested(
    fit: CurveFit, tokens: float, steps: np.ndarray, lr: np.ndarray, batch: np.ndarray
) -> tuple[str, ...]:
    texts = []
    if tokens > FAR * fit.tokens:
        texts.append(f"tokens {tokens / fit.tokens:.3g} times the longest run")
    if tokens <= fit.since:
        texts.append(f"the fit is of losses after {format_tokens(fit.since)} tokens")
    peak = float(lr.max())
    spans = {"batch": (batch.min(), batch.max(), fit.batches), "lr": (peak, peak, fit.rates)}
    for name, (low, high, (least, most)) in spans.items():
        if high > FAR * most:
            texts.append(f"{name} {high:.4g} is {high / most:.3g} times the largest measured")
        if low < least / FAR:
            texts.append(f"{name} {low:.4g} is {low / least:.3g} times the smallest measured")
    if fit.noisiest and (times := float((lr / batch).max()) / fit.noisiest) > FAR:
        texts.append(f"rate over batch is {times:.3g} times the largest measured")
    lowest = float(np.min(lr / np.maximum.accumulate(lr)))
    if max(lowest, LOW) < max(fit.lowest, LOW) / FAR:
        texts.append(f"the rate falls to {lowest:.2g} of its peak, measured to {fit.lowest:.2g}")
    return (*texts, *undriven(fit, steps, lr, batch))
