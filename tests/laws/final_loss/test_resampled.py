"""The wild bootstrap of a form, and what is said of its parameters."""

import numpy as np
import pytest

from bss.laws.final_loss.forms import VALLEY
from bss.laws.final_loss.solved import best_fit, with_draws
from bss.laws.fitting.estimate import Options
from bss.laws.fitting.solve import Solution
from tests.laws.final_loss.forms.test_starts import one_cell
from tests.laws.golden import assert_golden, numbers


@pytest.fixture(scope="module")
def rows():
    table = one_cell()
    table.loss[:] += 0.002 * np.cos(5 * np.arange(7))
    return table


def test_a_valley_with_its_draws_keeps_its_numbers(rows):
    solution = best_fit(VALLEY, rows)
    results = with_draws(VALLEY, rows, solution, Options(8, 0.8, 3))
    again = with_draws(VALLEY, rows, solution, Options(1, 0.8, 3))
    np.testing.assert_array_equal(again.draws, results.draws[:1])
    assert_golden("final_loss-valley", numbers(results), rel=1e-3)


def test_what_ended_at_a_bound_has_no_value(rows):
    upper = VALLEY.box(rows)[1]
    theta = np.array([2.5, -2.0, -0.3, upper[3], 0.4])[None]
    bound = np.array([[True, False, False, True, False]])
    solution = Solution(theta, np.zeros(1), np.ones(1, bool), bound)
    parameters = with_draws(VALLEY, rows, solution, Options(2)).parameters
    assert parameters["L_0"].note == "at its floor, 0.5 of the least loss: 2.5 nats"
    assert parameters["v"].note == "unidentified: ended at a bound of the fit"
    assert parameters["L_0"].value is parameters["v"].value is None
    assert parameters["u"].note == "unidentified: its interval spans more than a factor of 10"
    theta[0, 0] = 0.0
    none = with_draws(VALLEY, rows, solution._replace(parameters=theta), Options(2)).parameters
    assert none["L_0"].value == 0.0 and not none["L_0"].note
    assert none["L_0"].level == parameters["v"].level == 0.9
