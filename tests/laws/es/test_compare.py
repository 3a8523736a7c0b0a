from collections import Counter, namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

from bss.errors import InputError
from bss.laws.es.compare import compare
from bss.laws.es.law import PerTarget


@pytest.fixture(scope="module")
def of_surface(planted):
    points = planted.points(planted.laws["surface"], batches=planted.WIDE)
    return compare(points, ["hyperbola", "piecewise", "surface"])


# Laws that hold the planted one, or bend as it does, and may so predict as well.
BESIDE = {
    "surface": {"surface, m free", "surface, Adam clock"},
    "hyperbola": {"piecewise", "asymmetric"},
    "piecewise": set(),
}


@pytest.mark.slow
@pytest.mark.parametrize("law", BESIDE)
def test_no_law_is_chosen_as_often_as_the_planted_one_and_none_unlike_it(planted, law):
    winners = []
    for seed in range(6):
        generator = np.random.default_rng(seed)
        points = planted.points(planted.laws[law], batches=planted.WIDE, generator=generator)
        winners.append(compare(points).winner)
    assert Counter(winners).most_common(1)[0][0] == law
    assert {*winners} <= {law, *BESIDE[law]}


@pytest.mark.slow
def test_all_laws_predict_the_same_points_and_errors_are_of_the_noise(of_surface):
    table = of_surface.table
    assert of_surface.winner == "surface"
    assert len({entry["points"] for entry in table}) == 1
    best = table[0]
    assert best["law"] == "surface"
    assert best["interior_loss"] < 0.015


@pytest.mark.slow
def test_seven_batches_leave_the_three_stage_law_unjudged(planted):
    comparison = compare(planted.points(planted.laws["hyperbola"]))
    assert (comparison.winner, comparison.excluded) == ("hyperbola", ("piecewise",))


def test_too_few_batches_and_unknown_laws_are_refused(planted):
    points = planted.points(planted.laws["surface"], batches=(8, 16, 32))
    with pytest.raises(InputError, match="3 batches reach a target; leaving one out needs 4"):
        compare(points)
    with pytest.raises(InputError, match="'cubic' is unknown"):
        compare(points, ["cubic"])


@dataclass(frozen=True)
class Valley(PerTarget):
    parameters, units = namedtuple("Parameters", "E_min B_opt"), ((1, 0), (0, 1))
    batches, least = ("B_opt",), 3
    starts, lower, upper = ((0.0, 0.0), (0.0, 2.0)), (-5.0, -5.0), (5.0, 5.0)

    def sequences(self, p, batch, target=None):
        return p.E_min * (batch / p.B_opt + p.B_opt / batch) / 2

    def quantities(self, p, target=None):
        S_opt = p.E_min / p.B_opt
        return {"S_min": S_opt / 2, "E_min": p.E_min, "S_opt": S_opt, "B_opt": p.B_opt}


@dataclass(frozen=True)
class Loose(Valley):
    """The same with a parameter that does nothing."""

    parameters = namedtuple("Parameters", "E_min B_opt idle")
    units, least = ((1, 0), (0, 1), (0, 0)), 3
    starts = ((0.0, 0.0, 0.0), (0.0, 2.0, 0.0))
    lower, upper = (-5.0, -5.0, -1.0), (5.0, 5.0, 1.0)


@pytest.mark.slow
def test_of_laws_that_tie_the_one_of_fewest_parameters_wins(planted):
    points = planted.points(planted.laws["hyperbola"])
    told = compare(points, [Loose("loose"), Valley("valley")])
    assert told.winner == "valley"
