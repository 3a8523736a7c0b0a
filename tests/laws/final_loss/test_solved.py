"""How rows of a table of final losses count, by hand."""

import numpy as np

from bss.laws.final_loss.forms.form import CentredPoints
from bss.laws.final_loss.solved import design_weight, excess, usable_rows


def design(loss, trust=None):
    """Two cells of three rows each."""
    loss = np.array(loss, float)
    cell, trust = np.repeat([0, 1], 3), np.ones(6) if trust is None else np.array(trust, float)
    return CentredPoints(np.zeros((6, 3)), np.zeros(3), loss, cell, (True, True), trust)


def test_a_row_counts_by_how_far_it_is_above_the_best_of_its_cell():
    rows = design([2.0, 2.5, 2.59, 4.0, 4.0, 5.6])
    np.testing.assert_allclose(excess(rows), [0, 0.5, 0.59, 0, 0, 1.6])
    half = 0.3
    shares = np.array([0, 0.25, 0.295, 0, 0, 0.4]) / half
    np.testing.assert_allclose(design_weight(rows), 1 / (1 + shares**4))
    assert usable_rows(rows).tolist() == [True, True, True, True, True, False]


def test_a_row_that_is_not_trusted_is_no_best():
    rows = design([1.0, 2.0, 2.6, 4.0, 4.0, 4.0], [0, 1, 1, 0.5, 1, 1])
    np.testing.assert_allclose(excess(rows)[1:], [0, 0.6, 0, 0, 0])
    np.testing.assert_allclose(design_weight(rows), [0, 1, 0.5, 0.5, 1, 1])
