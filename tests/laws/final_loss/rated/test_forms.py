"""The forms of (N, D, B, rate): their formulas, boxes, starts, and that they find themselves."""

import numpy as np
import pytest

from bss.laws.final_loss.forms.form import losses
from bss.laws.final_loss.rated.forms import DRAWN, RATED, ROWS
from bss.laws.final_loss.rated.law import slopes_of
from tests.laws.final_loss.rated.planted import World, points_of

FORMS = pytest.mark.parametrize("name", ["functional-4", "bowl"])
RARE = {"L_0": 1.6, "k": 0.6, "A": -1.0, "a": 0.5, "G": -1.2, "g": 0.6, "B_star": 0.2, "E": -0.3}
"""Parameters that are drawn to nothing, of a law that is recovered."""


@pytest.fixture(scope="module")
def points():
    return points_of(World().table())


def law_of(form):
    """A usual θ [P]."""
    given = zip(form.names, form.usual[0].tolist(), strict=True)
    return np.array([RARE.get(name, value) for name, value in given])


@FORMS
def test_slopes_are_the_derivatives(points, name):
    import jax

    form, design = RATED[name], points.design
    theta = law_of(form)
    logs = design.logs[::7]
    with jax.enable_x64(True):
        exact = jax.jit(jax.jacfwd(lambda x: form.loss(x, *logs.T, xp=jax.numpy)))(theta)
        far = jax.jit(form.errors)(theta, {"logs": logs, "loss": 0 * logs[:, 0], "weight": 1.0})
    np.testing.assert_allclose(slopes_of(form, theta, logs, design), exact, atol=1e-7)
    np.testing.assert_allclose(far[: len(logs)], losses(form, theta, logs), rtol=1e-12)
    drawn = DRAWN * (theta - form.usual[0]) / form.usual[1]
    np.testing.assert_allclose(far[len(logs) :], drawn, atol=1e-12)


def test_formulas():
    n, d, b, e = 0.7, -0.4, 1.1, -0.6
    form = RATED["functional-3"]
    theta = law_of(form)
    terms = [ROWS[name] for name in ("sum of rates", "noise", "wall")]
    inner = np.exp(-1.0 - 0.5 * n) + np.exp(-1.2 - 0.6 * d)
    inner += sum(np.exp(C + N * n + D * d + B * b + H * e) for C, N, D, B, H in terms)
    assert losses(form, theta, np.array([n, d, b, e])) == pytest.approx(1.6 + inner**0.6)
    form = RATED["bowl"]
    law = dict(zip(form.names, law_of(form).tolist(), strict=True))
    best = d * law["q"] + n * law["r"] + law["B_star"], -0.3 + law["p"] * b
    best = best[0], best[1] + law["x"] * n + law["y"] * d
    worth = [losses(form, law_of(form), np.array([n, d, *at])) for at in (best, (b, e))]
    wasteless = 1.6 + (np.exp(-1.0 - 0.5 * n) + np.exp(-1.2 - 0.6 * d)) ** law["k"]
    rate = -0.3 + law["x"] * n + law["y"] * d + law["p"] * best[0]
    least = losses(form, law_of(form), np.array([n, d, best[0], rate]))
    assert least == pytest.approx(wasteless) and min(worth) > least
