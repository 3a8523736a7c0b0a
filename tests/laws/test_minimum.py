"""The least of measured values over batches: planted bowls, ends, noise, censored runs, seeds."""

import numpy as np
import pytest

from bss.laws.minimum import excess_noise, from_others, measured_minimum, parabola_vertex

BATCH = 2.0 ** np.arange(2, 11)


def bowl(best, up=0.9, down=0.6):
    """Straight walls about a round floor: none of the package's shapes."""
    x = np.log(BATCH / best)
    return 0.05 * (np.sqrt(1 + (np.where(x > 0, up, down) * x) ** 2) - 1)


def test_a_parabola_is_exact():
    x = np.linspace(0, 4, 9)
    assert parabola_vertex(x, 3 * (x - 1.7) ** 2) == pytest.approx(1.7)
    assert parabola_vertex(x, np.stack([x, -x])).tolist() == [0.0, 4.0]


@pytest.mark.parametrize("best", [64.0, 150.0])
def test_intervals_hold_the_best_batch_of_bowls_of_another_shape(best):
    generator, held, off = np.random.default_rng(1), [], []
    for _ in range(60):
        found = measured_minimum(
            BATCH, bowl(best) + 0.003 * generator.standard_normal(9), typical=0.003
        ).batch
        if found.value is not None:
            held.append(found.low <= best <= found.high)
            off.append(np.log(found.value / best))
    assert len(held) >= 55 and np.mean(held) >= 0.85
    assert np.sqrt(np.mean(np.square(off))) < 0.25


@pytest.mark.parametrize(("side", "end"), [(1, "low"), (-1, "high")])
def test_at_an_end_there_is_a_bound(side, end):
    found = measured_minimum(BATCH, 2.5 + side * 0.02 * np.log(BATCH), typical=0.002).batch
    assert found.value is None and found.status == "at_boundary"
    assert getattr(found, end) is None


@pytest.mark.parametrize(("rises", "most"), [((0.2, 0.3, 0.8), 16.0), ((0.001, 0.01, 0.8), 64.0)])
def test_the_bound_at_an_end_is_the_batch_there_if_the_next_one_surely_needs_more(rises, most):
    batch = np.repeat([16.0, 32.0, 36.0, 64.0], 5)
    value = np.repeat([2.0, *(2 + rise for rise in rises)], 5)
    noise = 0.01 * np.random.default_rng(4).standard_normal(20)
    low = measured_minimum(batch, value + noise, typical=0.01).batch
    assert (low.value, low.status) == (None, "at_boundary")
    assert 16 <= low.high <= most
    high = measured_minimum(1024 / batch, value + noise, typical=0.01).batch
    assert high.low == pytest.approx(1024 / low.high, rel=0.05)


def test_noise_alone_has_no_best_batch():
    generator = np.random.default_rng(2)
    for _ in range(20):
        noise = 0.003 * generator.standard_normal(9)
        found = measured_minimum(BATCH, 2.5 + noise, typical=0.003).batch
        assert found.value is None


def test_two_batches_are_too_few():
    found = measured_minimum(BATCH[:2], np.array([1.0, 2.0]), typical=0.003).batch
    assert (found.value, found.status) == (None, "too_few_batches")


def test_a_run_that_missed_its_target_says_that_its_batch_needs_more():
    value = 20 * bowl(30.0)
    few = value[BATCH < 200]
    open_ended = measured_minimum(BATCH[BATCH < 40], value[BATCH < 40], typical=0.03).batch
    assert open_ended.status == "at_boundary"
    censored = BATCH >= 64
    told = measured_minimum(
        BATCH, np.where(censored, few.max(), value), censored=censored, typical=0.03
    ).batch
    assert told.value == pytest.approx(30, rel=0.4)


def test_what_seeds_share_is_taken_out():
    generator = np.random.default_rng(3)
    seed = np.repeat(np.arange(4), 9)
    batch, noise = np.tile(BATCH, 4), 0.001 * generator.standard_normal(36)
    value = np.tile(bowl(64.0), 4) + noise + 0.05 * generator.standard_normal(4)[seed]
    paired = measured_minimum(batch, value, seed=seed, typical=0.003)
    assert paired.scatter < 0.003
    assert paired.batch.value == pytest.approx(64, rel=0.15)
    own = measured_minimum(batch, value, seed=np.arange(36), typical=0.003)
    assert own.scatter > 0.01  # a seed for each run: repetitions


@pytest.mark.parametrize("count", [0, 1])
def test_a_value_without_others_is_not_far_from_them(count):
    one = np.ones(count)
    off, times = from_others(8 * one, one, 0.1, one, np.zeros(count, int))
    assert off.tolist() == times.tolist() == [0.0] * count


def test_noise_far_above_the_usual_one_is_noticed_without_repetitions():
    """Of 40 flat curves with four times the usual noise; without the estimate 14 have a minimum."""
    one = np.ones(9)
    found = []
    for i in range(40):
        noise = 0.012 * np.random.default_rng(i).standard_normal(9)
        typical = 0.003 * excess_noise(BATCH, noise, one, one, 0.003)
        found.append(measured_minimum(BATCH, noise, typical=typical).batch.status == "ok")
    assert sum(found) <= 2
    smooth = bowl(64.0)
    assert excess_noise(BATCH, smooth, one, one, 0.003) == pytest.approx(1)
    smooth[0] += 2.7  # it hardly reaches the target
    assert excess_noise(BATCH, smooth, one, one, 0.003) == pytest.approx(1)
    assert excess_noise(np.repeat(BATCH, 2), np.repeat(noise, 2), *np.ones((2, 18)), 0.003) == 1


def test_small_batches_that_missed_the_target_have_a_steeper_side():
    """L - L_0 = a S^-1/2 + b/B: none up to B_min = b/(L - L_0) reaches L, B_opt is 3 B_min."""
    best = 21.0
    held = []
    batch = np.repeat(2.0 ** np.arange(2, 8), 2)
    tokens = np.log(batch) - 2 * np.log(np.maximum(1 - best / 3 / batch, 1e-9))
    missed = batch < best / 2
    generator = np.random.default_rng(3)
    off = []
    for _ in range(40):
        value = tokens + 0.02 * generator.standard_normal(12)
        value = np.where(missed, tokens[~missed].max() + 0.5, value)
        found = measured_minimum(batch, value, typical=0.02, censored=missed).batch
        off.append(np.log(found.value / best))
        held.append(found.low <= best <= found.high)
    assert abs(np.mean(off)) < 0.08 and np.mean(held) > 0.85
