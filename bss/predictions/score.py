"""What registered predictions were worth: a law, its baselines and their means, side by side.

The unit is the schedule: the runs of its seeds are averaged first, and intervals come from drawing
schedules again (derived here). All are scored: a schedule with a run that failed is one of infinite
error, which no interval covers; ranks and differences are of the others.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from bss.errors import InputError
from bss.laws.fitting.estimate import Estimate, interval
from bss.predictions.registration import Prediction, Registration, digest
from bss.values import to_dict

LAW, ALL = "law", "all"
FEWEST = 3  # schedules behind an interval
ROUNDING = 1e-12  # of a loss: what differs by less is one schedule drawn again and again

Statistic = Callable[..., np.ndarray]
"""Of arrays whose last axis is the schedules."""


@dataclass(frozen=True)
class Failure:
    """A run that does not count as trained, and why."""

    run: str
    schedule: str
    why: str


@dataclass(frozen=True)
class Scored:
    """One schedule: its measured loss, the mean over its runs (None where one failed).

    Attributes:
        predicted: in nats, by the law, each baseline and the mean of both.
        covered: whether the law's interval holds the measured loss.
    """

    name: str
    ending: str
    runs: int
    measured: float | None
    predicted: dict[str, float]
    covered: bool


@dataclass(frozen=True)
class Judged:
    """What a predictor was worth on some schedules.

    Attributes:
        error: median |error|, in % of the measured loss.
        rank: Spearman's correlation of predicted and measured losses.
        differences: rms error of the differences between schedules over their rms spread; 1 is what
            a constant prediction has.
        coverage: share of measured losses in the interval, which is of one run; None where there is
            no interval.
    """

    error: Estimate
    rank: Estimate
    differences: Estimate
    coverage: Estimate | None = None


@dataclass(frozen=True)
class Score:
    """All scores of a registration, by ending and over "all".

    Attributes:
        name, metric: of the registration.
        runs: registered.
        schedules: each by itself.
        failures: runs that failed.
        judged: by ending and predictor.
        compared: mean |error| of the law, and of its mean with a baseline, less the baseline's, on
            the same schedules, in % of the measured loss; by ending and "A - B".
        nominal: what the coverage should be.
        level, resamples: of the intervals of the scores.
    """

    name: str
    metric: str
    runs: int
    schedules: tuple[Scored, ...]
    failures: tuple[Failure, ...]
    judged: dict[str, dict[str, Judged]]
    compared: dict[str, dict[str, Estimate]]
    nominal: float
    level: float
    resamples: int


def score(
    registration: Registration,
    outcomes: pd.DataFrame,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Score:
    """Scores all that was registered.

    Args:
        registration: the predictions.
        outcomes: a row a run: run, status, tokens and the loss of the registration's metric, as
            `bss.sweeps.table.outcomes` has them. What is not registered is not looked at.
        level: of the intervals.
        resamples: of the schedules, behind each interval.
        seed: of the resamples.

    Raises:
        InputError: a run has two rows, or none has the metric.
    """
    if registration.metric not in outcomes:
        raise InputError(f"runs: none has a {registration.metric}; train them before scoring")
    for run in outcomes["run"][outcomes["run"].duplicated()][:1]:
        raise InputError(f"runs: run {run} has two rows; keep one")
    rows = {row["run"]: row for row in outcomes.to_dict("records")}
    scored, failures = [], []
    for one in registration.predictions:
        wrong = {run: _why(rows.get(run), one, registration.metric) for run in one.runs}
        failures += [Failure(run, one.name, why) for run, why in wrong.items() if why]
        losses = [rows[run][registration.metric] for run in one.runs if not wrong[run]]
        scored.append(_scored(one, float(np.mean(losses)) if not any(wrong.values()) else None))
    resampled = partial(_resampled, level, resamples, seed)
    groups = [*dict.fromkeys(one.ending for one in scored if one.ending), ALL]
    of = {name: [one for one in scored if name in (one.ending, ALL)] for name in groups}
    return Score(
        registration.name,
        registration.metric,
        len(registration.runs),
        tuple(scored),
        tuple(failures),
        {name: _judged(some, resampled) for name, some in of.items()},
        {name: _compared(some, registration.baselines, resampled) for name, some in of.items()},
        registration.predictions[0].loss.level,
        level,
        resamples,
    )


def score_entry(scores: Score, file: Path, commit: str) -> dict[str, Any]:
    """A score as JSON has it, with the registration's file and the commit that added it."""
    entry = {"kind": "score", "file": str(file), "sha256": digest(file), "commit": commit}
    return entry | to_dict(scores)


def _why(row: Mapping[Hashable, Any] | None, one: Prediction, metric: str) -> str:
    """Why a run does not count as trained; empty where it does."""
    if row is None:
        return "missing"
    if row["status"] != "finished":
        return str(row["status"])
    if row["tokens"] != one.tokens:
        return f"ended at {row['tokens']:,.0f} tokens, not {one.tokens:,}"
    return "" if np.isfinite(row[metric]) else f"no {metric}"


def _scored(one: Prediction, measured: float | None) -> Scored:
    law, low, high = one.loss.value, one.loss.low, one.loss.high
    assert law is not None and low is not None and high is not None  # a registration has them
    means = {_mean(name): (law + value) / 2 for name, value in one.baselines.items()}
    predicted = {LAW: law, **one.baselines, **means}
    covered = measured is not None and low <= measured <= high
    return Scored(one.name, one.ending, len(one.runs), measured, predicted, covered)


def _mean(baseline: str) -> str:
    return f"mean of {LAW} and {baseline}"


def _resampled(
    level: float, resamples: int, seed: int, statistic: Statistic, *values: np.ndarray
) -> Estimate:
    """A statistic of arrays [n], with its interval; no value of few schedules, or of none."""
    n = len(values[0])
    if n < FEWEST:
        return Estimate(None, level=level, note=f"{n} schedules, fewer than {FEWEST}")
    rows = np.random.default_rng(seed).integers(n, size=(resamples, n))
    with np.errstate(invalid="ignore", divide="ignore"):
        value = float(statistic(*values))
        draws = statistic(*(array[rows] for array in values))
    if not np.isfinite(value):
        why = "half of the schedules failed" if np.isinf(value) else "nothing varies"
        return Estimate(None, level=level, note=why)
    return interval(value, draws, level=level)


def _judged(scored: list[Scored], resampled: Callable[..., Estimate]) -> dict[str, Judged]:
    ended = [one for one in scored if one.measured is not None]
    measured = np.array([one.measured for one in ended], float)
    covered = np.array([one.covered for one in scored], float)
    judged = {}
    for name in scored[0].predicted:
        predicted = np.array([one.predicted[name] for one in ended])
        judged[name] = Judged(
            resampled(partial(np.median, axis=-1), np.array([_error(one, name) for one in scored])),
            resampled(_rank_correlation, predicted, measured),
            resampled(_of_differences, predicted, measured),
            resampled(partial(np.mean, axis=-1), covered) if name == LAW else None,
        )
    return judged


def _compared(
    scored: list[Scored], baselines: Mapping[str, str], resampled: Callable[..., Estimate]
) -> dict[str, Estimate]:
    ended = [one for one in scored if one.measured is not None]
    compared = {}
    for baseline in baselines:
        for name in (LAW, _mean(baseline)):
            less = [_error(one, name) - _error(one, baseline) for one in ended]
            compared[f"{name} - {baseline}"] = resampled(partial(np.mean, axis=-1), np.array(less))
    return compared


def _error(one: Scored, name: str) -> float:
    """|error| in % of the measured loss; infinite where a run failed."""
    if one.measured is None:
        return np.inf
    return 100 * abs(one.predicted[name] / one.measured - 1)


def _of_differences(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """RMS error of differences between runs over their RMS spread."""
    spread = np.std(measured, axis=-1)
    ratio = np.std(predicted - measured, axis=-1) / spread
    return np.where(spread > ROUNDING * np.mean(measured, axis=-1), ratio, np.nan)


def _rank_correlation(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Spearman's, ties at their mean rank."""
    ranks = [rankdata(values, axis=-1) for values in (predicted, measured)]
    a, b = (rank - rank.mean(axis=-1, keepdims=True) for rank in ranks)
    return (a * b).sum(axis=-1) / np.sqrt((a**2).sum(axis=-1) * (b**2).sum(axis=-1))
