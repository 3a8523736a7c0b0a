import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bss.errors import InputError
from bss.schedules import rates

HALF = math.sqrt(0.5)
CURVES = [
    (rates.wsd(2.0, 10, 2, 4), [0, 1, 2, 2, 2, 2, 2, 1.5, 1, 0.5, 0, 0, 0]),
    (rates.wsd(2.0, 10, 2, 4, floor=0.5), [0, 1, 2, 2, 2, 2, 2, 1.75, 1.5, 1.25, 1, 1, 1]),
    (
        rates.wsd(1.0, 8, 0, 4, "1-sqrt"),
        [1, 1, 1, 1, 1, 0.5, 1 - HALF, 1 - math.sqrt(0.75), 0, 0],
    ),
    (rates.wsd(1.0, 8, 0, 4, "cosine"), [1] * 5 + [0.5 + HALF / 2, 0.5, 0.5 - HALF / 2, 0, 0]),
    (
        rates.wsd(1.0, 6, 2, 4, "exponential", 1 / 16),
        [0, 0.5, 1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 16],
    ),
    (rates.wsd(3.0, 4, 0, 0), [3] * 7),
    (rates.wsd(3.0, 3, 3, 0), [0, 1, 2, 3, 3, 3]),
    (rates.wsd(3.0, 3, 0, 3), [3, 2, 1, 0, 0]),
    (rates.cosine(4.0, 6, 2), [0, 2, 4, 2 + 2 * HALF, 2, 2 - 2 * HALF, 0, 0]),
    (rates.cosine(4.0, 6, 4, floor=0.25), [0, 1, 2, 3, 4, 2.5, 1, 1]),
    (rates.wsd(4.0, 6, 2, 4), [0, 2, 4, 3, 2, 1, 0, 0]),
    (rates.constant(4.0, 2), [0, 2, 4, 4, 4]),
    (rates.constant(4.0), [4, 4, 4]),
]


@pytest.mark.parametrize(("rate", "curve"), CURVES)
def test_whole_curves_on_host_and_device(rate, curve):
    np.testing.assert_allclose([rate(count) for count in range(len(curve))], curve, atol=1e-15)
    np.testing.assert_allclose(rate(np.arange(len(curve))), curve, atol=1e-15)
    with jax.numpy_dtype_promotion("strict"):
        traced = jax.jit(jax.vmap(rate))(jnp.arange(len(curve)))
    assert traced.dtype == jnp.float32
    np.testing.assert_allclose(traced, curve, atol=1e-6)


def test_host_is_float64_at_ten_trillion_tokens():
    total = 10**13
    rate = rates.wsd(1.0, total, 10**9, 2 * 10**12)
    assert rate(0.5 * 10**9) == 0.5
    assert rate(total - 1) == 1 / (2 * 10**12)
    assert rate(8 * 10**12) == 1.0 and rate(8 * 10**12 + 2) == 1 - 1e-12
    assert isinstance(rate(7), float)


def test_works_alone_in_optax_under_jit():
    rate = rates.wsd(1.0, 10, 2, 4)
    optimizer = optax.sgd(rate)
    params = jnp.zeros(())
    state = optimizer.init(params)
    step = jax.jit(lambda state: optimizer.update(jnp.ones(()), state))
    updates = []
    for _ in range(12):
        update, state = step(state)
        updates.append(-float(update))
    np.testing.assert_allclose(updates, [float(rate(count)) for count in range(12)], atol=1e-6)
    adam = optax.adamw(rate)
    jax.jit(adam.update)(jnp.ones(()), adam.init(params), params)


@pytest.mark.parametrize("shape", ["linear", "1-sqrt", "cosine", "exponential"])
@given(st.integers(0, 10**13), st.integers(0, 10**13))
def test_decays_never_rise_and_stay_within_floor_and_peak(shape, a, b):
    rate = rates.wsd(3e-3, 10**13, 0, 10**13, shape, 0.1)
    first, second = rate(min(a, b)), rate(max(a, b))
    assert 3e-3 >= first >= second >= 3e-4 * (1 - 1e-12)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: rates.wsd(1.0, 10, 6, 5), "longer than"),
        (lambda: rates.wsd(math.nan, 10, 1, 1), "peak"),
        (lambda: rates.wsd(0.0, 10, 1, 1), "peak"),
        (lambda: rates.wsd(-1.0, 10, 1, 1), "peak"),
        (lambda: rates.wsd(1.0, 0, 0, 0), "total"),
        (lambda: rates.wsd(1.0, math.nan, 0, 0), "total"),
        (lambda: rates.wsd(1.0, math.inf, 0, 0), "total"),
        (lambda: rates.wsd(1.0, 10, -1, 1), "warmup"),
        (lambda: rates.wsd(1.0, 10, math.nan, 1), "warmup"),
        (lambda: rates.wsd(1.0, 10, 1, -1), "decay"),
        (lambda: rates.wsd(1.0, 10, 1, math.nan), "decay"),
        (lambda: rates.wsd(1.0, 10, 1, 1, "square"), "shape"),  # pyrefly: ignore
        (lambda: rates.wsd(1.0, 10, 1, 1, floor=1.5), "floor"),
        (lambda: rates.wsd(1.0, 10, 1, 1, floor=math.nan), "floor"),
        (lambda: rates.wsd(1.0, 10, 1, 1, "exponential"), "exponential"),
        (lambda: rates.cosine(1.0, 10, 11), "decay"),
        (lambda: rates.constant(1.0, -1), "warmup"),
    ],
)
def test_bad_arguments_are_refused(make, says):
    with pytest.raises(InputError, match=says):
        make()
