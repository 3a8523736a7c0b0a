"""The fitted law as a value: its means, covariances and intervals, against what they stand for."""

import dataclasses
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from bss.laws.final_loss.fitted import vertex
from bss.laws.final_loss.forms.form import losses
from bss.laws.final_loss.points import USES
from bss.laws.final_loss.rated import law as rated_law
from bss.laws.final_loss.rated.best import drawn
from bss.laws.final_loss.rated.departure import Departure, scatter
from bss.laws.final_loss.rated.forms import RATED
from bss.laws.final_loss.rated.law import Posterior, RatedLaw, slopes_of
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


def test_each_form_with_its_departure_is_a_gaussian_given_the_rows(law, monkeypatch):
    # Parameters as wide as the usual ones would leave no digits of what is computed outright.
    monkeypatch.setattr(rated_law, "prior_of", lambda form: np.full(len(form.names), 4.0))
    law = dataclasses.replace(law)
    points, logs = law.points.design, law.logs(*ASKED)
    noise = np.diag(scatter(law.points.excess, law.points.count) ** 2)
    kernel = law.departures["inside"].covariance
    for one, (name, weight) in zip(law.posterior(*ASKED), WEIGHTS.items(), strict=True):
        form, theta = RATED[name], law.thetas[name]
        at, here = (slopes_of(form, theta, x, points) for x in (points.logs, logs))
        free = np.eye(len(theta)) / 4
        told = np.linalg.inv(kernel(points.logs, points.logs) + noise)
        missed = points.loss - losses(form, theta, points.logs)
        mean = losses(form, theta, logs) + kernel(logs, points.logs) @ told @ missed
        seen = np.linalg.inv(kernel(points.logs, points.logs) + at @ free @ at.T + noise)
        across = kernel(logs, points.logs) + here @ free @ at.T
        whole = kernel(logs, logs) + here @ free @ here.T - across @ seen @ across.T
        np.testing.assert_allclose(one.mean, mean, rtol=1e-9)
        np.testing.assert_allclose(one.covariance, whole * 1.2**2, rtol=1e-6, atol=1e-11)
        assert one.weight == weight and (one.noise > 0).all()
    mixed = sum(one.weight * one.mean for one in law.posterior(*ASKED))
    np.testing.assert_allclose(law.losses(*ASKED), mixed, rtol=1e-12)


def test_predictions_are_those_of_the_mixture(law):
    (first, second), quantile = law.posterior(*ASKED), NormalDist().inv_cdf(0.9)
    mean = 0.3 * first.mean + 0.7 * second.mean
    said: Any = law.predictions(*ASKED, 0.8)
    np.testing.assert_allclose([x.value for x in said], mean)
    parts = [(one.weight, one.covariance.diagonal() + one.noise**2) for one in (first, second)]
    between = 0.3 * (first.mean - mean) ** 2 + 0.7 * (second.mean - mean) ** 2
    spread = np.sqrt(sum(weight * own for weight, own in parts) + between)
    np.testing.assert_allclose([x.high - x.value for x in said], spread * quantile)
    np.testing.assert_allclose([x.value - x.low for x in said], spread * quantile)
    # One asked alone, or with others of another size and use, is the same.
    several: Any = law.predictions(
        np.array([4e8, 4e9, 4e8]), np.array([2e10, 2e11, 2e10]), ASKED[2], ASKED[3], 0.8
    )
    assert several[1].high - several[1].low > 2 * (said[1].high - said[1].low)
    for i in (0, 2):
        assert several[i].value == pytest.approx(said[i].value, rel=1e-12)
        assert several[i].high == pytest.approx(said[i].high, rel=1e-9)


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


def test_draws_are_of_the_mixture():
    covariance = np.array([[4.0, 1.0], [1.0, 1.0]]) * 1e-4
    one, other = (
        Posterior(w, np.full(2, m), covariance, np.zeros(2)) for w, m in ((0.25, 1.0), (0.75, 3.0))
    )
    draws = drawn([one, other], 8000)
    first = draws[:, 0] < 2
    assert len(draws) == 8000 and first.mean() == 0.25
    np.testing.assert_allclose(np.cov(draws[~first].T), covariance, rtol=0.1)
    np.testing.assert_allclose(draws[first].mean(axis=0), 1.0, atol=0.001)
