"""Critical batch sizes from steps to a target, and how they grow with model and data.

The method of Zhang et al. (arXiv 2410.21676) has three steps. Fit S = a + b/B per model and target.
Compute the critical batch: the largest batch within an overhead of linear scaling. Fit a power law
of the critical batch in N or D. Added here: intervals, bounds if the batches do not bracket the
bend, and critical batches by interpolation of the steps.

The closed form of the critical batch has an additive term (1 + r)·B_ref. This term lowers the
exponent of a power law. From the same data the exponent is 0.39 at r = 10% and 0.62 for b/a
(derived here).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from bss.laws import power
from bss.laws.base import Estimate, Options, Outlier, interval
from bss.laws.critical.curves import StepsCurve, steps_curves
from bss.laws.critical.shape import (
    LEAST_NOISE,
    SEARCHED,
    CbsDefinition,
    Shape,
    measured_critical_batch,
)
from bss.laws.critical.values import CriticalBatch, CriticalFit, Quantity
from bss.laws.minimum import FEWEST
from bss.laws.problem import parse_ranges
from bss.laws.resampling import rms
from bss.points.measuring import independent_points

LAW_UNIT = 1e6  # of N and D in a law
REACH = 2.0  # times the batches measured: a bend further outside is a bound
# times the width of a measured interval (in log B): outside of it the law does not fit. At 1, sizes
# of the published steps whose residuals are noise would be replaced by their interpolation.
DOUBTED = 1.9
LINEAR = 0.05  # share of tokens above the minimum, up to which scaling is called linear
ROUNDING = 0.002  # of steps: published tables have three digits, so no smaller residual is one
UNBOUNDED = "unidentified: the batches do not bound it above; measure larger ones"
RARE = 0.01  # probability of an outlier in a curve of as many points without one


def fit_critical(
    points: pd.DataFrame,
    *,
    overhead: float = 0.2,
    reference: float | str = 256,
    unit: str = "sequences",
    constraints: str = "",
    options: Options | None = None,
) -> CriticalFit:
    """Fit critical batch sizes per (model, target), and their law over models and budgets.

    Args:
        points: as `bss.tables.read_points` returns it.
        overhead: r, the fraction of steps above linear scaling that is allowed.
        reference: B_ref, a batch in the range of linear scaling: a number in `unit`, "smallest" of
            each curve, or a share of each b/a, e.g. "10%".
        unit: of batches: "sequences", or "tokens" to compare context lengths.
        constraints: none can be set: S = a + b/B has no other parameter.
        options: how intervals are made; by default 2,000 refits.

    Raises:
        InputError: if a setting is out of range, or `steps_curves` refuses the table.
    """
    options = options or Options(resamples=2000)
    definition = CbsDefinition.parse(overhead, reference)
    parse_ranges(constraints, (), "S = a + b/B")
    level = options.level
    generator = np.random.default_rng(options.seed)
    kept, copies = independent_points(points)
    curves = steps_curves(kept, unit)
    fitted = [_Fitted.of(curve, options.resamples, generator) for curve in curves]
    fits, draws = zip(*(_critical_batch(one, definition, level) for one in fitted), strict=True)
    warnings = [*copies, *(text for fit in fits for text in _warnings(fit))]
    nonlinear = sum(fit.is_linear for fit in fits) * 2 < len(fits)
    quantity: Quantity = "B_crit" if nonlinear else "cbs"
    if nonlinear:
        draws = [one.refits.kappa for one in fitted]
        warnings.append(
            f"the laws are of b/a: most curves do not scale linearly up to the reference batch of "
            f"{definition}; --reference-batch smallest serves every curve"
        )
    laws, refused, notes = _laws(fits, quantity, draws, level)
    law = next((laws[name] for name in ("joint", "params", "tokens") if name in laws), None)
    return CriticalFit(
        overhead=overhead,
        reference=definition.reference,
        unit=unit,
        fits=fits,
        quantity=quantity,
        law=law,
        laws=laws,
        joint_refused=refused,
        outliers=tuple(_outliers(fits, [one.unseen for one in fitted])),
        resamples=options.resamples,
        level=level,
        warnings=(*warnings, *notes),
    )


class _Fitted(NamedTuple):
    """A curve with its fit, R refits, their noise [R, n], and fits without each of n batches.

    `rounded` [R, n], or 0, are changes of log steps within a rounding that seeds do not show.
    `unseen` has errors of log steps at each batch by the fit to the others, and its κ [2, n]; NaN
    if the curve has no batch to spare.
    """

    curve: StepsCurve
    shape: Shape
    refits: Shape
    noise: np.ndarray
    unseen: np.ndarray
    rounded: np.ndarray

    @classmethod
    def of(cls, curve: StepsCurve, resamples: int, generator: np.random.Generator) -> "_Fitted":
        """Fit and refit a curve."""
        batch, logs = curve.batch, np.log(curve.steps)
        unseen = np.full((2, len(batch)), np.nan)
        for j in range(len(batch)) if len(batch) > FEWEST else ():
            rest = Shape.of(np.delete(batch, j), np.delete(logs, j))
            unseen[:, j] = rest.log_steps(batch[j]) - logs[j], rest.kappa
        shape = Shape.of(batch, logs)
        refits, noise = shape.refits(batch, resamples, generator)
        rounding = curve.unseen_rounding
        rounded = np.zeros_like(noise)
        if rounding.any():
            # Its ends, as nothing is known within it: three batches decide where the overhead is
            # reached, so that an interval of 90% has all their combinations.
            rounded = np.log1p(-rounding * generator.integers(0, 2, noise.shape))
        return cls(curve, shape, refits, noise, unseen, rounded)

    @property
    def mean_noise(self) -> np.ndarray:
        """Standard deviations [n] of mean log steps, of seeds if known.

        Else of residuals, but at most of third differences: the law may not fit a smooth curve.
        """
        curve = self.curve
        if np.isfinite(curve.seed_noise):
            return curve.seed_noise / np.sqrt(curve.seeds)
        third = len(curve.batch) > 4
        rough = rms(np.diff(np.log(curve.steps), 2 + third)) / np.sqrt(20 if third else 6)
        return np.full(len(curve.batch), max(min(self.shape.noise, rough), LEAST_NOISE))


def _critical_batch(
    one: _Fitted, definition: CbsDefinition, level: float
) -> tuple[CriticalBatch, np.ndarray]:
    """Return the result of a curve, and the refits [R] of its critical batch."""
    curve, shape, kappa = one.curve, one.shape, float(one.shape.kappa)
    smallest, overhead, log_steps = curve.batch[0], definition.overhead, np.log(curve.steps)
    ends = _bend_interval(curve, kappa, one.refits.kappa, level)
    bend = _bracketed(kappa, *ends, level)
    reference = float(definition.at(kappa, smallest))
    value, low, high = definition.by_law(np.array([kappa, *ends]), smallest).tolist()
    by_law = _replaced(bend, Estimate(value, low, high, level))
    B_crit = _within_reach(bend, curve.batch)
    if value > curve.batch[-1] or (B_crit.value is None and B_crit.low is None):
        by_law = _replaced(B_crit, by_law)
    redrawn = log_steps + one.noise * (one.mean_noise / shape.noise) + one.rounded
    draws = measured_critical_batch(curve.batch, redrawn, overhead, reference)
    interpolated = _interpolated(curve, overhead, reference, draws, level)
    if not curve.covers(reference):
        by_law = interpolated
    logs = shape.log_steps(curve.batch)
    expected = measured_critical_batch(curve.batch, logs, overhead, reference)
    if by_law.value is None and by_law.high is None and _has_both_ends(interpolated):
        # A batch exceeds the overhead, so they are not all below the bend.
        B_crit = replace(B_crit, note=UNBOUNDED)
        by_law = replace(by_law, note=UNBOUNDED)
        cbs = interpolated
    else:
        cbs, by_law = _answer(by_law, interpolated, float(expected))
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
        method="law" if cbs is by_law else "measured",
        by_law=by_law,
        interpolated=interpolated,
        noise=float(shape.noise),
        residuals=tuple((log_steps - logs).tolist()),
        left_out=tuple(one.unseen[0].tolist()),
        status=B_crit.note or "converged",
    )
    measured = fit.method == "measured"
    return fit, draws if measured else definition.by_law(one.refits.kappa, smallest)


def _has_both_ends(estimate: Estimate) -> bool:
    return None not in (estimate.value, estimate.low, estimate.high)


def _bend_interval(
    curve: StepsCurve, kappa: float, draws: np.ndarray, level: float
) -> tuple[float, float]:
    """Return the interval of κ from its refits [R]; 0 and inf if it reaches the end searched."""
    low, high = np.log(draws) - np.log(curve.batch[0]), np.log(draws) - np.log(curve.batch[-1])
    opened = [low <= -0.99 * SEARCHED, high >= 0.99 * SEARCHED]
    found = interval(kappa, np.select(opened, [0.0, np.inf], draws), level=level)
    return found.low or 0.0, np.inf if found.high is None else found.high


def _ends_of_steps(one: _Fitted, B_crit: Estimate, level: float) -> tuple[Estimate, Estimate]:
    """Return S_min and E_min, or their bounds if the batches do not bracket the bend."""
    S_min = interval(one.shape.a, one.refits.a, level=level)
    E_min = interval(one.shape.b, one.refits.b, level=level)
    batch, steps = one.curve.batch, one.curve.steps
    if B_crit.value is None and B_crit.high is None:
        S_min = Estimate(None, None, float(steps.min()), level, B_crit.note)
    if B_crit.value is None and B_crit.low is None:
        E_min = Estimate(None, None, float((batch * steps).min()), level, B_crit.note)
    return S_min, E_min


def _answer(by_law: Estimate, measured: Estimate, expected: float) -> tuple[Estimate, Estimate]:
    """Return the critical batch to report, and the critical batch by the law.

    The law's interval is compared with the measured interval, widened DOUBTED times in log B. If
    they do not overlap, the measured value is reported, and the law's interval is widened to
    include it. `expected` is the critical batch by interpolation of the law's steps.
    """
    if by_law.value is None or measured.value is None or not np.isfinite(expected):
        return by_law, by_law
    low, high = by_law.low or 0.0, by_law.high or np.inf
    ends = np.array([measured.low or 0.0, measured.high or np.inf])
    ends = measured.value * (ends / measured.value) ** DOUBTED
    for least, most in (ends, ends * by_law.value / expected):
        if least <= high and low <= most:
            return by_law, by_law
    return measured, replace(by_law, low=min(low, measured.value), high=max(high, measured.value))


def _bracketed(value: float, low: float, high: float, level: float) -> Estimate:
    """Return the estimate, or a bound if its interval is open on a side."""
    above, below = not np.isfinite(high), low <= 0
    if above and below:
        return Estimate(None, level=level, note="unidentified: the steps show no bend")
    if not above and not below:
        return Estimate(value, low, high, level)
    side, wanted = ("below", "larger") if above else ("above", "smaller")
    note = f"unidentified: all batches are {side} the bend; measure {wanted} ones"
    return Estimate(None, low if above else None, high if below else None, level, note)


def _within_reach(B_crit: Estimate, batch: np.ndarray) -> Estimate:
    """Return a bound instead of a bend more than REACH times outside the batches measured."""
    if B_crit.value is None:
        return B_crit
    low, high = B_crit.low or 0.0, B_crit.high or np.inf
    low = 0.0 if B_crit.value < batch[0] / REACH else low
    high = np.inf if B_crit.value > REACH * batch[-1] else high
    return _bracketed(B_crit.value, low, high, B_crit.level)


def _replaced(bound: Estimate, estimate: Estimate) -> Estimate:
    """Return an estimate without its value, and an end, if that which it follows from has none."""
    if bound.value is not None:
        return estimate
    low = estimate.low if bound.low is not None else None
    high = estimate.high if bound.high is not None else None
    return Estimate(None, low, high, estimate.level, bound.note)


def _interpolated(
    curve: StepsCurve, overhead: float, reference: float, draws: np.ndarray, level: float
) -> Estimate:
    """Return the critical batch by interpolation of the steps."""
    if not curve.covers(reference):
        low, high = (f"{end:.4g}" for end in curve.batch[[0, -1]])
        note = f"reference {reference:.4g} is outside the batches measured, {low} to {high}"
        return Estimate(None, level=level, note=f"unidentified: {note}")
    log_steps = np.log(curve.steps)
    value = float(measured_critical_batch(curve.batch, log_steps, overhead, reference))
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
    above = excess > noise.max() * 2**0.5 * stats.norm.ppf((1 + level) / 2)
    most = float(CbsDefinition(LINEAR, "smallest").by_law(kappa, curve.batch[0]))
    is_linear = bool(curve.covers(reference) and reference <= most and not above)
    best = float(curve.batch[logs.argmin()])
    return best if above and best > reference else most, is_linear


def _warnings(fit: CriticalBatch) -> list[str]:
    texts, name, reference = [], fit.curve.name, fit.reference
    if censored := ", ".join(f"{batch:g}" for batch in fit.curve.censored):
        texts.append(f"{name}: not reached at batch {censored}; left out of the fit")
    if fit.B_crit.note:
        texts.append(f"{name}: B_crit is {fit.B_crit.note}")
    if not fit.curve.covers(reference):
        texts.append(f"{name}: CBS is {fit.cbs.note}; --reference-batch smallest")
    elif not fit.is_linear:
        texts.append(
            f"{name}: the reference batch {reference:.4g} takes over {LINEAR:.0%} more tokens than "
            f"smaller ones: scaling from it is not linear; {fit.max_reference:.4g} would do"
        )
    if fit.method == "measured" and fit.by_law.value is None:
        texts.append(f"{name}: its CBS is interpolated, as a batch exceeds the overhead")
    elif fit.method == "measured":
        texts.append(
            f"{name}: S = a + b/B does not fit: its CBS is {fit.by_law.value:.4g}, measured is "
            f"{fit.cbs.value:.4g}, which is given"
        )
    return texts


def _outliers(fits: Sequence[CriticalBatch], unseen: Sequence[np.ndarray]) -> list[Outlier]:
    """Return points whose residual, relative to the noise, is rare by Student's t.

    The noise is the residual SD of a fit to the other points. It is computed from the leverage of
    the point (derived here).
    """
    found = []
    for at, (error, kappa) in zip(fits, unseen, strict=True):
        missed, count = -np.array(at.residuals), len(at.residuals)
        if count < 2 * FEWEST:
            continue
        share = np.clip(missed / np.where(error == 0, np.inf, error), 1e-6, 1.0)  # 1 − leverage
        others = np.maximum(np.sum(missed**2) - missed**2 / share, count * ROUNDING**2)
        times = np.abs(missed) / np.sqrt(share * others / (count - FEWEST))
        i = int(np.argmax(times))
        chance = count * 2 * stats.t.sf(times[i], count - FEWEST)
        if abs(missed[i]) >= ROUNDING and chance < RARE:
            curve, batch = at.curve, float(at.curve.batch[i])
            place = {"model": curve.model, "target_loss": curve.target_loss, "batch": batch}
            drop, off = f"model={curve.model},batch={batch:g}", -float(error[i])
            without = {"B_crit": float(kappa[i])}
            found.append(Outlier(place, drop, off, float(times[i]), "log steps", without))
    return found


def _laws(
    fits: Sequence[CriticalBatch], quantity: Quantity, draws: Sequence[np.ndarray], level: float
) -> tuple[dict[str, power.PowerFit], str, list[str]]:
    """Return the laws that the design identifies, of a quantity of fits [n] and refits [n] × [R].

    Returns:
        Laws with the key "joint", or the keys "params" and "tokens"; the reason if the design does
        not identify a joint law, else an empty text; warnings.
    """
    if len({(fit.curve.params, fit.curve.tokens) for fit in fits}) < len(fits):
        return {}, "", ["several curves of one size and budget: no law is fitted to them"]
    values = [getattr(fit, quantity).value for fit in fits]
    known = [i for i, value in enumerate(values) if value is not None]
    columns = {
        n: np.array([getattr(fits[i].curve, n) for i in known]) for n in ("params", "tokens")
    }
    x = {name: column for name, column in columns.items() if np.isfinite(column).all()}
    varied = [name for name in x if not power.unidentified({name: x[name]})]
    if not varied:
        return {}, "", ["fewer than two critical batches over a factor of 2 in size: no law"]
    refused = power.unidentified(x) if len(x) > 1 else ""
    wanted = {name: [name] for name in varied} if refused or len(x) < 2 else {"joint": [*x]}
    y, errors = [values[i] for i in known], [_log_error(draws[i]) for i in known]
    how = {"unit": LAW_UNIT, "errors": errors, "level": level}
    laws = {
        key: power.fit_power(y, {name: x[name] for name in names}, **how)
        for key, names in wanted.items()
    }
    notes = [f"no joint law: {refused}"] if len(varied) > 1 and refused else []
    return laws, refused, notes


def _log_error(draws: np.ndarray) -> float:
    """Return the standard deviation of log draws, from quantiles that stray refits do not move."""
    finite = draws[np.isfinite(draws)]
    if not len(finite):
        return np.inf
    low, high = np.quantile(np.log(finite), [0.16, 0.84])
    return float(high - low) / 2
