"""Best batches where nothing was measured: by vertices, or by the law of losses."""

import dataclasses

import numpy as np
import pytest

from bss.laws.final_loss.elsewhere import LAW, CellOptimum
from bss.laws.fitting.estimate import Alike, BestBatch
from tests.laws.final_loss.known import elsewhere, mean_law, power_of_best
from tests.laws.golden import assert_golden, numbers


@pytest.mark.parametrize("variables", [("params", "tokens"), ("tokens",), ()])
def test_a_power_law_of_best_batches_at_other_sizes(variables):
    law = power_of_best(variables)
    sizes, exponents = {"params": 8e8, "tokens": 1e11}, {"params": 0.1, "tokens": 0.5}
    centres = {"params": 4e8, "tokens": 2e10}
    value, draws = law.at(**sizes)
    grown = sum(exponents[n] * np.log(sizes[n] / centres[n]) for n in variables)
    assert value == pytest.approx(np.log(4e5) + grown)
    assert draws.shape == (9, 9)
    # Nine equally probable parts of a normal distribution, of the misfit that was drawn.
    assert draws[:, 4] == pytest.approx(law.draws[:, :-1] @ [1, *np.log(
        [sizes[n] / centres[n] for n in variables])])  # fmt: skip
    parts = (draws[3] - draws[3, 4]) / law.draws[3, -1]
    np.testing.assert_allclose(parts, -parts[::-1], atol=1e-12)
    np.testing.assert_allclose(parts[5:], [0.282, 0.589, 0.967, 1.593])


def test_a_best_batch_has_what_draws_and_forms_and_all_vertices_may_be_off_by():
    law, far = mean_law(), mean_law((3e9, 4e9))
    ways = {
        "vertices": elsewhere().at(law, 6e8, 9e10, 0.9, 512.0),
        "another level": elsewhere(shared=0.3).at(law, 6e8, 9e10, 0.5, 512.0),
        "one form": elsewhere().at(dataclasses.replace(law, weights=(1.0, 0.0)), 6e8, 9e10, 0.9, 1),
        "no end": elsewhere().at(far, 6e8, 9e10, 0.9, 1e6),
        "of losses": elsewhere(LAW).at(law, 6e8, 9e10, 0.9, 512.0),
        "of losses, without vertices": elsewhere(power=None).at(law, 2e8, 4e9, 0.8, 2e5),
        "of losses, no end": elsewhere(LAW).at(far, 6e8, 9e10, 0.9, 512.0),
    }
    assert ways["of losses, no end"].note == "unidentified: the loss falls to the end of the search"
    assert ways["of losses, no end"].status == "end" and ways["no end"].value
    assert ways["vertices"].evidence.vertices == 6
    assert_golden("final_loss-elsewhere", numbers(ways), rel=1e-6)


def test_batches_as_good_are_none_below_a_sequence():
    spans = Alike(100.0, 900.0, 0.003), Alike(None, None, 0.005), Alike(1.0, 400.0, 0.01)
    best = BestBatch(300.0, 200.0, None, alike=spans).at_least(500.0)
    assert (best.value, best.low, best.high) == (500.0, 500.0, None)
    assert best.alike == (
        Alike(500.0, 900.0, 0.003), Alike(None, None, 0.005), Alike(500.0, 500.0, 0.01)
    )  # fmt: skip


def test_an_optimum_has_its_batches_as_good_and_json_without_numbers_for_keys():
    near, wide = Alike(1.0, 2.0, 0.003), Alike(0.5, 3.0, 0.005)
    at = CellOptimum(1e8, 2e9, BestBatch(1.5, alike=(near, wide)), {1.0: 0.1, 2.0: 0.2})
    assert at.indifference == near and at.wider == wide
    entry = at.encoded({"params": 1e8, "given_up": at.given_up})
    assert entry["given_up"] == [
        {"batch_tokens": 1.0, "loss": 0.1},
        {"batch_tokens": 2.0, "loss": 0.2},
    ]
    assert CellOptimum.decoded(entry) == {"params": 1e8, "given_up": at.given_up}
