from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bss.laws.es import FAMILIES, LAWS
from bss.laws.es.law import Piecewise, outer_stages
from bss.laws.es.law import SurfaceParameters as Surface

SURFACE, PIECEWISE = LAWS["surface"], Piecewise("piecewise")
SURFACES = [
    Surface(1.2, 10.0, 0.35, 2.6, 1.0, 0.0),
    Surface(1.2, 10.0, 0.35, 2.6, 0.5, 0.0),
    Surface(1.2, 10.0, 0.35, 2.6, 1.3, 25.0),
]
share = st.floats(0.05, 0.95)


def float64(function, *arguments):
    with jax.enable_x64(True):
        return np.asarray(function(*arguments))


def optimum_of(law):
    return SimpleNamespace(**SURFACE.quantities(law, 2.2))


def curve(law, steps):
    """E(S) of the three-stage law, stage by stage."""
    B_m1, B_0, A_1, A_0 = outer_stages(law)
    first = B_m1 / (steps - law.S_min) + B_0
    middle = law.C * (steps - law.S_opt) ** 2 + law.E_min
    last = A_1 * steps + A_0
    return np.where(steps < law.S_1, first, np.where(steps > law.S_2, last, middle))


def of_shape(theta):
    """The three-stage law of fitted numbers where 0.8 is the smallest batch that met the target."""
    one = np.ones(1)
    data = {"batch": 0.8 * one, "reached": one, "weight": one}
    with jax.enable_x64(True):
        return PIECEWISE.parameters(*map(np.asarray, PIECEWISE.shape(np.array(theta), data)))


@pytest.mark.parametrize("law", FAMILIES, ids=str)
def test_numbers_give_what_traced_parameters_give_in_numpy(law):
    batch = np.array([0.5, 1.0, 3.0, 40.0])
    one = np.ones(1)
    data = {"batch": 0.8 * one, "reached": one, "weight": one}
    theta = np.array(SURFACES[2] if law.joint else law.starts[0])

    def sequences(theta):
        return law.sequences(Surface(*theta) if law.joint else law.shape(theta, data), batch, 2.4)

    with jax.enable_x64(True):
        traced = jax.jit(sequences)(jnp.asarray(theta))
        plain = sequences(theta)
    assert isinstance(plain, np.ndarray)
    np.testing.assert_allclose(plain, traced, rtol=1e-13)


@pytest.mark.parametrize("law", SURFACES)
def test_surface_meets_its_target_at_e_of_b(law):
    batch = np.array([8.0, 16.0, 64.0, 500.0])
    sequences = float64(SURFACE.sequences, law, batch, 2.4)
    np.testing.assert_allclose(
        float64(SURFACE.loss, law, sequences / batch, batch), 2.4, rtol=1e-12
    )


@pytest.mark.parametrize("law", SURFACES)
def test_surface_optimum_is_the_minimum_of_a_fine_grid(law):
    optimum = optimum_of(law)
    batch = np.geomspace(optimum.B_min * 1.001, optimum.B_min * 100, 40_001)
    sequences = float64(SURFACE.sequences, law, batch, 2.2)
    assert optimum.B_opt == pytest.approx(batch[np.argmin(sequences)], rel=1e-3)
    assert optimum.E_min == pytest.approx(sequences.min(), rel=1e-7)
    assert np.isinf(float64(SURFACE.sequences, law, optimum.B_min * 0.999, 2.2))


def test_surface_optimum_closed_forms():
    L_0, a, alpha, b, _, _ = law = SURFACES[0]
    optimum, excess = optimum_of(law), 2.2 - L_0
    assert optimum.S_min == pytest.approx((a / excess) ** (1 / alpha))
    assert optimum.B_min == pytest.approx(b / excess)
    assert optimum.S_opt == pytest.approx((1 + alpha) ** (1 / alpha) * optimum.S_min)
    assert optimum.B_opt == pytest.approx((1 + 1 / alpha) * optimum.B_min)


@settings(deadline=None, max_examples=50)
@given(u=share, v=share, g=share, w=share, log_B=st.floats(-2, 2))
def test_three_stage_law_is_smooth_and_admissible(u, v, g, w, log_B):
    law = of_shape([0.3, log_B, u, v, g, w])
    B_m1, _, A_1, A_0 = outer_stages(law)
    assert law.S_min < law.S_1 < law.S_opt < law.S_2
    assert min(law.C, A_0, B_m1) > 0
    assert min(0.8, np.exp(log_B)) > A_1
    for knot in (law.S_1, law.S_2):
        near = knot * (1 + np.array([-2e-6, -1e-6, 1e-6, 2e-6]))
        E = curve(law, near)
        left, right = E[1] - E[0], E[3] - E[2]
        assert E[2] == pytest.approx(E[1], rel=1e-4)
        assert left == pytest.approx(right, rel=1e-2, abs=2e-8 * E[1])


@settings(deadline=None, max_examples=50)
@given(u=share, v=share, g=share, w=share, log_B=st.floats(-2, 2))
def test_three_stage_law_solved_at_a_batch_lies_on_its_curve(u, v, g, w, log_B):
    law = of_shape([0.3, log_B, u, v, g, w])
    B_min = outer_stages(law)[2]
    batch = B_min * np.array([1.01, 1.1, 1.5, 3.0, 10.0, 100.0])
    E = float64(PIECEWISE.sequences, law, batch)
    np.testing.assert_allclose(curve(law, E / batch), E, rtol=1e-6)
    assert (np.diff(E / batch) < 0).all()
    assert np.isinf(float64(PIECEWISE.sequences, law, 0.99 * B_min))
    assert E.min() >= law.E_min * (1 - 1e-12)
