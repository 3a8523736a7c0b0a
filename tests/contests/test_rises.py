"""A rise of B_opt of which some ends are only bounds."""

import pytest

from bss.contests.claims import rises
from bss.points.crossings import Rise

SURE = (2.0, 2.1, 1.9, 2.05)
FLAT = (0.0, 0.01, -0.01, 0.0)


@pytest.mark.parametrize(
    ("doublings", "bound", "verdict"),
    [
        (SURE, "", "shown"),
        (SURE, "at least", "shown"),
        (SURE, "at most", "undecided"),  # it may have risen less
        (SURE, "unknown", "not testable here"),
        (tuple(-x for x in SURE), "at most", "opposite shown"),
        (tuple(-x for x in SURE), "at least", "undecided"),
        (FLAT, "", "undecided"),
        (SURE[:1], "", "not testable here"),
    ],
)
def test_a_bound_shows_only_what_it_bounds(doublings, bound, verdict):
    growths = {"here": Rise(doublings, bound), "there": Rise((0.1, -0.1, 0.05, 0.02), "")}
    made = rises(growths, "points.csv")
    assert made[0].verdict == verdict
    assert made[0].effect.n == len(doublings)


def test_the_side_that_a_bound_leaves_open_has_no_end():
    (one,) = rises({"here": Rise(SURE, "at least")}, "points.csv")
    assert one.condition == "here, at least"
    assert one.effect.low is not None
    assert one.effect.low > 0
    assert one.effect.high is None
