"""Errors of slopes and of statistics over groups."""

import itertools

import numpy as np
import pytest

from bss.contests.contrasts import Effect, judge
from bss.contests.effects import (
    beyond,
    by_groups,
    error_of_differences,
    exact,
    less,
    slopes,
    weakest,
)
from bss.contests.scatter import Scatter


def test_a_slope_has_the_error_of_a_regression():
    x = np.array([1.0, 2, 4, 8, 16])
    y = 3 * x**0.7 * np.exp([0.1, -0.2, 0.05, 0.1, -0.05])
    found = slopes({"a": (x, y), "b": (x, x**2.0), "two": (x[:2], x[:2])})
    (value, _), errors = np.polyfit(np.log(x), np.log(y), 1, cov=True)
    own, pooled = found["a"].own, found["a"].pooled
    assert own and pooled
    assert found["a"].estimate == pytest.approx(value)
    assert own.variance == pytest.approx(errors[0, 0])
    # Pooled with a straight line of as many points, the scatter is half.
    assert pooled.variance == pytest.approx(own.variance / 2)
    assert (own.freedom, pooled.freedom) == (3, 6)
    assert found["two"].estimate == pytest.approx(1)
    assert found["two"].own is None


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = np.random.default_rng(1).normal(size=40)
    found = by_groups(lambda w: float(w @ values / w.sum()), range(40))
    own, pooled = found.own, found.pooled
    assert own and pooled
    assert own.variance == pytest.approx(np.var(values, ddof=1) / 40)
    assert pooled.variance == pytest.approx(own.variance, rel=0.15)
    assert (own.freedom, pooled.freedom) == (39, 39)
    # Rows that come in groups of four are no forty: the error doubles.
    repeated = np.repeat(values[:10], 4)
    grouped = by_groups(lambda w: float(w @ repeated / w.sum()), np.repeat(range(10), 4).tolist())
    assert grouped.n == 10
    assert grouped.own
    assert grouped.own.variance == pytest.approx(np.var(values[:10], ddof=1) / 10)
    assert by_groups(lambda w: 1.0, ["a", "b"]).own is None


def test_computed_values_are_judged_without_chance():
    found = judge({"below": exact(-0.1), "above": exact(0.2), "level": exact(0.0)})
    assert [one.sign for one in found.values()] == [-1, 1, 0]
    assert less(exact(0.7), 1).estimate == pytest.approx(-0.3)
    assert beyond(exact(-0.76), -0.75, 0.03).estimate == pytest.approx(-0.02)


def test_an_error_of_differences_is_that_of_all_pairs():
    rng = np.random.default_rng(2)
    losses, said = rng.normal(size=(2, 12))
    pairs = list(itertools.combinations(range(12), 2))
    spread, error = (
        np.sqrt(np.mean([(x[i] - x[j]) ** 2 for i, j in pairs])) for x in (losses, said - losses)
    )
    ratio = error_of_differences(losses, said)
    assert ratio(np.ones(12)) == pytest.approx(error / spread)
    # A prediction that is off by a constant has no error of differences, a constant one has all.
    assert error_of_differences(losses, losses + 1)(np.ones(12)) == pytest.approx(0, abs=1e-7)
    assert error_of_differences(losses, np.full(12, 3.0))(np.ones(12)) == pytest.approx(1)
    # A run that counts twice is a run that is there twice.
    twice = error_of_differences(np.append(losses, losses[3]), np.append(said, said[3]))
    assert ratio(1.0 + (np.arange(12) == 3)) == pytest.approx(twice(np.ones(13)))


def test_of_a_family_the_least_sure_is_told():
    sure, unsure = (Effect(1.0, 5, Scatter(v, 4), Scatter(v, 20)) for v in (0.01, 0.5))
    assert weakest({"a": sure, "b": unsure}).p == judge({"a": sure, "b": unsure})["b"].p
    assert weakest({"a": sure, "c": sure}).sign == 1
