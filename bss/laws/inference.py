"""Refits, left-out errors, the choice among laws, outliers and identifiability, for every law.

There is one implementation. Laws declare their differences: the unit of replication, the folds, the
ties and the limits. All of this is derived here.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from bss.errors import InputError
from bss.laws.base import SPANS, UNIDENTIFIED, Estimate, deviations, interval, too_wide
from bss.laws.problem import Problem
from bss.laws.resampling import RunEffects, redraw, robust_scale

Key = TypeVar("Key", bound=Hashable)


class Refits(NamedTuple):
    """Refits of one problem to measurements drawn anew.

    Attributes:
        parameters: [n, P].
        errors: [...], fitted minus measured, of the fit itself.
        noise: [n, ...], what was drawn, by which fitted values differ from those refitted.
        scatter: the variances from which it was drawn.
    """

    parameters: np.ndarray
    errors: np.ndarray
    noise: np.ndarray
    scatter: RunEffects


def resample(
    problem: Problem, solution: Any, index: int, count: int, generator: np.random.Generator
) -> Refits:
    """Return refits of one problem by a parametric bootstrap over the unit of replication.

    Args:
        problem: R problems of a law.
        solution: of them.
        index: of the problem.
        count: number of refits.
        generator: random numbers.
    """
    errors, slopes = problem.linearize(solution, index)
    used = problem.used[index]
    limit = problem.clip * max(robust_scale(errors[used]), 1e-9)  # of a fit that is exact
    scatter = problem.scatter(np.clip(errors, -limit, limit), slopes, index)
    noise = redraw(scatter, used, problem.replication[index], count, generator)
    parameters = problem.refit(solution, index, np.where(used, errors, 0.0) + noise)
    return Refits(parameters, errors, noise, scatter)


class LeftOut(NamedTuple):
    """Fits without some measurements.

    Attributes:
        parameters: [F, R, P], without each fold.
        errors: [R, ...], predicted minus measured, by the fit without the fold of a measurement;
            NaN for a measurement in no fold.
    """

    parameters: np.ndarray
    errors: np.ndarray


def folds_of(labels: np.ndarray, values: Iterable[Any]) -> np.ndarray:
    """Return folds [F, ...]: for each of the values, where the labels [...] have it."""
    return np.array([labels == value for value in values])


def leave_out(problem: Problem, solution: Any, folds: np.ndarray) -> LeftOut:
    """Return fits without each fold, and how far they miss what was left out.

    Args:
        problem: R problems of a law.
        solution: of them.
        folds: [F, R, ...], what is left out together; each measurement is in one fold at most.
    """
    parameters = problem.without(solution, folds)
    errors = np.full(problem.used.shape, np.nan)
    for fold, index in np.ndindex(folds.shape[:2]):
        out = folds[fold, index] & problem.used[index]
        if out.any():
            errors[index][out] = problem.missed(parameters[fold, index], index)[out]
    return LeftOut(parameters, errors)


class Candidate(NamedTuple):
    """A law among several.

    Attributes:
        error: root mean square error at what is left out; NaN if nothing can be left out.
        complexity: compared between laws that predict equally well; the lowest is preferred.
    """

    error: float
    complexity: tuple[Any, ...] = ()


def choose(candidates: Mapping[Key, Candidate], tie: float = 1.0) -> Key:
    """Return the key of the law to take, the first of several that are equal.

    Args:
        candidates: laws by key.
        tie: ratio of squared errors up to which two laws predict equally well.
    """
    lowest = min(np.nan_to_num(one.error, nan=np.inf) for one in candidates.values())
    tied = {
        key: one
        for key, one in candidates.items()
        if np.isnan(one.error) or one.error**2 <= tie * lowest**2
    }
    return min(tied, key=lambda key: (*tied[key].complexity, tied[key].error))


@dataclass(frozen=True)
class OutlierRule:
    """When a measurement is far from what the others predict.

    Attributes:
        limit: of the ratio of its distance to what is expected.
        fewest: measurements that there must be.
        most: number of outliers to report, the farthest first; None for all.
    """

    limit: float
    fewest: int = 1
    most: int | None = None

    def of(self, times: np.ndarray) -> list[int]:
        """Return which measurements are outliers, by their ratios [n], the farthest first."""
        if len(times) < self.fewest:
            return []
        order = np.argsort(-times, kind="stable").tolist()
        return [i for i in order if times[i] > self.limit][: self.most]


def times_of_others(errors: np.ndarray) -> np.ndarray:
    """Return the sizes of errors [n] over the robust scale of the others [n]."""
    others = [robust_scale(np.delete(errors, i)) for i in range(len(errors))]
    return np.abs(errors) / np.maximum(others, 1e-9)  # of a fit that is exact


def identified(estimate: Estimate, *, at_bound: bool, positive: bool) -> Estimate:
    """Return the estimate of a fitted parameter, without a value if nothing identifies it.

    Args:
        estimate: with its interval.
        at_bound: whether the fit ended at a bound.
        positive: whether the parameter is above 0, so that its interval has a width in logarithms.
    """
    note = ""
    if at_bound:
        note = f"{UNIDENTIFIED}ended at a bound of the fit"
    elif positive and too_wide(estimate):
        note = f"{UNIDENTIFIED}{SPANS}"
    return replace(estimate, value=None, note=note) if note else estimate


def percentiles(
    names: Sequence[str], values: Iterable[Any], draws: Iterable[np.ndarray], level: float
) -> dict[str, Estimate]:
    """Return an estimate by name, of each value and its refits [n]."""
    triples = zip(names, values, draws, strict=True)
    return {name: interval(float(value), own, level=level) for name, value, own in triples}


def over_forms(
    values: Sequence[float], low: float, high: float, level: float
) -> tuple[float, float]:
    """Return the ends of an interval of a positive quantity that includes the error of the form.

    In logarithms the interval is centred at the mean of the forms. Its variance is the sampling
    variance plus (1 + 1/m) times the variance between m forms, as the true form is one more. This
    is Rubin's rule for m imputations (Multiple Imputation for Nonresponse in Surveys, 1987, section
    3.1). With two forms the interval contains both values.

    Args:
        values: the estimates of m forms from one table, m >= 2.
        low, high: ends of the interval of the first one, which has its sampling error alone.
        level: of the intervals.
    """
    logs = np.log(np.asarray(values))
    between = deviations(level) * np.sqrt((1 + 1 / len(logs)) * logs.var(ddof=1))
    below = np.hypot(logs[0] - math.log(low), between)
    above = np.hypot(math.log(high) - logs[0], between)
    return float(np.exp(logs.mean() - below)), float(np.exp(logs.mean() + above))


def refuse_few(count: int, free: int, measured: str, law: str, remedy: str) -> None:
    """Raise InputError unless there are more measurements than free parameters.

    Args:
        count: of measurements.
        free: number of fitted parameters.
        measured: the measurements with a place for their count, e.g. "runs: {} losses".
        law: what has the parameters.
        remedy: what the user can do.
    """
    if count <= free:
        text = measured.format(count)
        raise InputError(f"{text} for the {free} parameters of {law}; {remedy}")


def refuse_constant(
    errors: np.ndarray, logs: np.ndarray, free: int, measured: str, law: str, remedy: str
) -> None:
    """Raise InputError if a law is no better than a constant, by mean absolute errors.

    Errors are corrected for the degrees of freedom, so that parameters which only fit the noise do
    not count. Absolute errors, as a robust fit may miss some runs by far.

    Args:
        errors: [N], of log measured, by the law.
        logs: [N], log measured.
        free: number of fitted parameters.
        measured: name of what was measured.
        law: what has the parameters.
        remedy: what the user can do.
    """

    def corrected(errors: np.ndarray, free: int) -> float:
        return float(np.abs(errors).mean() * np.sqrt(len(errors) / max(len(errors) - free, 1)))

    error = corrected(errors, free)
    constant = corrected(logs - logs.mean(), 1)
    if error >= constant:
        raise InputError(
            f"{law}: mean error {error:.3g} of log {measured} with {free} parameters, a constant "
            f"has {constant:.3g}; {remedy}"
        )


def refuse_collision(slopes: np.ndarray, names: Sequence[str], law: str) -> None:
    """Raise InputError if the measurements show only one combination of some parameters.

    Args:
        slopes: [N, P], derivatives of the residuals by free parameters without a prior.
        names: [P].
        law: what has the parameters.
    """
    if len(names) < 2:
        return
    size = np.linalg.norm(slopes, axis=0)
    _, singular, rows = np.linalg.svd(slopes / np.where(size > 0, size, 1.0))
    if singular[-1] < 1e-6 * singular[0]:  # far below what measurements can separate
        alike = " and ".join(np.array(names)[np.sort(np.argsort(-np.abs(rows[-1]))[:2])])
        raise InputError(
            f"{law}: {alike} collide: the table shows only one combination of them; drop one, or "
            "fix it (--fix NAME=VALUE)"
        )
