"""Steps to a loss at any batch size, from the steps measured at three batch sizes or more.

At each target S = a + b/B is fitted (bss.laws.critical.law). Its interval has the error of the
form, because the residuals of the fit include it. If left-out batch sizes show that S = a + b/B
misses by more than an interpolation of log S in log B, the interpolation is used between the
smallest and the largest batch size. Between targets log S is linear in the loss (derived here).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bss.errors import InputError
from bss.laws.base import Estimate, tails
from bss.laws.critical.law import Shape
from bss.laws.minimum import FEWEST
from bss.laws.resampling import draw_noise, rms
from bss.values import SLACK

DRAWN = 2000
"""Refits: 100 beyond each end of a 90% interval."""
USUAL = 0.015  # log steps: SEED_NOISE over USUAL_SLOPE of bss.points.groups, if no seeds show it
HYPERBOLA = "S = a + b/B"
INTERPOLATION = "interpolation in log B"


@dataclass(frozen=True)
class Steps:
    """Mean log steps to one target.

    Attributes:
        target_loss: in nats.
        batch: [n] ascending.
        log_steps: [n].
        noise: standard deviation of one run in log steps; NaN if no batch size has two runs.
        runs: number of runs.
    """

    target_loss: float
    batch: np.ndarray
    log_steps: np.ndarray
    noise: float
    runs: int

    @classmethod
    def of_runs(cls, target_loss: float, batch: np.ndarray, steps: np.ndarray) -> "Steps":
        """Return the means of runs [m] with their batch sizes and steps."""
        sizes, at = np.unique(batch, return_inverse=True)
        counts = np.bincount(at)
        means = np.bincount(at, np.log(steps)) / counts
        freedom = len(batch) - len(sizes)
        squares = float(np.sum((np.log(steps) - means[at]) ** 2))
        noise = float(np.sqrt(squares / freedom)) if freedom else np.nan
        return cls(target_loss, sizes, means, noise, len(batch))


@dataclass(frozen=True)
class StepsAtBatch:
    """Steps of a new run to a loss.

    Attributes:
        steps: with the interval of a new run.
        source: the form, and what it was fitted to, in words.
    """

    steps: Estimate
    source: str


def steps_at_batch(
    targets: Sequence[Steps], batch: float, loss: float, level: float
) -> StepsAtBatch:
    """Return the steps of a new run to a loss at a batch size.

    Args:
        targets: of one model, each with three batch sizes or more.
        batch: in the unit of the targets.
        loss: in nats; at a target, or between two.
        level: of the interval.

    Raises:
        InputError: If fewer than three batch sizes reached a target near the loss, or the loss is
            not between targets.
    """
    order = sorted(targets, key=lambda one: abs(one.target_loss - loss))
    able = [one for one in order if len(one.batch) >= FEWEST]
    if not able:
        raise InputError(
            f"loss: {loss:g} was reached at {max(len(one.batch) for one in order)} batch sizes; "
            f"steps at another one need {FEWEST}"
        )
    nearest = able[0]
    if np.isclose(nearest.target_loss, loss, rtol=SLACK):
        logs, draws, form = _log_steps(nearest, batch, level)
        return _with_interval(logs, draws, level, _source(form, nearest, str(f"{loss:g}")))
    below = [one for one in able if one.target_loss < loss]
    above = [one for one in able if one.target_loss > loss]
    if not below or not above:
        known = ", ".join(
            f"{one.target_loss:g}" for one in sorted(able, key=lambda x: x.target_loss)
        )
        raise InputError(f"loss: {loss:g} is not between the targets {known}; choose one of them")
    first = below[0]
    last = above[0]
    share = (loss - first.target_loss) / (last.target_loss - first.target_loss)
    low, low_draws, form = _log_steps(first, batch, level)
    high, high_draws, _ = _log_steps(last, batch, level)
    # Runs have the same luck at both targets, so their draws are paired by rank.
    draws = np.sort(low_draws) * (1 - share) + np.sort(high_draws) * share
    places = f"{first.target_loss:g} and {last.target_loss:g}"
    return _with_interval(
        low * (1 - share) + high * share, draws, level, _source(form, first, places)
    )


def _source(form: str, at: Steps, loss: str) -> str:
    sizes = len(at.batch)
    return f"{form} through {at.runs} runs at {sizes} batch sizes that reached loss {loss}"


def _with_interval(log: float, draws: np.ndarray, level: float, source: str) -> StepsAtBatch:
    low, high = np.exp(np.quantile(draws, tails(level))).tolist()
    value = float(np.exp(log))
    return StepsAtBatch(Estimate(value, min(low, value), max(high, value), level), source)


def _log_steps(at: Steps, batch: float, level: float) -> tuple[float, np.ndarray, str]:
    """Return log steps at a batch size, draws [R] of a new run's, and the form."""
    generator = np.random.default_rng(0)
    shape = Shape.of(at.batch, at.log_steps)
    freedom = max(len(at.batch) - 2, 1)
    off = draw_noise(float(shape.noise), freedom, (DRAWN, len(at.batch)), generator)
    refits = Shape.of(at.batch, shape.log_steps(at.batch) + off)
    own = at.noise if np.isfinite(at.noise) else USUAL
    here = np.array([batch])
    value = float(shape.log_steps(here)[0])
    form = HYPERBOLA
    # The form is off by its residuals at a batch size that was not measured, too.
    off = draw_noise(float(shape.noise), freedom, (DRAWN, 1), generator)[:, 0]
    draws = np.log(refits.a) + np.log1p(refits.kappa / batch) + off
    inside = at.batch[0] <= batch <= at.batch[-1]
    missed = _left_out_errors(at)
    if inside and missed is not None and missed[1] < missed[0]:
        form = INTERPOLATION
        value = float(np.interp(np.log(batch), np.log(at.batch), at.log_steps))
        spread = draw_noise(max(missed[1], own), freedom, (DRAWN, 1), generator)[:, 0]
        draws = value + spread
    return value, draws + own * generator.standard_normal(DRAWN), form


def _left_out_errors(at: Steps) -> tuple[float, float] | None:
    """Return RMS errors at left-out inner batch sizes, of S = a + b/B and of interpolation.

    None if there are too few batch sizes.
    """
    if len(at.batch) <= FEWEST + 1:
        return None
    errors = []
    for i in range(1, len(at.batch) - 1):
        rest = np.arange(len(at.batch)) != i
        shape = Shape.of(at.batch[rest], at.log_steps[rest])
        by_form = float(shape.log_steps(at.batch[[i]])[0])
        between = np.interp(np.log(at.batch[i]), np.log(at.batch[rest]), at.log_steps[rest])
        errors.append((by_form - at.log_steps[i], between - at.log_steps[i]))
    by_form, between = np.array(errors).T
    return rms(by_form), rms(between)
