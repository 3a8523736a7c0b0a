"""How rows of a table of final losses count, by hand."""

import numpy as np

from bss.laws.final_loss.forms.form import CentredPoints
from bss.laws.final_loss.forms.power import ADDITIVE
from bss.laws.final_loss.solved import (
    design_of,
    design_weight,
    excess,
    losses,
    slopes,
    usable_rows,
)
from tests.laws.final_loss.known import points
from tests.laws.final_loss.test_fit import THETA


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


def test_a_design_is_about_the_middle_and_tells_what_varies_by_half():
    table = points(sizes=(2e8, 4e8), ratios=(20, 60))
    rows = design_of(table)
    logs = np.log(np.stack([table.params, table.tokens, table.batch], axis=1))
    np.testing.assert_allclose(rows.centres, (logs.min(axis=0) + logs.max(axis=0)) / 2)
    np.testing.assert_allclose(rows.logs, logs - rows.centres)
    assert rows.varies == (True, True) and (rows.trust == 1).all()
    assert rows.floor_bounds == (table.loss.min() / 2, table.loss.min())
    for factor, varies in ((1.49, False), (1.51, True)):
        table.params[:] = np.where(np.arange(36) < 18, 1e8, factor * 1e8)
        assert design_of(table).varies[0] is varies
        assert design_of(table, np.full(36, 0.5)).trust.tolist() == [0.5] * 36


def test_slopes_are_of_parameters_that_are_free_and_inside():
    rows = design_of(points(sizes=(4e8,), ratios=(20, 60)))
    lower, upper = ADDITIVE.box(rows)
    theta = np.clip(np.array(THETA["additive"]), lower, upper)
    theta[0] = lower[0]
    results = slopes(ADDITIVE, rows, theta, np.full(18, 2.0))
    free = [i for i in range(10) if lower[i] < theta[i] < upper[i]]
    assert 0 not in free and results.shape == (18, len(free))
    steps = [theta + 1e-6 * np.eye(10)[i] for i in free]
    slope = [
        2e6 * (losses(ADDITIVE, x, rows.logs) - losses(ADDITIVE, theta, rows.logs)) for x in steps
    ]
    np.testing.assert_allclose(results, np.array(slope).T, atol=1e-4)
    many = losses(ADDITIVE, np.stack([theta, theta + 0.1]), rows.logs)
    assert many.shape == (2, 18)
    np.testing.assert_allclose(many[1], losses(ADDITIVE, theta + 0.1, rows.logs))
