"""Critical batch sizes of one curve: by the law, by smooth curves, and which of the two is given.

The number of the law is given unless the steps contradict it. That is so if a batch exceeds the
overhead although the law sees no bend, or if the law is improbable compared with smooth deviations
from it (`bss.laws.critical.deviations`). The interval of the law's number has both, by their
probabilities.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import ndtri

from bss.laws.base import Estimate, interval, tails
from bss.laws.critical.data import StepsCurve
from bss.laws.critical.deviations import SmoothCurves
from bss.laws.critical.law import (
    LEAST_NOISE,
    SEARCHED,
    CbsDefinition,
    Shape,
    measured_critical_batch,
)
from bss.laws.critical.problem import StepsProblem
from bss.laws.critical.values import CriticalBatch
from bss.laws.inference import leave_out, resample
from bss.laws.resampling import rms

REACH = 2.0  # times the batches measured: a bend further outside is a bound
LINEAR = 0.05  # share of tokens above the minimum, up to which scaling is called linear
UNBOUNDED = "unidentified: the batches do not bound it above; measure larger ones"


@dataclass(frozen=True)
class FittedCurve:
    """A curve with its fit, and R refits.

    Attributes:
        curve: the measurements.
        shape: the fit.
        refits: fits [R] to steps drawn anew.
        smooth: curves drawn as often, of laws with another bend.
        missed: [n], errors of log steps at each batch by the fit to the others; NaN if the curve
            has no batch to spare.
        kappa_without: [n], κ of these fits.
    """

    curve: StepsCurve
    shape: Shape
    refits: Shape
    smooth: SmoothCurves
    missed: np.ndarray
    kappa_without: np.ndarray

    @classmethod
    def of(cls, curve: StepsCurve, count: int, generator: np.random.Generator) -> "FittedCurve":
        """Fit a curve, and refit it as often as `count` says."""
        problem = StepsProblem.of(curve)
        solution = problem.solve()
        refits = resample(problem, solution, 0, count, generator)
        left_out = leave_out(problem, solution, problem.folds)
        kappa_without = np.full(len(curve.batch), np.nan)
        kappa_without[: len(left_out.parameters)] = left_out.parameters[:, 0, 1]
        rounding = curve.unseen_rounding
        rounded = np.zeros_like(refits.noise)
        if rounding.any():
            # Its ends, as nothing is known within it: three batches decide where the overhead is
            # reached, so that an interval of 90% has all their combinations.
            rounded = np.log1p(-rounding * generator.integers(0, 2, refits.noise.shape))
        a, kappa = solution.parameters[0]
        shape = Shape(a, kappa, refits.scatter.offset)
        return cls(
            curve=curve,
            shape=shape,
            refits=Shape(*refits.parameters.T),
            # Of other random numbers, so that refits of the law do not depend on them.
            smooth=SmoothCurves.of(curve, shape, rounded, generator.spawn(1)[0]),
            missed=left_out.errors[0],
            kappa_without=kappa_without,
        )

    @property
    def mean_noise(self) -> np.ndarray:
        """Standard deviations [n] of mean log steps, of seeds if known.

        Else of residuals, but at most of third differences: the law may not fit a smooth curve.
        """
        curve = self.curve
        if np.isfinite(curve.seed_noise):
            return curve.seed_noise / np.sqrt(curve.seeds)
        third = len(curve.batch) > 4  # a second difference of few
        squares = 20 if third else 6  # of the binomial coefficients 1 3 3 1, or 1 2 1
        rough = rms(np.diff(np.log(curve.steps), 2 + third)) / np.sqrt(squares)
        return np.full(len(curve.batch), max(min(self.shape.noise, rough), LEAST_NOISE))


def estimate_critical(
    one: FittedCurve, definition: CbsDefinition, level: float
) -> tuple[CriticalBatch, np.ndarray]:
    """Return the result of a curve, and the refits [R] of its critical batch.

    The critical batch is by the law, unless only smooth curves bound it above, or the law is less
    probable than the values beyond one end of an interval.
    """
    curve = one.curve
    kappa = float(one.shape.kappa)
    smallest = curve.batch[0]
    reference = float(definition.at(kappa, smallest))
    B_crit, by_law = _by_law(one, definition, level)
    smooth = one.smooth
    draws = measured_critical_batch(smooth.batch, smooth.draws, definition.overhead, reference)
    interpolated = _interpolated(one, definition.overhead, reference, draws, level)
    if not curve.covers(reference):
        by_law = interpolated
    is_bounded = None not in (interpolated.value, interpolated.low, interpolated.high)
    only_steps_bound = by_law.value is None and by_law.high is None and is_bounded
    if only_steps_bound:  # a batch exceeds the overhead, so they are not all below the bend
        B_crit = replace(B_crit, note=UNBOUNDED)
        by_law = replace(by_law, note=UNBOUNDED)
    both_known = None not in (by_law.value, interpolated.value)
    is_measured = only_steps_bound or (both_known and smooth.by_law < tails(level)[0])
    cbs = interpolated if is_measured else by_law
    if is_measured and by_law.value is not None:
        by_law = _widened(by_law, interpolated)
    if not is_measured:
        share = smooth.by_law if both_known else 1.0
        is_of_law = np.arange(len(draws)) < share * len(draws)
        draws = np.where(is_of_law, definition.by_law(one.refits.kappa, smallest), draws)
    if both_known and not is_measured and cbs.value is not None:
        cbs = interval(cbs.value, draws, level=level)
    method: Literal["law", "measured"] = "measured" if is_measured else "law"
    most, is_linear = _linear_up_to(curve, kappa, reference, one.mean_noise, level)
    S_min, E_min = _ends_of_steps(one, B_crit, level)
    fit = CriticalBatch(
        curve=curve,
        reference=reference,
        max_reference=most,
        is_linear=is_linear,
        S_min=S_min,
        E_min=E_min,
        B_crit=B_crit,
        cbs=cbs,
        method=method,
        by_law=by_law,
        interpolated=interpolated,
        noise=float(one.shape.noise),
        residuals=tuple((np.log(curve.steps) - one.shape.log_steps(curve.batch)).tolist()),
        left_out=tuple(one.missed.tolist()),
        status=B_crit.note or "converged",
    )
    return fit, draws


def _by_law(one: FittedCurve, definition: CbsDefinition, level: float) -> tuple[Estimate, Estimate]:
    """Return b/a and the critical batch by the law, or their bounds."""
    curve = one.curve
    kappa = float(one.shape.kappa)
    ends = _bend_interval(curve, kappa, one.refits.kappa, level)
    bend = _bracketed(kappa, *ends, level)
    each = definition.by_law(np.array([kappa, *ends]), curve.batch[0])
    value, low, high = each.tolist()
    by_law = _replaced(bend, Estimate(value, low, high, level))
    B_crit = _within_reach(bend, curve.batch)
    if value > curve.batch[-1] or (B_crit.value is None and B_crit.low is None):
        by_law = _replaced(B_crit, by_law)
    return B_crit, by_law


def _widened(by_law: Estimate, measured: Estimate) -> Estimate:
    """Return the law's estimate with an interval that includes the measured value."""
    value = measured.value or 0.0
    low = min(by_law.low or 0.0, value)
    return replace(by_law, low=low, high=max(by_law.high or np.inf, value))


def _bend_interval(
    curve: StepsCurve, kappa: float, draws: np.ndarray, level: float
) -> tuple[float, float]:
    """Return the interval of κ from its refits [R]; 0 and inf if it reaches the end searched."""
    low = np.log(draws) - np.log(curve.batch[0])
    high = np.log(draws) - np.log(curve.batch[-1])
    end = 0.99 * SEARCHED  # but for the step of the grid
    opened = [low <= -end, high >= end]
    found = interval(kappa, np.select(opened, [0.0, np.inf], draws), level=level)
    return found.low or 0.0, np.inf if found.high is None else found.high


def _ends_of_steps(one: FittedCurve, B_crit: Estimate, level: float) -> tuple[Estimate, Estimate]:
    """Return S_min and E_min, or their bounds if the batches do not bracket the bend."""
    S_min = interval(one.shape.a, one.refits.a, level=level)
    E_min = interval(one.shape.b, one.refits.b, level=level)
    batch = one.curve.batch
    steps = one.curve.steps
    if B_crit.value is None and B_crit.high is None:
        S_min = Estimate(None, None, float(steps.min()), level, B_crit.note)
    if B_crit.value is None and B_crit.low is None:
        E_min = Estimate(None, None, float((batch * steps).min()), level, B_crit.note)
    return S_min, E_min


def _bracketed(value: float, low: float, high: float, level: float) -> Estimate:
    """Return the estimate, or a bound if its interval is open on a side."""
    above = not np.isfinite(high)
    below = low <= 0
    if above and below:
        return Estimate(None, level=level, note="unidentified: the steps show no bend")
    if not above and not below:
        return Estimate(value, low, high, level)
    side, wanted = ("below", "larger") if above else ("above", "smaller")
    note = f"unidentified: all batches are {side} the bend; measure {wanted} ones"
    lower = low if above else None
    upper = high if below else None
    return Estimate(None, lower, upper, level, note)


def _within_reach(B_crit: Estimate, batch: np.ndarray) -> Estimate:
    """Return a bound instead of a bend more than REACH times outside the batches measured."""
    if B_crit.value is None:
        return B_crit
    low = 0.0 if B_crit.value < batch[0] / REACH else B_crit.low or 0.0
    high = np.inf if B_crit.value > REACH * batch[-1] else B_crit.high or np.inf
    return _bracketed(B_crit.value, low, high, B_crit.level)


def _replaced(bound: Estimate, estimate: Estimate) -> Estimate:
    """Return an estimate without its value, and an end, if that which it follows from has none."""
    if bound.value is not None:
        return estimate
    low = estimate.low if bound.low is not None else None
    high = estimate.high if bound.high is not None else None
    return Estimate(None, low, high, estimate.level, bound.note)


def _interpolated(
    one: FittedCurve, overhead: float, reference: float, draws: np.ndarray, level: float
) -> Estimate:
    """Return the critical batch by a smooth curve through the steps."""
    curve = one.curve
    if not curve.covers(reference):
        span = f"{curve.batch[0]:.4g} to {curve.batch[-1]:.4g}"
        note = f"reference {reference:.4g} is outside the batches measured, {span}"
        return Estimate(None, level=level, note=f"unidentified: {note}")
    smooth = one.smooth
    value = float(measured_critical_batch(smooth.batch, smooth.log_steps, overhead, reference))
    estimate = interval(value, draws, level=level)
    if np.isfinite(value):
        return estimate
    note = "unidentified: the largest batch keeps within the overhead"
    return Estimate(None, estimate.low or float(curve.batch[-1]), None, level, note)


def _linear_up_to(
    curve: StepsCurve, kappa: float, reference: float, noise: np.ndarray, level: float
) -> tuple[float, bool]:
    """Return the largest batch in the range of linear scaling, and whether the reference is in it.

    By the law, the range ends where a batch takes 1 + LINEAR times the tokens of the smallest
    batch. If the measured tokens at the reference exceed 1 + LINEAR times the measured minimum by
    more than the noise, the reference is not in the range; the batch with the fewest tokens is
    returned if it is larger than the reference.
    """
    logs = np.log(curve.batch * curve.steps)
    excess = np.interp(np.log(reference), np.log(curve.batch), logs) - logs.min() - np.log1p(LINEAR)
    above = excess > noise.max() * np.sqrt(2) * ndtri((1 + level) / 2)
    most = float(CbsDefinition(LINEAR, "smallest").by_law(kappa, curve.batch[0]))
    is_linear = bool(curve.covers(reference) and reference <= most and not above)
    best = float(curve.batch[logs.argmin()])
    return best if above and best > reference else most, is_linear
