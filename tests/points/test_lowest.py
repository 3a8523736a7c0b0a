"""Where a planted parabola of tokens over batches is lowest, and what is left open."""

import math

import numpy as np
import pandas as pd
import pytest

from bss.points.crossings import Between, Logs, best_batches, parabola_minimum


def curve(least, batches=(1, 2, 4, 8, 16), missed=()):
    """Logs of one seed about log2 of the least, and whether each batch reached the target."""
    tokens = [0.1 * (math.log2(batch) - least) ** 2 for batch in batches]
    met = [batch not in missed for batch in batches]
    return Logs(*(pd.DataFrame([row], columns=list(batches)) for row in (tokens, met)))


@pytest.mark.parametrize(
    ("least", "missed", "place"),
    [
        (2.25, (), (2.25, 2.25, 2.25)),
        (2.25, (2,), (2.25, 2.25, 2.5)),  # 2 is higher yet, so the least lies further right
        (2.25, (8,), (2.0, 1.5, 2.25)),
        (1.75, (2, 8), (2.0, 1.5, 2.5)),
        (0.0, (), (0.0, -math.inf, 0.0)),
        (4.4, (), (4.0, 4.0, math.inf)),
    ],
)
def test_the_lowest_place_of_a_seed(least, missed, place):
    found = best_batches(curve(least, missed=missed))
    assert (found.value[0], found.low[0], found.high[0]) == pytest.approx(place)


def test_a_single_batch_is_open_on_both_sides():
    found = best_batches(curve(1.0, batches=(4,)))
    assert (found.bound, found.reach) == ("unknown", 0.0)


def test_reach_is_the_mean_of_how_far_closed_ends_are():
    found = Between(np.array([2.0, 3.0]), np.array([1.5, 3.0]), np.array([2.25, 4.0]))
    assert (found.reach, found.bound) == (pytest.approx(0.75), "")
    opened = Between(np.array([2.0, 3.0]), np.array([1.5, 3.0]), np.array([2.25, math.inf]))
    assert (opened.reach, opened.bound) == (pytest.approx(0.25), "at least")
    below = Between(np.array([2.0]), np.array([-math.inf]), np.array([2.0]))
    assert below.bound == "at most"


def test_three_points_on_a_line_have_the_lowest_of_them():
    x = np.array([0.0, 1.0, 2.0, 3.0])
    assert parabola_minimum(x, (x - 1.3) ** 2) == pytest.approx(1.3)
    assert parabola_minimum(x, np.array([1.0, 1.0, 1.0, 2.0])) == 0.0
    assert parabola_minimum(x, np.array([2.0, 0.0, 1.0, 3.0])) == pytest.approx(1 + 1 / 6)
    assert parabola_minimum(x, np.array([3.0, 2.0, 1.0, 0.0])) == 3.0
    assert parabola_minimum(x, np.array([1.0, 0.5, 0.5, 0.5])) == pytest.approx(1.5)
