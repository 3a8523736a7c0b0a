"""Where the best batch lies: planted inside, planted at the edge, and tied."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bss.contests.interior import positions
from bss.errors import InputError

BATCHES = [1, 2, 4, 8, 16, 32]
INSIDE = [0.014, 0.0, 0.004, 0.03, 0.1, 0.2]
EDGE = [0.0, 0.003, 0.02, 0.05, 0.1, 0.2]


def table(means, seeds=10, scatter=0.004, draw=0):
    """Losses [batch, seed]: a mean for each batch, a seed's own level, and scatter."""
    rng = np.random.default_rng(draw)
    noise = scatter * rng.normal(size=(len(means), seeds)) + 0.02 * rng.normal(size=seeds)
    return pd.DataFrame(1.8 + np.array(means)[:, None] + noise, index=BATCHES[: len(means)])


def test_an_optimum_inside_and_one_at_the_edge_are_told_apart():
    found = positions({"inside": table(INSIDE), "edge": table(EDGE)}, {"inside": 2, "edge": 2})
    assert (found["inside"].verdict, found["inside"].best) == ("interior", 2)
    assert found["inside"].smallest_above == pytest.approx(0.014, abs=0.004)
    assert found["inside"].largest_above == pytest.approx(0.2, abs=0.004)
    assert (found["edge"].verdict, found["edge"].best) == ("edge", 1)
    assert found["edge"].p_adjusted > 0.5


def test_a_tie_at_the_smallest_batch_is_an_edge_and_is_rarely_called_interior():
    tie = [0.0, 0.0, 0.01, 0.05, 0.1, 0.2]
    found = [positions({0: table(tie, draw=draw)}, {0: 2})[0].verdict for draw in range(80)]
    assert found.count("interior") <= 0.1 * 80
    assert found.count("edge") >= 0.85 * 80


def test_both_ends_must_be_worse():
    falling = table([0.05, 0.03, 0.02, 0.01, 0.005, 0.0])
    assert positions({0: falling}, {0: 16})[0].verdict == "undecided"


def test_more_tables_make_it_harder():
    weak = table([0.006, 0.0, 0.01, 0.05, 0.1, 0.2], scatter=0.006, draw=3)
    alone = positions({0: weak}, {0: 2})[0]
    among = positions(dict.fromkeys(range(6), weak), dict.fromkeys(range(6), 2))[0]
    assert alone.p == among.p and among.p_adjusted == pytest.approx(min(1, 6 * alone.p))


def test_an_inner_batch_at_an_end_is_refused():
    with pytest.raises(InputError, match="batch 1 of 0 is not between 1 and 32"):
        positions({0: table(EDGE)}, {0: 1})


def test_a_planted_table_keeps_its_numbers():
    rows = [[0.02, 0.03, 0.05], [0.0, 0.01, 0.02], [0.005, 0.0, 0.03], [0.1, 0.15, 0.12]]
    losses = pd.DataFrame(np.array(rows) + 2, index=[1, 2, 4, 8])
    found = positions({"a": losses.iloc[::-1], "b": losses + 1}, {"a": 2, "b": 4})
    one, other = found["a"], found["b"]
    assert (one.best, one.inner, one.n, one.verdict) == (2, 2, 3, "interior")
    assert one.smallest_above == pytest.approx(0.07 / 3)
    assert one.largest_above == pytest.approx(0.34 / 3)
    smallest = stats.ttest_rel(rows[0], rows[1], alternative="greater").pvalue
    largest = stats.ttest_rel(rows[3], rows[1], alternative="greater").pvalue
    assert one.p == pytest.approx(max(smallest, largest))
    assert one.p_adjusted == pytest.approx(2 * one.p)
    assert other.p == pytest.approx(
        max(stats.ttest_rel(rows[i], rows[2], alternative="greater").pvalue for i in (0, 3))
    )
    alone = positions({"a": losses}, {"a": 2})["a"]
    assert alone.p == alone.p_adjusted == one.p
    three = losses.iloc[:3]
    assert positions({0: three}, {0: 2})[0].largest_above == pytest.approx(0.005 / 3)
    for inner in (1, 4, 3):
        with pytest.raises(InputError, match=rf"batch {inner} of 0 .* 1 and 4; choose .*\[2\]"):
            positions({0: three}, {0: inner})


def test_it_is_an_edge_where_no_other_is_lower_by_its_own_test():
    """Of two that are lower on the mean, one is surely so or none is."""
    noise = np.array([[0.0, 0.02, -0.02], [0.03, -0.03, 0.0], [0.0, -0.03, 0.03]])
    unsure = pd.DataFrame(2 + noise + [[0.0], [-0.001], [0.1]], index=[1, 2, 4])
    assert positions({0: unsure}, {0: 2})[0].verdict == "edge"
    sure = pd.DataFrame(2 + 0.01 * noise + [[0.0], [-0.1], [-0.1]], index=[1, 2, 4])
    assert positions({0: sure}, {0: 2})[0].verdict == "undecided"
