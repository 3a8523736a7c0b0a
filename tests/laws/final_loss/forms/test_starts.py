"""Forms of the law of final losses: their values at a point, boxes and starts."""

import numpy as np
import pytest

from bss.laws.final_loss.forms import FAMILY, VALLEY
from bss.laws.final_loss.forms.effective import EFFECTIVE
from bss.laws.final_loss.forms.form import CentredPoints
from tests.laws.final_loss.forms.test_power import design


def phi(x, u, v):
    return (v * np.exp(u * x) + u * np.exp(-v * x)) / (u + v) - 1


def test_losses_of_the_other_forms_are_those_of_the_formulas():
    n, d, b = 0.5, -0.3, 1.2
    theta = np.array([1.5, 0.5, 0.3, 0.4, 0.2, 0.6, -1.0, 0.7, 0.9, 0.1, 0.4, -0.2])
    x = b - 0.1 - 0.4 * d + 0.2 * n
    tokens = d - np.log(1 + np.exp(-1.0) * phi(x, 0.7, 0.9))
    expected = 1.5 + (np.exp(0.3 - 0.4 * n) + np.exp(0.2 - 0.6 * tokens)) ** 0.5
    assert EFFECTIVE.loss(theta, n, d, b) == pytest.approx(expected, rel=1e-12)
    valley = np.array([2.0, -1.0, -0.2, 0.3, 0.1])
    expected = 2 + np.exp(-1.0) * phi(1.1, np.exp(-0.2), np.exp(0.3))
    assert VALLEY.loss(valley, n, d, b) == pytest.approx(expected, rel=1e-12)


def one_cell():
    """Seven batches about a lopsided valley."""
    b = np.linspace(-2, 2, 7)
    loss = 2.5 + 0.1 * phi(b - 0.4, 0.6, 0.9)
    none = np.zeros(7)
    return CentredPoints(
        np.stack([none, none, b], axis=1), none[:3], loss, none.astype(int),
        (False, False), none + 1,
    )  # fmt: skip


def test_weighted_errors_are_finite_and_a_valleys_slopes_are_drawn_to_the_usual():
    rows = one_cell()
    data = {"logs": rows.logs, "loss": rows.loss, "weight": np.arange(7.0)}
    theta = np.array([2.5, -2.0, 0.1, -0.2, 0.4])
    errors = np.asarray(VALLEY.errors(theta, data))
    missed = np.arange(7.0) * (VALLEY.loss(theta, *rows.logs.T) - rows.loss)
    np.testing.assert_allclose(errors[:7], missed, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(errors[7:], 1e-3 * (theta[2:4] - np.log(0.7)), rtol=1e-4)
    far = np.asarray(EFFECTIVE.errors(np.array([np.nan] * 12), data))
    np.testing.assert_allclose(far, 1e6 * np.arange(7.0))


def test_members_of_a_family_are_told_by_their_data():
    rows = design()
    theta = np.array([1.5, 0.5, 0.3, 0.4, 0.2, 0.6, -1.0, 0.7, -2.0, 0.9])
    data = {"logs": rows.logs, "loss": rows.loss, "weight": np.ones(len(rows.loss))}
    for form in FAMILY[:3]:
        errors = form.residual(theta, data | form.data)
        expected = form.loss(theta, *rows.logs.T) - rows.loss
        np.testing.assert_allclose(errors, expected, rtol=1e-3, atol=2e-6)
    assert FAMILY[0].residual is FAMILY[2].residual
    assert [form.name for form in FAMILY] == ["additive", "joint", "separate", "effective tokens"]
    assert [float(form.data["inside"]) for form in FAMILY[:3]] == [1.0, 1.0, 0.0]
    assert not EFFECTIVE.data
