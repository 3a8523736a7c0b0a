"""The fitted law of loss curves as a value: its JSON form, and its predictions.

Predictions are in nats, for schedules that `bss.schedules.plan` resolves and for runs that were
trained.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from bss.errors import InputError
from bss.laws.base import Estimate, Fit
from bss.laws.functional.curves import Curves, stack
from bss.laws.functional.law import CurveLaw, curve_losses
from bss.laws.functional.paths import plan_path
from bss.laws.solver import float64
from bss.schedules.batch import BatchSchedule

MAY_LACK = ("left_out_by", "horizons", "peaks", "noisiest", "starts", "outliers")
METHOD = (
    "parametric bootstrap of the robust fit in log loss, run offset and independent noise; "
    "percentiles"
)


@dataclass(frozen=True)
class Start:
    """What the fit is with losses since another token.

    Attributes:
        since: in tokens.
        left_out: error of log loss at the ends of left-out runs.
        law: its parameters.
    """

    since: int
    left_out: float
    law: CurveLaw


@dataclass(frozen=True)
class OutlierCurve:
    """A run whose end the others miss.

    Attributes:
        run: its name.
        off: log of its last loss over what the others say.
        times: over the scatter of the others.
    """

    run: str
    off: float
    times: float

    def __str__(self) -> str:
        """The run by name, and how far off it is."""
        side = "above" if self.off > 0 else "below"
        return (
            f"run {self.run}: its end is {abs(self.off):.2g} {side} the others' in log loss, "
            f"{self.times:.0f} times their scatter (--drop 'run={self.run}')"
        )


@dataclass(frozen=True, repr=False)
class CurveFit(Fit):
    """The functional scaling law fitted to loss curves of one model.

    Attributes:
        clock: "sgd" (m = 1, B_phi = 0) or "adam", with the power of the rate in time but for 1.
        law: the parameters that predict, in steps, sequences and the rates given; those that the
            runs do not identify are held at a convention.
        parameters: each with its interval; value None and a note where it is unidentified.
        easy_by: s − (q − 1) with its interval: above 0 for an easy task, below for a hard one, as
            the theory has q = 2 − 1/β and s ≤ 1 − 1/β of the hard (bss.theory.exponents).
        status: "converged", "not converged" or "unidentified: ...".
        identified: whether losses of schedules that change can be predicted.
        rmse, run_rmse: root mean square error of log loss over the losses fitted, and of each run.
        left_out_rmse: of each clock, at the last losses of runs left out of its fit; empty where
            they were not tried.
        seq_len: tokens per sequence.
        batches, rates: measured, the smallest (rate above 0) and the largest; batches in sequences.
        tokens: the longest run.
        losses, runs: how many were fitted.
        since: tokens before which losses were left out.
        measured: how many losses there were before curves were thinned.
        lowest: the lowest rate of a run after its peak, as a part of that.
        draws: laws of the bootstrap, a row each of the values of `CurveLaw` that are fitted.
        left_out_by: of each clock, as left_out_rmse, with all runs of one "horizon" or "peak" left
            out together; empty where runs have one of each.
        horizons, peaks: tokens and peak rates of the runs, those within a factor of 1.2 as one.
        noisiest: the largest rate over batch measured; 0 in older fits.
        starts: the fit with losses since other tokens, if the start was judged.
        outliers: runs whose end the others miss.
    """

    clock: str
    law: CurveLaw
    parameters: dict[str, Estimate]
    status: str
    identified: bool
    rmse: float
    run_rmse: dict[str, float]
    left_out_rmse: dict[str, float]
    seq_len: int
    batches: tuple[float, float]
    rates: tuple[float, float]
    tokens: int
    losses: int
    runs: int
    since: int = 0
    measured: int = 0
    lowest: float = 0.0
    draws: tuple[tuple[float, ...], ...] = ()
    easy_by: Estimate = field(default=Estimate(None))
    left_out_by: dict[str, dict[str, float]] = field(default_factory=dict)
    horizons: tuple[float, ...] = ()
    peaks: tuple[float, ...] = ()
    noisiest: float = 0.0
    starts: tuple[Start, ...] = ()
    outliers: tuple[OutlierCurve, ...] = ()
    method: str = field(default=METHOD, kw_only=True)

    KIND = "curve"

    @property
    def unidentified(self) -> dict[str, str]:
        """Parameters without a value, and why."""
        return {name: e.note for name, e in self.parameters.items() if e.value is None}

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """The fields, and what is unidentified; what there may be none of, where there is some."""
        plain = {name: x for name, x in plain.items() if x or name not in MAY_LACK}
        for law in (plain["law"], *(start["law"] for start in plain.get("starts", ()))):
            if law["a"] == 1:
                del law["a"]
        return super().encoded(plain | {"unidentified": self.unidentified})

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields again."""
        numbers = {n: np.nan if x is None else float(x) for n, x in entry["law"].items()}
        return entry | {"law": numbers}


def schedule_losses(
    fit: CurveFit,
    schedule: BatchSchedule,
    tokens: int,
    rate: Callable[[Any], Any] | float,
    at: np.ndarray | None = None,
) -> np.ndarray:
    """Losses [N] in nats, float64, along a schedule that is yet to be trained.

    Args:
        fit: the law.
        schedule: batches in sequences.
        tokens: budget.
        rate: the learning rate, or a function of tokens, such as `bss.schedules.rates.wsd`.
        at: [N] tokens at which to predict; by default the end of the last step.

    Raises:
        InputError: the budget holds no step, a count lies outside it, or the schedule changes and
            the fit does not identify how noise is forgotten.
    """
    path = plan_path(schedule, tokens, fit.seq_len, rate, at)
    _refuse(undriven(fit, path.steps, path.lr, path.batch))
    return law_losses(fit.law, stack([path], fit.seq_len))[0, : len(path.at)]


def check_sequences(fit: CurveFit, seq_len: int) -> None:
    """Raises InputError where runs have another sequence length than the fit."""
    if seq_len != fit.seq_len:
        raise InputError(
            f"runs: seq_len {seq_len}, but the fit has {fit.seq_len}; batches of sequences "
            "of another length cannot be compared"
        )


def check_drive(fit: CurveFit, *, batch_changes: bool) -> None:
    """Raises InputError where a rate that changes, or a batch, has an effect unidentified."""
    _refuse(_unidentified(fit, batch_changes, True))


def undriven(
    fit: CurveFit, steps: np.ndarray, lr: np.ndarray, batch: np.ndarray
) -> tuple[str, ...]:
    """Why the fit cannot speak of what changes along pieces [G]; empty where it can."""
    late = lr[np.cumsum(steps) > steps.sum() / 2]  # no warm-up
    rate_changes = np.ptp(late) > 0.01 * late.max()
    return _unidentified(fit, bool(np.ptp(batch) > 0), bool(rate_changes))


def _unidentified(fit: CurveFit, batch_changes: bool, rate_changes: bool) -> tuple[str, ...]:
    reasons = [] if fit.status == "converged" else [fit.status]
    if not fit.identified:
        reasons.append("noise is unidentified")
    if batch_changes and "m" in fit.unidentified:
        reasons.append(f"m is {fit.unidentified['m']}")
    return tuple(reasons[:1]) if batch_changes or rate_changes else ()


def _refuse(reasons: tuple[str, ...]) -> None:
    if reasons:
        raise InputError(
            f"fit: {reasons[0]}; add runs that change their batch or rate after some losses, or "
            "ask for a constant schedule"
        )


def law_losses(law: CurveLaw, curves: Curves) -> np.ndarray:
    """Losses [R, N] at the readings of curves, float64."""
    with jax.enable_x64(True):
        return np.asarray(_losses(*float64((law, curves.pieces, curves.readings))))


_losses = jax.jit(curve_losses)
