"""A best batch of one valley: its value, or what bounds are left, by hand."""

import numpy as np
import pytest

from bss.laws.fitting.estimate import Alike, BestBatch, Estimate, of_valley, sure
from bss.points.valley import Valley

GRID = np.log(2.0) * np.linspace(-3, 9, 241)  # an eighth of the smallest batch to 8 times the last


def valley(best, *, spread=0.1, depth=0.05, scatter=0.01, least=8.0):
    """A parabola about log2 of the best batch; measured from 1 to 64."""
    weight = np.exp(-0.5 * ((GRID / np.log(2) - best) / spread) ** 2)
    curve = 0.01 * (GRID / np.log(2) - best) ** 2
    return Valley(
        GRID, weight / weight.sum(), (1.0, 64.0), least, 2.5, depth, scatter, "seeds",
        curve - curve.min(), np.zeros(7), np.zeros(7), 0.9,
    )  # fmt: skip


def test_a_best_batch_inside_has_its_interval_and_what_is_as_good():
    found = of_valley(valley(3.0), rises=(0.01, 0.1))
    assert found.status == "identified" and found.source == "vertex" and not found.note
    assert found.value == pytest.approx(8, rel=1e-6)
    half = 0.1 * 1.6449
    assert (found.low, found.high) == pytest.approx((8 / 2**half, 8 * 2**half), rel=1e-2)
    near, far = found.alike
    assert near.rise == 0.01
    assert (near.low, near.high) == pytest.approx((4, 16))
    assert far == Alike(None, None, 0.1)  # from 2^-0.2 and 2^6.2, beyond both ends
    evidence = found.evidence
    assert (evidence.vertices, evidence.depth, evidence.scatter) == (1, 0.05, 0.01)
    assert found.encoded({"value": 1}) == {"value": 1}


@pytest.mark.parametrize(
    ("best", "least", "low", "high", "says"),
    [
        (-1.0, 1.0, None, 0.5 * 2**0.16449, "smallest batch measured: B_opt ≤ 0.564 tokens"),
        (7.0, 64.0, 128 / 2**0.16449, None, "largest batch measured: B_opt ≥ 114 tokens"),
    ],
)
def test_one_beyond_an_end_is_bounded_on_the_other_side(best, least, low, high, says):
    found = of_valley(valley(best, least=least), unit="tokens")
    assert (found.status, found.value, found.evidence.vertices) == ("end", None, 0)
    assert found.note.endswith(says)
    for end, wanted in ((found.low, low), (found.high, high)):
        assert end == (wanted and pytest.approx(wanted, rel=1e-2))


def test_a_flat_valley_has_only_the_ends_that_lie_inside():
    found = of_valley(valley(3.0, depth=0.005))
    assert found.status == "flat" and found.value is None
    assert found.low and found.high
    assert "rises by 0.005, the scatter is 0.01" in found.note
    wide = of_valley(valley(3.0, depth=0.005, spread=3.0))
    assert (wide.low, wide.high) == (None, None)


def test_an_interval_too_wide_to_use_is_no_value():
    grid = valley(3.0, spread=1.1)
    found = of_valley(grid)
    assert (grid.status, found.status) == ("identified", "too wide")
    assert found.value is None and found.low and found.high


def test_a_batch_whose_interval_identifies_nothing_has_bounds_of_a_sequence_or_more():
    wide = sure(Estimate(4.4, 3.8e-05, 7.2))
    assert (wide.value, wide.low, wide.high) == (None, None, 7.2) and "factor of 10" in wide.note
    assert sure(Estimate(4.4, 4.0, 45.0)).low == 4.0
    narrow = Estimate(4.4, 3.8, 7.2)
    assert sure(narrow) is narrow
    below = of_valley(valley(-1.0, least=1.0), least=1.0)
    assert (below.value, below.high) == (None, 1.0) and "≤ 1 sequences" in below.note


def test_batches_as_good_hold_the_best_one_or_are_not_told():
    spans = Alike(4, 16, 0.01), Alike(9, None, 0.1)
    assert BestBatch(8.0, 6.0, 10.0, alike=spans).alike == spans[:1]
    none = BestBatch(8.0, 6.0, 10.0, alike=spans).unknown("flat", "it is")
    assert none.alike == () and none.within(0.01) is None and none.why == "it is"
    clipped = BestBatch(3.0, 0.5, 9.0, alike=(Alike(0.2, 16, 0.01),)).at_least(1.0)
    assert (clipped.low, clipped.within(0.01)) == (1.0, Alike(1.0, 16, 0.01))
