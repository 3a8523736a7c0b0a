"""Errors of slopes and of statistics over groups."""

import numpy as np
import pytest
from scipy import stats

from bss.points.contrasts import judge
from bss.points.effects import beyond, by_groups, exact, less, slopes


def test_a_slope_has_the_error_of_a_regression():
    x = np.array([1.0, 2, 4, 8, 16])
    y = 3 * x**0.7 * np.exp([0.1, -0.2, 0.05, 0.1, -0.05])
    found = slopes({"a": (x, y), "b": (x, x**2.0), "two": (x[:2], x[:2])})
    line = stats.linregress(np.log(x), np.log(y))
    own, pooled = found["a"].own, found["a"].pooled
    assert own and pooled
    assert found["a"].estimate == pytest.approx(line.slope)
    assert own.variance == pytest.approx(line.stderr**2)
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
