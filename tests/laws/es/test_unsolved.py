"""What fitting and comparing E(S) make of solutions, which here are none, by its numbers."""

import pytest

from bss.errors import InputError
from bss.laws import fit_es
from bss.laws.es.compare import compare
from bss.laws.fitting.estimate import Options
from tests.laws import unsolved
from tests.laws.es.test_design import table
from tests.laws.golden import assert_golden, numbers

OPTIONS = Options(11, 0.8, 3, 4)
WIDE = (2, 4, 8, 16, 32, 64, 128)


@pytest.fixture(autouse=True)
def _unsolved(monkeypatch):
    monkeypatch.setattr("bss.laws.es.fit.solve", unsolved.solve)
    monkeypatch.setattr("bss.laws.es.compare.solve", unsolved.solve)


@pytest.mark.parametrize("law", ["hyperbola", "surface, m free"])
def test_a_law_that_is_asked_for_keeps_its_numbers(law):
    fit = fit_es(table((2, 4, 8, 16), targets=(2.0, 1.7), seeds=1), law, options=OPTIONS)
    assert fit.comparison is None and fit.choice == "asked for"
    assert_golden(f"es-unsolved-{law}", numbers(fit), rel=1e-5)


def test_few_batches_reach_a_target():
    points = table((4, 8, 16, 32), targets=(2.0, 1.7), seeds=1)
    points.loc[(points["target_loss"] == 1.7) & (points["batch"] < 32), "reached"] = False
    fit = fit_es(points, "hyperbola", options=OPTIONS)
    assert fit.at(1.7).status == (
        "unidentified: 1 batches reach this loss, the hyperbola law needs 3"
    )
    assert fit.at(1.7).batches["B_crit"].value is None and fit.at(2.0).S_min is not None
    assert fit_es(points, "hyperbola").resamples == 500
    few = table((4, 8, 16), targets=(2.0, 1.9), seeds=1)
    with pytest.raises(InputError, match="points: 5 for the 5 parameters of the surface, m free l"):
        fit_es(few, "surface, m free", options=OPTIONS)


def test_comparisons_keep_their_numbers():
    points = table(WIDE, targets=(2.0, 1.9), seeds=1).assign(reached=True)
    several = compare(points, ["surface", "hyperbola", "surface, m free"])
    few = compare(points.loc[points["batch"] > 4], ["hyperbola", "surface"])
    assert several.error is not None and few.error is None
    one = points.loc[points["target_loss"] == 2.0]
    alone = compare(one, ["surface", "hyperbola"])
    assert alone.left_out == ("surface",)
    with pytest.raises(InputError, match="points: one target is reached; laws of all targets need"):
        compare(one, ["surface"])
    assert_golden("es-unsolved-compared", numbers([several, few, alone]), rel=1e-5)
