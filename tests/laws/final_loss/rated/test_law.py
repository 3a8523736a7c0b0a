"""The fitted law as a value: its means, covariances and intervals, against what they stand for."""

import dataclasses

import numpy as np
import pytest

from bss.laws.final_loss.fitted import vertex
from bss.laws.final_loss.points import USES
from bss.laws.final_loss.rated.departure import Departure
from bss.laws.final_loss.rated.forms import RATED
from bss.laws.final_loss.rated.law import RatedLaw
from tests.laws.final_loss.rated.planted import World, points_of
from tests.laws.final_loss.rated.test_forms import law_of

WORLD = World()
WEIGHTS = {"functional-3": 0.3, "bowl": 0.7}
ASKED = (4e8, 2e10, np.array([2e5, 5e5, 1.5e6]), np.array([1e-3, 2e-3, 3e-3]))


@pytest.fixture(scope="module")
def law():
    """Not fitted: two forms, usual ones, and what they miss."""
    table = WORLD.table(octaves=(-1.5, 0.0, 1.5))
    departures = {use: Departure(1 + 0.5 * i, 0.7) for i, use in enumerate(USES)}
    by_use = dict.fromkeys(USES, WEIGHTS)
    thetas = {name: law_of(RATED[name]) for name in WEIGHTS}
    wider = {"inside": 1.2, "beyond": 2.0, "below": 1.0}
    nothing: dict[str, float | None] = {"cell": None, "params": None, "tokens": None}
    return RatedLaw(thetas, by_use, {}, departures, wider, nothing, True, points_of(table))


def test_each_use_has_its_own(law):
    assert [law.use(4e8, D) for D in (2e10, 6.1e10, 1e12, 1e9)] == [
        "inside", "inside", "beyond", "below",
    ]  # fmt: skip
    heavier = law.weights | {"beyond": {"functional-3": 1.0, "bowl": 0.0}}
    other = dataclasses.replace(law, weights=heavier)
    assert other.losses(4e8, 2e10, 5e5, 2e-3) == law.losses(4e8, 2e10, 5e5, 2e-3)
    assert other.losses(4e8, 2e11, 5e5, 2e-3) != law.losses(4e8, 2e11, 5e5, 2e-3)
    assert law.text("inside") == "bowl 70%, functional-3 30%"
    assert other.text("beyond") == "functional-3 100%"
    shaped = law.losses(np.array([[4e8], [2e8]]), np.array([2e10, 6e11]), 5e5, 2e-3)
    assert shaped.shape == (2, 2)
    assert shaped[1, 1] == pytest.approx(law.losses(2e8, 6e11, 5e5, 2e-3), rel=1e-12)


def test_valley_best_and_tuned_agree(law):
    batch, lr, loss = law.valley(4e8, 2e10)
    i, j = np.unravel_index(loss.argmin(), loss.shape)
    best, rate = law.best(4e8, 2e10)
    assert abs(np.log(best / batch[i])) < np.log(batch[1] / batch[0])
    assert abs(np.log(rate / lr[j])) < 2 * np.log(lr[1] / lr[0])
    assert law.tuned(4e8, 2e10, best) <= loss.min() + 1e-4
    around = law.losses(4e8, 2e10, 5e5, law.best_lr(4e8, 2e10, 5e5) * np.array([0.9, 1, 1.1]))
    assert around.argmin() == 1
    # A cell's own noise is that of its best, and grows away from it.
    noise = law.posterior(4e8, 2e10, best, rate * np.array([1.0, 4.0]))[0].noise
    assert noise[0] == pytest.approx(1.2 * 0.005, rel=0.01) and noise[1] > 1.5 * noise[0]


def test_vertex():
    x = np.linspace(-2, 2, 9)
    at = np.array([-1.3, 0.1, 0.77])
    np.testing.assert_allclose(vertex(x, (x - at[:, None]) ** 2), at, atol=1e-12)
    np.testing.assert_array_equal(vertex(x, np.stack([x, -x])), [-2, 2])
