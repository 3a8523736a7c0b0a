import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bss.laws.functional.law import CurveLaw, EvalPoints, Segments, curve_losses

LAW = CurveLaw(2.0, 3.0, 0.4, 5.0, 0.05, 0.4, 0.5, 1.5, 0.8, 0.6, 4.0)
SEGMENTS = Segments(
    np.array([[20.0, 30.0, 10.0], [40.0, 25.0, 0.0]]),
    np.array([[0.5, 1.0, 0.2], [1.0, 1.0, 1.0]]),
    np.array([[2.0, 2.0, 8.0], [4.0, 1.0, 1.0]]),
)
POINTS = EvalPoints(np.array([[0.0, 2.0], [1.0, 1.0]]), np.array([[0.4, 1.0], [0.0, 0.7]]))


@pytest.mark.slow
@pytest.mark.parametrize("q", [0.7, 1.0, 2.5])
def test_derivatives_match_finite_differences(q):
    with jax.enable_x64(True):
        theta = jnp.array(LAW._replace(q=q), jnp.float64)
        losses = jax.jit(lambda theta: curve_losses(CurveLaw(*theta), SEGMENTS, POINTS))
        slopes = jax.jacfwd(losses)(theta)
        for i, name in enumerate(CurveLaw._fields):
            step = 1e-5 * theta[i] * jnp.eye(len(theta))[i]
            expected = (losses(theta + step) - losses(theta - step)) / (2 * step[i])
            np.testing.assert_allclose(slopes[..., i], expected, 1e-6, 1e-9, err_msg=name)
