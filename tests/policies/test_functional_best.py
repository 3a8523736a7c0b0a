"""Schedules from a fitted law of loss curves: they beat what they are compared with, by the law."""

import dataclasses

import numpy as np
import pytest

from bss.errors import InputError
from bss.laws.base import Estimate
from bss.laws.functional.values import schedule_losses
from bss.policies.functional_best import GRID, FunctionalBest, free_batches
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import WarmupStableDecay, cosine

RATE = WarmupStableDecay(4e-3, 2_000_000)


@pytest.fixture(scope="module")
def fit(planted_curves):
    return planted_curves.fit


def best_schedule(fit, tokens=2_000_000, rate=RATE, limits=Limits()):  # noqa: B008
    return FunctionalBest()(Basis(fit.seq_len, fit, rate), tokens, limits)


def loss_of(fit, text, rate=RATE):
    schedule = BatchSchedule.parse(text, total=2_000_000)
    return float(schedule_losses(fit, schedule, 2_000_000, rate)[0])


def test_the_batch_grows_late_and_beats_constants_and_switches(fit):
    schedule = best_schedule(fit, limits=Limits(stages=3))
    assert list(schedule.batches) == sorted(schedule.batches)
    assert 2 <= len(schedule.batches) <= 3
    others = ["1", "4", "16", "0:1 30%:16", "0:1 70%:16", "0:2 90%:16", "0:1 50%:4 75%:16"]
    assert loss_of(fit, str(schedule)) < min(loss_of(fit, text) for text in others)


def test_a_rate_without_a_stable_phase_is_read(fit):
    tokens = 1_999_999
    rate = cosine(4e-3, tokens, warmup=50_001)
    schedule = best_schedule(fit, tokens, rate=rate, limits=Limits(stages=2))
    constant = BatchSchedule.constant(16)
    found, other = (schedule_losses(fit, x, tokens, rate)[0] for x in (schedule, constant))
    assert found < other


@pytest.mark.slow
def test_the_free_optimum_is_water_filling(fit):
    """Where no bound binds, B² is proportional to K(T − u)[A_0 + A_1 e(u)] (derived here)."""
    law = fit.law._replace(c_1=0.05)
    one = dataclasses.replace(fit, law=law)
    batch = free_batches(one, 2_000_000, RATE, (1e-3, 1e4))
    # Time from the batches themselves: the optimum must be consistent with its own clock.
    added = np.diff(GRID) * 2_000_000 / fit.seq_len / batch * RATE.peak
    ends = np.cumsum(added)
    middle = ends - added / 2
    kernel = (1 + law.c_K * (ends[-1] - middle)) ** -law.q
    ratio = batch**2 / (kernel * (law.A_0 + law.A_1 * (1 + middle / law.T_0) ** -law.s))
    inner = slice(4, 16)
    assert np.ptp(np.log(ratio[inner])) < 0.15


def test_bounds_and_multiples_are_kept(fit):
    limits = Limits(multiple_of=4, min_batch=4, max_batch=32)
    schedule = best_schedule(fit, limits=limits)
    assert set(schedule.batches) <= set(range(4, 33, 4))
    assert limits.within(fit.batches).ladder()[-1] == 32


@pytest.mark.parametrize(
    ("changes", "options", "told"),
    [
        ({}, {"limits": Limits(4, 8, min_batch=5, max_batch=7)}, "no multiple of 8"),
        ({}, {"limits": Limits(min_batch=8, max_batch=4)}, "the smaller first"),
        ({"status": "not converged", "identified": False}, {}, "fit: not converged"),
        ({"identified": False}, {}, "noise is unidentified"),
        ({"parameters": {"m": Estimate(None, note="unidentified: x")}}, {}, "m is"),
    ],
)
def test_what_cannot_be_optimised_is_refused_in_one_line(fit, changes, options, told):
    with pytest.raises(InputError, match=told) as error:
        best_schedule(dataclasses.replace(fit, **changes), **options)
    assert "\n" not in str(error.value)
