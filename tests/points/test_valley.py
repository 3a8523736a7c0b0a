import math

import numpy as np
import pytest

from bss.points.valley import Measured, valleys

BATCH = 2.0 ** np.arange(7)


def valley_of(value, batch=BATCH, **settings):
    return valleys([Measured.of_runs(batch, value, **settings)])[0]


def quartic(best, batch=BATCH):
    """A valley that is none of the forms: steeper above its least than below."""
    x = np.log(batch / best)
    return 2.5 + 0.01 * x**2 + 0.002 * x**3 * (x > 0)


def test_the_least_of_another_form_lies_in_the_interval():
    noise = 0.001 * np.random.default_rng(0).standard_normal(7)
    for best in (5.0, 8.0, 12.0):
        found = valley_of(quartic(best) + noise)
        low, high = found.interval
        assert found.status == "identified"
        assert low < best < high < 2.5 * low
        assert found.batch == pytest.approx(best, rel=0.25)


def test_logs_of_tokens_have_a_valley_whatever_their_unit():
    batch = np.tile(BATCH, 2)
    tokens = (batch + 10) * (1 + (4 / batch) ** 1.2)
    value = np.log(tokens) + 0.02 * np.random.default_rng(1).standard_normal(14)
    best = BATCH[0] * np.exp(np.linspace(0, 4, 4001))
    best = best[np.argmin((best + 10) * (1 + (4 / best) ** 1.2))]
    seed = np.repeat([0, 1], 7)
    found = valley_of(value, batch, seed=seed, tokens=True, typical=0.03)
    again = valley_of(value + 7, batch, seed=seed, tokens=True, typical=0.03)
    assert found.interval[0] < best < found.interval[1]
    assert found.source == "seeds"
    assert again.batch == pytest.approx(found.batch)
    assert again.value == pytest.approx(found.value + 7)


@pytest.mark.parametrize("sign", [1, -1])
def test_losses_that_only_fall_have_an_end(sign):
    found = valley_of(2.5 + sign * 0.02 * np.log(BATCH))
    assert found.status == "end"
    assert (found.below if sign > 0 else found.above) > 0.5


def test_scatter_alone_is_flat():
    noise = 0.004 * np.random.default_rng(3).standard_normal(7)
    assert valley_of(2.5 + noise).status in ("flat", "end")
    assert valley_of(2.5 + 0 * noise + np.resize([0.004, -0.004], 7)).status == "flat"


def test_a_run_that_missed_its_target_closes_its_side():
    tokens = np.log((BATCH + 10) * (1 + (4 / BATCH) ** 1.2))
    without = valley_of(tokens[2:], BATCH[2:], tokens=True, typical=0.03)
    bound = np.arange(7) < 2
    found = valley_of(np.where(bound, 3.6, tokens), bound=bound, tokens=True, typical=0.03)
    assert found.ends[0] == 1.0 and without.ends[0] == 4.0
    assert found.below < without.below


def test_one_outlier_is_told_and_does_not_decide():
    clean = [quartic(8.0) + 0.001 * np.random.default_rng(i).standard_normal(7) for i in range(6)]
    spoiled = [clean[0] + 0.06 * (BATCH == 32), *clean[1:]]
    plain, found = (
        valleys([Measured.of_runs(BATCH, y) for y in set_]) for set_ in (clean, spoiled)
    )
    assert np.argmax(found[0].outlier) == 5 and found[0].outlier[5] > 0.9
    assert max(at.outlier.max() for at in plain) < 0.5
    assert abs(math.log(found[0].batch / plain[0].batch)) < 0.3


def test_means_are_of_runs_of_one_batch_less_what_seeds_share():
    values = np.array([1.0, 2.0, 1.5, 2.5])
    found = Measured.of_runs(
        np.array([4, 8, 4, 8]), values, seed=np.array([0, 0, 1, 1]), bound=np.zeros(4, bool)
    )
    assert found.batch.tolist() == [4, 8] and found.value.tolist() == pytest.approx([1.25, 2.25])
    assert (found.squares, found.freedom) == (pytest.approx(0.0), 1)
