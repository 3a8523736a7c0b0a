"""The one test of runs to come: how often it errs, and what it sees."""

import numpy as np
import pandas as pd
import pytest

from bss.contests.moderated import moderated, prior, shrunk
from bss.contests.scatter import Scatter
from bss.errors import InputError

SWITCH = (0.0088, 0.0048, 0.004, 0.0072, 0.0069, 0.0076, 0.0077, 0.0065, 0.0028, 0.0083)
"""Scatter over seeds of the contenders of results/second_moment/switch, constant rate, in nats."""


def study(draw, deviations, seeds=8, effect=0.0):
    """Losses of equal contenders but for the first, with what a seed does to all."""
    noise = np.array(deviations)[:, None] * draw.standard_normal((len(deviations), seeds))
    noise[0] -= effect
    level = 1.6 + 0.02 * draw.standard_normal(seeds)
    return pd.DataFrame(noise + level, [f"c{i}" for i in range(len(deviations))])


@pytest.mark.parametrize("count", [1, 3])
def test_of_null_studies_few_show_anything(count):
    """Fifteen hundred, so that the rate is known to 0.6%: of 1,000 it is within 1.4% of it."""
    draw, shown, studies = np.random.default_rng(0), 0, 1500
    for _ in range(studies):
        losses = study(draw, draw.permutation(SWITCH))
        pairs = [(f"c{i}", "c9") for i in range(count)]
        shown += any(one.sign for one in moderated(losses, pairs).values())
    print(f"{count} contrasts: {shown / studies:.1%} of {studies:,} null studies show something")
    assert 0.02 <= shown / studies <= 0.065


@pytest.mark.parametrize("deviation", [0.002, 0.004, 0.006, 0.008, 0.0096])
def test_a_planted_hundredth_is_shown_with_eight_seeds(deviation):
    """Deviations are of a paired difference, as those of `switch` are told."""
    draw = np.random.default_rng(1)
    each = np.full(10, deviation / np.sqrt(2))
    found = [moderated(study(draw, each, effect=0.01), [("c0", "c1")]) for _ in range(300)]
    shown = np.mean([one["c0", "c1"].sign < 0 for one in found])
    print(f"scatter {deviation}: shown in {shown:.0%}")
    assert shown >= (0.8 if deviation <= 0.008 else 0.7)


def test_a_table_without_a_typical_variance_leaves_the_own():
    own = Scatter(4.0, 3)
    assert shrunk(own, prior(pd.DataFrame([[1.0, 2.0], [2.0, 1.0]])), 2) == own
    assert shrunk(own, Scatter(1.0, np.inf), 5) == Scatter(1.0, 12)
    assert shrunk(own, Scatter(1.0, 3.0), 5) == Scatter(2.5, 6.0)
    assert shrunk(own, Scatter(1.0, 30.0), 3).freedom == 6


def test_the_prior_is_that_of_the_planted_variances():
    """Variances drawn from a scaled inverse chi squared have its freedom and its scale."""
    draw = np.random.default_rng(2)
    deviations = 0.01 * np.sqrt(10 / draw.chisquare(10, size=4000))
    typical = prior(study(draw, deviations, seeds=6))
    assert typical.freedom == pytest.approx(10, rel=0.15)
    assert typical.variance == pytest.approx(1e-4, rel=0.05)
    alike = prior(study(draw, np.full(200, 0.01), seeds=6))
    assert alike.freedom > 50


def test_seeds_that_a_pair_does_not_share_are_left_out_and_one_is_refused():
    losses = study(np.random.default_rng(3), SWITCH)
    losses.loc["c0", [0, 1]] = np.nan
    one = moderated(losses, [("c0", "c1")])["c0", "c1"]
    assert (one.n, one.pooled_p, one.p == one.p_adjusted) == (6, None, True)
    losses.loc["c0", 2:] = np.nan
    with pytest.raises(InputError, match="c0 and c1: 0 shared seeds; train 2 or more of each"):
        moderated(losses, [("c0", "c1")])
