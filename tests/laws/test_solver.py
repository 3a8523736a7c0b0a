import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bss.errors import InputError
from bss.laws.base import Estimate, interval
from bss.laws.solver import linearize, solve
from bss.values import from_dict, to_dict


def exponential(theta, data):
    return data["y"] - theta[0] * jnp.exp(-theta[1] * data["x"])


def rosenbrock(theta, data):
    return jnp.stack([10 * (theta[1] - theta[0] ** 2), 1 - theta[0]]) * data


def problems(rates):
    x = np.linspace(0, 3, 20)
    y = np.array([2 * np.exp(-rate * x) for rate in rates])
    return {"x": np.tile(x, (len(rates), 1)), "y": y}


def test_planted_parameters_of_several_problems_are_recovered():
    rates = [0.3, 1.0, 2.5]
    starts = np.array([[1.0, 0.1], [5.0, 4.0]])
    found = solve(exponential, starts, np.zeros(2), np.full(2, 10.0), problems(rates))
    np.testing.assert_allclose(found.parameters, [[2.0, rate] for rate in rates], rtol=1e-8)
    assert found.converged.all()
    assert not found.at_bound.any()
    assert found.parameters.dtype == np.float64


def test_curved_valley_is_followed():
    found = solve(
        rosenbrock, np.array([[-1.2, 1.0]]), np.full(2, -5.0), np.full(2, 5.0), np.ones(1)
    )
    np.testing.assert_allclose(found.parameters, [[1.0, 1.0]], rtol=1e-6)


def test_acceleration_follows_a_curved_valley_in_fewer_steps():
    starts, box = np.array([[-1.2, 1.0]]), (np.full(2, -5.0), np.full(2, 5.0))
    plain, accelerated = (
        solve(rosenbrock, starts, *box, np.ones(1), iterations=24, accelerated=accelerated)
        for accelerated in (False, True)
    )
    assert accelerated.converged[0] and not plain.converged[0]
    np.testing.assert_allclose(accelerated.parameters, [[1.0, 1.0]], rtol=1e-6)


def test_bounds_hold_and_are_told():
    lower, upper = np.array([0.0, 0.5]), np.array([10.0, 10.0])
    found = solve(exponential, np.array([[1.0, 1.0]]), lower, upper, problems([0.3]))
    assert found.parameters[0, 1] == 0.5
    assert found.at_bound.tolist() == [[False, True]]
    assert found.converged.all()


def test_parameter_with_equal_bounds_is_held_and_not_at_bound():
    bound = np.array([0.0, 0.7]), np.array([10.0, 0.7])
    found = solve(exponential, np.array([[1.0, 3.0]]), *bound, problems([0.3]))
    assert found.parameters[0, 1] == 0.7
    assert not found.at_bound.any()


def test_too_few_iterations_are_not_called_converged():
    starts, box = np.array([[9.0, 9.0]]), (np.zeros(2), np.full(2, 10.0))
    assert not solve(exponential, starts, *box, problems([0.3]), iterations=2).converged[0]


def test_same_shapes_compile_nothing():
    starts, box = np.array([[1.0, 1.0]]), (np.zeros(2), np.full(2, 10.0))
    solve(exponential, starts, *box, problems([0.3, 0.4]))
    with jax.no_tracing():
        solve(exponential, starts, *box, problems([0.5, 0.6]))


def test_derivatives_match_finite_differences():
    data = {key: value[0] for key, value in problems([0.3]).items()}
    theta = np.array([1.5, 0.8])
    values, slopes = linearize(exponential, theta, data)
    for i in range(2):
        ahead, behind = theta.copy(), theta.copy()
        ahead[i] += 1e-6
        behind[i] -= 1e-6
        difference = (
            linearize(exponential, ahead, data)[0] - linearize(exponential, behind, data)[0]
        )
        np.testing.assert_allclose(slopes[:, i], difference / 2e-6, atol=1e-8)
    assert values.shape == (20,)


def test_no_global_flag_is_left_behind():
    solve(exponential, np.array([[1.0, 1.0]]), np.zeros(2), np.full(2, 10.0), problems([0.3]))
    assert jnp.ones(1).dtype == jnp.float32


def test_data_without_finite_residuals_is_refused():
    data = problems([0.3]) | {"y": np.full((1, 20), np.nan)}
    with pytest.raises(InputError, match="no start gives finite residuals"):
        solve(exponential, np.array([[1.0, 1.0]]), np.zeros(2), np.full(2, 10.0), data)


def test_interval_is_the_central_share_of_draws():
    estimate = interval(50.0, np.arange(1.0, 101.0))
    assert (estimate.low, estimate.high, estimate.level) == (6.0, 95.0, 0.90)


def test_infinite_draws_open_the_interval():
    draws = np.where(np.arange(100) < 20, np.inf, 3.0)
    assert interval(3.0, draws) == Estimate(3.0, 3.0, None)


@given(
    st.floats(-1e6, 1e6), st.lists(st.floats(allow_nan=False), min_size=1), st.floats(0.01, 0.99)
)
def test_an_estimate_lies_in_its_interval(value, draws, level):
    found = interval(value, np.array(draws), level=level)
    assert found.low is None or found.low <= value
    assert found.high is None or found.high >= value


def test_estimate_survives_json():
    estimate = Estimate(None, None, 8.0, 0.9, "unidentified: too few")
    assert from_dict(Estimate, to_dict(estimate) | {"more": 1}, strict=False) == estimate
    assert "note" not in to_dict(Estimate(1.0, 0.5, 2.0))


def flat(theta, data):
    """A second parameter that nothing depends on, and a third that is at its best at a bound."""
    return jnp.stack([theta[0] - 1 + 0 * theta[1], theta[2] + 2, data])


def test_a_parameter_without_effect_stays_and_one_at_its_bound_is_held():
    box = np.array([-5.0, -5.0, -1.0]), np.array([5.0, 5.0, 4.0])
    found = solve(flat, np.array([[3.0, 0.5, 2.0]]), *box, np.array([1e-3]))
    np.testing.assert_allclose(found.parameters, [[1.0, 0.5, -1.0]], rtol=1e-6)
    assert found.cost[0] == pytest.approx((1 + 1e-6) / 2)
    assert found.converged.all() and found.at_bound.tolist() == [[False, False, True]]


def valley(theta, data):
    return rosenbrock(theta, data["scale"])


def test_rounds_are_of_ten_iterations_and_end_when_the_best_has_converged():
    box = np.full(2, -5.0), np.full(2, 5.0)
    starts = np.array([[-1.2, 1.0], [1.0, 1.0 + 1e-9], [4.0, -4.0]])
    each = {"scale": np.ones(3)}
    ten = solve(valley, starts[:, None], *box, each, iterations=10)
    assert ten.converged.tolist() == [False, True, False]
    two = solve(valley, starts[:, None], *box, each, iterations=10, rounds=2)
    again = solve(valley, ten.parameters[:, None], *box, each, iterations=10)
    np.testing.assert_allclose(two.parameters[[0, 2]], again.parameters[[0, 2]], rtol=1e-6)
    best = solve(valley, starts, *box, {"scale": np.ones(1)}, iterations=10, rounds=2)
    assert best.parameters.tolist() == two.parameters[1:2].tolist()
