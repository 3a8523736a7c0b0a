"""Power laws of final losses: their values by the formulas, their boxes, and exact starts."""

import numpy as np
import pytest

from bss.laws.final_loss.forms.form import NONE, CentredPoints
from bss.laws.final_loss.forms.power import ADDITIVE, JOINT, SEPARATE

THETA = np.array([1.5, 0.5, 0.3, 0.4, 0.2, 0.6, -1.0, 0.7, -2.0, 0.9])


def design(models=True, budgets=True):
    """A grid about the reference with exact losses of the joint form."""
    n, d, b = (x.ravel() for x in np.meshgrid([-1.0, 1], [-1.5, 0, 1.5], np.linspace(-2, 2, 7)))
    n, d = n * models, d * budgets
    loss = JOINT.loss(THETA, n, d, b)
    cell = np.unique(np.stack([n, d]), axis=1, return_inverse=True)[1].ravel()
    logs = np.stack([n, d, b], axis=1)
    return CentredPoints(logs, np.zeros(3), loss, cell, (models, budgets), np.ones(len(loss)))


def test_losses_are_those_of_the_formulas():
    n, d, b = 0.5, -0.3, 1.2
    model, data = np.exp(0.3 - 0.4 * n), np.exp(0.2 - 0.6 * d)
    steps, batch = np.exp(-1 - 0.7 * (d - b)), np.exp(-2 - 0.9 * b)
    assert JOINT.loss(THETA, n, d, b) == pytest.approx(1.5 + (model + data + steps + batch) ** 0.5)
    assert SEPARATE.loss(THETA, n, d, b) == pytest.approx(
        1.5 + (model + data) ** 0.5 + steps + batch
    )
    alone = np.array([*THETA[:1], 1.0, *THETA[2:4], NONE, 1.0, *THETA[6:]])
    assert ADDITIVE.loss(alone, n, d, b) == pytest.approx(1.5 + model + steps + batch)


def test_a_box_holds_what_a_design_tells():
    least = float(design().loss.min())
    size, exponent = (np.log(1e-9), np.log(1e3)), (0.01, 4.0)
    whole = [(least / 2, least), (0.1, 4.0), *[size, exponent] * 4]
    np.testing.assert_allclose(np.array(JOINT.box(design())).T, whole)
    np.testing.assert_allclose(np.array(SEPARATE.box(design())).T, whole)
    still, one = (-60.0, -60.0), (1.0, 1.0)
    plain = [whole[0], one, size, exponent, still, one, *[size, exponent] * 2]
    np.testing.assert_allclose(np.array(ADDITIVE.box(design())).T, plain)
    one_model = design(models=False)
    floor = float(one_model.loss.min())
    alone = [(floor / 2, floor), whole[1], still, one, *[size, exponent] * 3]
    np.testing.assert_allclose(np.array(JOINT.box(one_model)).T, alone)
    one_budget = np.array(JOINT.box(design(budgets=False))).T
    np.testing.assert_allclose(one_budget[2:6], [size, exponent, still, one])


@pytest.mark.parametrize("form", [ADDITIVE, JOINT, SEPARATE])
def test_starts_lie_in_the_box_and_near_the_losses(form):
    rows = design()
    starts = form.starts(rows, np.ones(len(rows.loss)))
    lower, upper = form.box(rows)
    assert starts.shape == (8, 10)
    assert (starts >= lower).all() and (starts <= upper).all()
    if form is JOINT:  # whose losses these are
        errors = form.loss(starts[0], *rows.logs.T) - rows.loss
        assert np.sqrt(np.mean(errors**2)) < 0.15 * np.std(rows.loss)


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_sizes_are_exact_where_floor_and_power_are(power):
    rows = design()
    columns = np.exp(-np.outer(rows.logs[:, 2], [0.5, -0.5]))
    loss = 2.0 + (columns @ [0.3, 0.7]) ** power
    exact = CentredPoints(rows.logs, rows.centres, loss, rows.cell, rows.varies, rows.trust)
    logs, error = exact.sizes_at(np.ones(len(loss)), columns, 2.0, power)
    assert np.exp(logs) == pytest.approx([0.3, 0.7])
    assert error == pytest.approx(0, abs=1e-9)
    assert exact.sizes_at(np.full(len(loss), 2.0), columns, 1.9, power)[1] == pytest.approx(
        2 * exact.sizes_at(np.ones(len(loss)), columns, 1.9, power)[1]
    )
