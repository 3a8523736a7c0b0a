"""Pools of residuals that agree, and the errors of sums."""

import numpy as np
import pytest

from bss.contests.contrasts import Effect
from bss.contests.effects import apart
from bss.contests.scatter import Scatter, scaled, shared, summed


def test_residuals_that_agree_are_pooled_and_a_wild_group_is_not():
    draw = np.random.default_rng(0)
    groups = {name: draw.normal(size=12) for name in "abc"} | {"wild": 30 * draw.normal(size=12)}
    found = shared(groups, lost=2)
    assert found["a"] == found["b"] == found["c"]
    assert found["a"].freedom == 30
    squares = sum(float(groups[name] @ groups[name]) for name in "abc")
    assert found["a"].variance == pytest.approx(squares / 30)
    assert found["wild"] == Scatter(float(groups["wild"] @ groups["wild"]) / 10, 10)
    assert shared({"two": np.array([1.0, -1])}, lost=2) == {}


def test_of_two_that_disagree_nobody_is_the_wild_one():
    draw = np.random.default_rng(0)
    found = shared({"a": draw.normal(size=12), "b": 30 * draw.normal(size=12)})
    assert found["a"] == found["b"] and found["a"].freedom == 22


def test_a_sum_of_independent_errors_gains_freedom_and_one_pool_does_not():
    parts = [Scatter(2.0, 4), Scatter(2.0, 4)]
    found = summed(parts)
    assert (found.variance, found.freedom) == pytest.approx((4.0, 8))
    assert summed(parts, one_pool=True) == Scatter(4.0, 4)
    assert scaled(parts[0], 3) == Scatter(6.0, 4)
    assert scaled(None, 3) is None


def test_a_difference_has_errors_only_where_both_have():
    one = Effect(0.5, 4, Scatter(1.0, 2), Scatter(1.0, 6))
    found = apart(one, Effect(0.2, 5, Scatter(1.0, 2), None))
    assert found.estimate == pytest.approx(0.3)
    assert found.n == 4
    assert found.own
    assert (found.own.variance, found.own.freedom) == pytest.approx((2.0, 4))
    assert found.pooled is None
