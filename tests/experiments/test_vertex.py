"""The vertex of a parabola in log batch: planted optima, its error, and cells that have none."""

import math

import numpy as np
import pytest

from experiments.critical_batch.best_batch import pooled_scatter, vertex

BATCHES = 32 * 2 ** np.arange(8.0)


def bowl(batch, best=300.0, curvature=0.01):
    return 2.5 + curvature * np.log(batch / best) ** 2


def test_a_parabola_is_recovered_in_any_order():
    shuffled = np.random.default_rng(0).permutation(BATCHES)
    found = vertex(shuffled, bowl(shuffled))
    assert found.batch == pytest.approx(300)
    assert found.scatter == pytest.approx(0, abs=1e-12)
    assert (found.interior, found.freedom) == (True, 2)


def test_the_error_is_that_of_many_repetitions():
    random, sigma = np.random.default_rng(1), 2e-4
    drawn = [vertex(BATCHES, bowl(BATCHES) + sigma * random.normal(size=8)) for _ in range(400)]
    spread = np.std([math.log(one.batch) for one in drawn])
    assert spread == pytest.approx(sigma * vertex(BATCHES, bowl(BATCHES)).leverage, rel=0.15)
    assert pooled_scatter(drawn) == pytest.approx(sigma, rel=0.1)


@pytest.mark.parametrize("best", [20.0, 10_000.0])
def test_a_least_at_an_end_is_not_interior(best):
    assert not vertex(BATCHES, bowl(BATCHES, best)).interior


def test_losses_without_a_minimum_have_no_vertex():
    assert math.isnan(vertex(BATCHES, -bowl(BATCHES)).batch)
    assert math.isnan(vertex(BATCHES[:2], bowl(BATCHES[:2])).batch)
