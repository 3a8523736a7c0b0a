import numpy as np
import pytest

from bss.errors import InputError
from bss.laws.es.compare import compare


@pytest.fixture(scope="module")
def of_surface(planted):
    return compare(planted.points(planted.laws["surface"], batches=planted.WIDE))


# The hyperbola wins against the surface in the test of seven batches too.
@pytest.mark.parametrize("law", [pytest.param("hyperbola", marks=pytest.mark.slow), "piecewise"])
def test_left_out_batches_tell_planted_laws_apart(planted, law):
    points = planted.points(planted.laws[law], batches=planted.WIDE)
    assert compare(points).winner == law


# Laws that hold the planted one, or bend as it does, and may so predict as well.
BESIDE = {
    "surface": {"surface, m free", "surface, Adam clock"},
    "hyperbola": {"piecewise", "lopsided valley"},
    "piecewise": set(),
}


@pytest.mark.slow
@pytest.mark.parametrize("law", BESIDE)
def test_the_planted_law_is_chosen_in_most_of_50_trials_and_none_that_is_unlike_it(planted, law):
    level = []
    for seed in range(50):
        generator = np.random.default_rng(seed)
        points = planted.points(planted.laws[law], batches=planted.WIDE, generator=generator)
        level += compare(points).level
    assert level.count(law) >= 40
    assert {*level} <= {law, *BESIDE[law]}


def test_all_laws_predict_the_same_points_and_errors_are_of_the_noise(of_surface):
    table = of_surface.table
    assert of_surface.winner == "surface"
    assert len({entry["points"] for entry in table}) == 1
    best = table[0]
    assert best["law"] == "surface"
    assert best["interior_loss"] < 0.015


def test_seven_batches_leave_the_three_stage_law_unjudged(planted):
    comparison = compare(planted.points(planted.laws["hyperbola"]))
    assert (comparison.winner, comparison.left_out) == ("hyperbola", ("piecewise",))


def test_too_few_batches_and_unknown_laws_are_refused(planted):
    points = planted.points(planted.laws["surface"], batches=(8, 16, 32))
    with pytest.raises(InputError, match="3 batches reach a target; leaving one out needs 4"):
        compare(points)
    with pytest.raises(InputError, match="'cubic' is unknown"):
        compare(points, ["cubic"])
