import math

import numpy as np
import pytest

from bss.points.batch_means import BatchMeans
from bss.points.valley import heights, valleys

BATCH = 2.0 ** np.arange(7)


def valley_of(value, batch=BATCH, **settings):
    return valleys([BatchMeans.of_runs(batch, value, **settings)])[0]


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


@pytest.mark.parametrize("height", [5, 30, 1000])
def test_a_wall_closes_its_side_however_high_it_is(height):
    """As of a smallest batch that took many times the tokens of the next."""
    tokens = np.log([3, 1, 1.3, 2.2, 4, 8])
    near = valley_of(tokens, BATCH[:6], tokens=True, typical=0.015)
    tokens[0] = np.log(height)
    far = valley_of(tokens, BATCH[:6], tokens=True, typical=0.015)
    assert far.status == near.status == "identified"
    assert far.ends == near.ends == (1, 32)
    assert near.interval[0] < far.batch < near.interval[1]


@pytest.mark.parametrize(("above", "end"), [(0.5, 32.0), (2, 64.0)])
def test_a_bound_tells_of_an_end_when_it_is_a_scatter_above_the_least(above, end):
    losses = quartic(8.0) + 0.004 * np.random.default_rng(0).standard_normal(7)
    bound = BATCH == 64
    scatter = 0.0026
    least = losses[~bound].min()
    found = valley_of(np.where(bound, least + above * scatter, losses), bound=bound)
    assert found.scatter == pytest.approx(scatter, rel=0.02)
    assert found.ends == (1.0, end)


def test_one_outlier_is_told_and_does_not_decide():
    clean = [quartic(8.0) + 0.001 * np.random.default_rng(i).standard_normal(7) for i in range(6)]
    spoiled = [clean[0] + 0.06 * (BATCH == 32), *clean[1:]]
    plain, found = (
        valleys([BatchMeans.of_runs(BATCH, y) for y in set_]) for set_ in (clean, spoiled)
    )
    assert np.argmax(found[0].outlier) == 5 and found[0].outlier[5] > 0.9
    assert max(at.outlier.max() for at in plain) < 0.5
    assert abs(math.log(found[0].batch / plain[0].batch)) < 0.3


def test_means_are_of_runs_of_one_batch_less_what_seeds_share():
    values = np.array([1.0, 2.0, 1.5, 2.5])
    found = BatchMeans.of_runs(
        np.array([4, 8, 4, 8]), values, seed=np.array([0, 0, 1, 1]), bound=np.zeros(4, bool)
    )
    assert found.batch.tolist() == [4, 8] and found.value.tolist() == pytest.approx([1.25, 2.25])
    assert (found.squares, found.freedom) == (pytest.approx(0.0), 1)


SEEDS = {
    "a seed per run": lambda i, batch: i,
    "seeds shared within groups of batches": lambda i, batch: 10 * (batch > 32) + i % 3,
}


@pytest.mark.parametrize("seed_of", SEEDS.values(), ids=SEEDS)
@pytest.mark.parametrize("runs", [[1] * 5, [2, 1, 2, 2, 1], [3, 3, 1, 1, 1]], ids=str)
def test_seeds_that_do_not_connect_batches_are_repetitions(seed_of, runs):
    batch = np.repeat(BATCH[2:], runs)  # tokens only rise with the batch
    value = np.log(3.5e8 + 6e6 * batch) + 0.01 * np.resize([1, -1], len(batch))
    seed = np.array([seed_of(i, size) for i, size in enumerate(batch)])
    found = BatchMeans.of_runs(batch, value, seed=seed, tokens=True)
    plain = BatchMeans.of_runs(batch, value, tokens=True)
    np.testing.assert_allclose(found.value, [value[batch == size].mean() for size in BATCH[2:]])
    assert (found.squares, found.freedom) == (plain.squares, plain.freedom)
    assert found.freedom == sum(runs) - 5
    settings = {"seed": seed, "tokens": True, "typical": 0.01}
    assert valley_of(value, batch, **settings).status == "end"


def test_seeds_that_connect_all_batches_are_taken_out_of_unequal_runs():
    batch, seed = np.array([4, 4, 8, 8, 16]), np.array([0, 1, 1, 2, 2])
    value = np.log(batch) + 5.0 * seed
    found = BatchMeans.of_runs(batch, value, seed=seed)
    np.testing.assert_allclose(np.diff(found.value), np.log(2))
    assert (found.squares, found.freedom) == (pytest.approx(0.0), 0)
    unbound = np.append(value, 99.0)  # a run that missed its target connects nothing
    found = BatchMeans.of_runs(
        np.append(batch, 32), unbound, seed=np.append(seed, 7), bound=np.arange(6) == 5
    )
    np.testing.assert_allclose(np.diff(found.value)[:2], np.log(2))
    assert found.value[3] == 99.0 and found.bound.tolist() == [False] * 3 + [True]


def test_heights_are_least_at_the_best_batch_and_as_steep_as_told():
    x = np.linspace(-3, 3, 601)[None]
    assert (len(heights(x)[0]), len(heights(x, tokens=True)[0])) == (36 + 15, 30 + 15)
    for tokens in (False, True):
        phi = heights(x, tokens)[0]
        assert (np.abs(x[0, phi.argmin(axis=1)]) < 1e-9).all()
        assert phi.min(axis=1) == pytest.approx(0, abs=1e-12)
        falls = np.log(phi[:-15, [0, -1]] / phi[:-15, [100, -101]])  # over one e-fold, far out
        assert falls[:, 0].max() == pytest.approx(2.7, rel=0.01)
        assert falls[:, 1].max() == pytest.approx(1.0 if tokens else 2.7, abs=0.3)
        # x²/(1 + |x|/w), a third or three times as high on one side: w = 1/2 first, 8 last
        assert phi[-15, [200, 400]] == pytest.approx([3 / 3, 1 / 3 / 3])
        assert phi[-1, [200, 400]] == pytest.approx([8 / 9 / 3, 3 * 8 / 9])
