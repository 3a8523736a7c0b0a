"""Exponents as effects: the errors of a regression, and of leaving groups out."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import linregress

from bss.contests.scatter import Scatter
from bss.laws.critical.judged import by_values, exponent, over_groups, residuals
from bss.laws.fitting.power import fit_power
from tests.laws.golden import assert_golden, numbers

X = np.array([1.0, 2, 4, 8, 16])
NOISE = np.exp([0.1, -0.2, 0.05, 0.1, -0.05])


def test_an_exponent_has_the_error_of_a_regression():
    y = 3 * X**0.7 * NOISE
    law = fit_power(y, {"tokens": X})
    line: Any = linregress(np.log(X), np.log(y))
    slope, intercept, error = line.slope, line.intercept, line.stderr
    found = exponent(law, Scatter(0.5, 9))
    assert found.estimate == pytest.approx(slope)
    assert found.own and found.pooled
    assert found.own.variance == pytest.approx(error**2)
    assert found.own.freedom == 3
    rest = residuals(law, {"tokens": X}, y)
    np.testing.assert_allclose(rest, np.log(y) - intercept - slope * np.log(X))
    assert found.pooled.variance / 0.5 == pytest.approx(error**2 / (rest @ rest / 3))


def test_errors_of_the_values_are_carried_to_the_exponent():
    law = fit_power(X**0.5, {"tokens": X})
    found = by_values(law, {"tokens": X}, [Scatter(0.09, 4)] * 5)
    logs = np.log(X)
    assert found.variance == pytest.approx(0.09 / np.sum((logs - logs.mean()) ** 2))
    assert 4 < found.freedom <= 20


def test_two_points_have_no_error_of_their_own():
    assert exponent(fit_power(X[:2], {"tokens": X[:2]})).own is None


def test_points_that_share_noise_are_told_by_leaving_their_group_out():
    draw = np.random.default_rng(0)
    size, tokens = np.repeat(2.0 ** np.arange(6), 4), np.tile(2.0 ** np.arange(4), 6)
    groups = np.repeat(np.arange(6), 4).tolist()
    taken, left_out = [], []
    for _ in range(40):
        shared = np.repeat(0.2 * draw.normal(size=6), 4)
        y = tokens**0.4 * np.exp(shared)
        x = {"params": size, "tokens": tokens}
        naive = exponent(fit_power(y, x), weights=(1, 0)).own
        found = over_groups(x, y, groups, (1, 0))
        assert naive and found
        taken.append(naive.variance)
        left_out.append(found.variance)
        assert found.freedom == 5
    truth = 0.2**2 / np.sum((np.arange(6) - 2.5) ** 2) / np.log(2) ** 2
    assert np.mean(left_out) == pytest.approx(truth, rel=0.6)
    assert np.mean(left_out) > truth > 2 * np.mean(taken)


def test_what_is_left_must_identify_the_law():
    x = {"params": np.array([1.0, 8, 8, 8]), "tokens": np.array([1.0, 1, 2, 4])}
    assert over_groups(x, np.ones(4), [0, 1, 1, 2], (1, 0)) is None
    assert over_groups(x, np.ones(4), [0, 0, 1, 1], (1, 0)) is None


def test_effects_keep_their_numbers():
    x = {"params": X, "tokens": np.array([1.0, 7, 2, 9, 4])}
    y = 3 * X**0.7 * NOISE
    both, one = fit_power(y, x), fit_power(y, {"params": X})
    errors = [Scatter(0.01 * (i + 1), i + 2) for i in range(5)]
    effects = {
        "one": exponent(one),
        "both": exponent(both, Scatter(0.5, 9), (1.0, -2.0)),
        "groups": over_groups({"params": X}, y, "aabcc", (1.5,)),
        "two groups": over_groups({"params": X}, y, "aabbb", (1.0,)),
        "values": by_values(one, {"params": X}, errors),
        "rest": residuals(both, x, y),
    }
    assert_golden("fitting-effects", numbers(effects), rel=1e-6)
