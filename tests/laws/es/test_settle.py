"""Whose best batch a fit gives: a law's, or that of the runs' own valley."""

from dataclasses import replace

import numpy as np
import pytest

from bss.laws.es import LAWS
from bss.laws.es.vertices import agreed, asked_for, by_vertices, obeyed, settled
from bss.laws.fitting.estimate import BestBatch, Estimate
from tests.laws.es.known import HYPERBOLAS, hyperbola_fit, target_fit
from tests.laws.golden import assert_golden, numbers
from tests.laws.test_best_batch import valley

VERTEX = BestBatch(10.0, 7.0, 14.0, source="vertex")


@pytest.mark.parametrize(
    ("vertex", "value", "agrees"),
    [
        (VERTEX, 7.0, True),
        (VERTEX, 14.0, True),
        (VERTEX, 6.99, False),
        (VERTEX, 14.01, False),
        (replace(VERTEX, low=None), 0.1, True),
        (replace(VERTEX, high=None), 1e9, True),
        (VERTEX, None, False),
    ],
)
def test_a_law_agrees_within_the_interval_of_the_vertex(vertex, value, agrees):
    best, said = settled(vertex, Estimate(value), "some")
    assert (best.value == value, best.source == "some") == (agrees, agrees)
    assert (best.low, best.high) == (vertex.low, vertex.high)
    assert bool(said) != agrees
    if value is None:
        assert said == (
            "the some law has B_opt none, the runs' own valley 10 (7 – 14), which is given"
        )


@pytest.mark.parametrize("status", ["end", "flat", "identified", "too few", "too wide"])
def test_a_law_that_is_asked_for_is_obeyed_but_at_an_end(status):
    vertex = replace(VERTEX, value=None, status=status, note="why")
    best = obeyed(vertex, Estimate(5.0, 4.0, 6.0), "some")
    if status in ("end", "flat"):
        assert best == replace(vertex, source="some")
    else:
        assert (best.value, best.low, best.high, best.note) == (5.0, 4.0, 6.0, "")
        assert (best.status, best.source) == ("identified", "some")
    wide = obeyed(VERTEX, Estimate(None, 4.0, None, note="wide"), "some")
    assert (wide.status, wide.value, wide.low, wide.note) == ("too wide", None, 4.0, "wide")


def fits():
    """Three targets whose S_opt and intervals are known, by two laws."""
    one = Estimate(3.0, 2.0, 4.0)
    steps = {"S_min": one, "S_opt": one, "E_min": one}
    targets = [target_fit(loss, S_opt=40.0, intervals=steps) for loss in HYPERBOLAS]
    own = [{"B_opt": Estimate(x)} for x in (21.0, 60.0, None)]
    others = [{"B_opt": Estimate(x)} for x in (19.0, None, None)]
    first, second = (
        tuple(replace(at, batches=b) for at, b in zip(targets, batches, strict=True))
        for batches in (own, others)
    )
    fit = hyperbola_fit()
    return [replace(fit, fits=first), replace(fit, fits=second, law=LAWS["piecewise"])]


def valleys():
    known = [replace(valley(3.0 + i), value=9.0 + i, level=0.8) for i in range(3)]
    return dict(zip(HYPERBOLAS, [*known[:2], None], strict=True))


def test_settled_fits_keep_their_numbers():
    first, second = fits()
    results = {
        "one law": agreed([first], valleys()),
        "two laws": agreed([first, second], valleys()),
        "without a law": by_vertices(first, valleys()),
        "own": agreed([replace(hyperbola_fit(), fits=hyperbola_fit().fits[:2])], valleys()),
        "asked for": asked_for(first),
    }
    # At the first target both agree, at the second one is outside, at the third none is told.
    mean = results["two laws"].fits[0].best
    assert mean and mean.value == pytest.approx((21 * 19) ** 0.5)
    assert len(results["two laws"].warnings) == 2
    assert results["one law"].warnings[0].startswith("target 1.8: the hyperbola law has B_opt 60")
    assert_golden("es-settled", numbers(results), rel=1e-6)


def test_a_best_batch_that_is_not_told_has_no_steps():
    first = fits()[0]
    flat = replace(VERTEX, value=None, status="flat", note="unidentified: flat")
    flat_fit = replace(first, fits=tuple(replace(at, vertex=flat) for at in first.fits))
    for at in (*by_vertices(flat_fit, valleys()).fits, *asked_for(flat_fit).fits):
        assert at.S_opt is None and at.best and at.best.value is None
        assert "S_opt" not in at.intervals and "S_min" in at.intervals
    measured = by_vertices(first, valleys()).fits[0]
    assert measured.E_min == pytest.approx(np.exp(9.0) * 128)
    assert measured.S_opt == pytest.approx(np.exp(9.0) / 20)
    error = 0.01 / 3 * 1.2815515655
    assert measured.intervals["E_min"].high == pytest.approx(np.exp(9.0 + error) * 128)
    few = replace(first, fits=(replace(first.fits[0], points=0), *first.fits[1:]))
    assert by_vertices(few, valleys()).fits[0].intervals["E_min"].low == pytest.approx(
        np.exp(9.0 - 3 * error) * 128
    )
