"""What a law misses, told by the rows near by: closed forms against what they stand for."""

import numpy as np
import pytest

from bss.laws.final_loss.rated.departure import (
    CELL,
    GROWS,
    MODEL,
    OF_CELL,
    OF_SHAPE,
    RUN,
    SAME,
    SHAPE,
    Departure,
    Seen,
    left_out,
    precision_of,
    scatter,
)

DEPARTURE = Departure(1.5, 0.7)


def rows(count, seed=0):
    """Logarithms [count, 4]; every third row is of the model before."""
    logs = np.random.default_rng(seed).uniform(-2, 2, (count, 4))
    logs[1::3, 0] = logs[:-1:3, 0][: len(logs[1::3])]
    return logs


def covariance(one, other):
    """Of two rows, by the formula."""
    n, d, b, e = one - other
    cell = CELL**2 * np.exp(-((n / OF_CELL[0]) ** 2 + (d / OF_CELL[1]) ** 2) / 2)
    far = (n / OF_SHAPE[0]) ** 2 + (d / OF_SHAPE[1]) ** 2 + (b**2 + e**2) / 0.7**2
    model = MODEL**2 * np.exp(-((n / SAME) ** 2) / 2)
    return 1.5**2 * (model + cell + SHAPE**2 * np.exp(-far / 2))


def test_covariance_is_the_formula():
    one, other = rows(7), rows(5)
    expected = [[covariance(x, y) for y in other] for x in one]
    np.testing.assert_allclose(DEPARTURE.covariance(one, other), expected, rtol=1e-12)
    doubled = Departure(3.0, 0.7).covariance(one, other)
    np.testing.assert_allclose(doubled, 4 * np.array(expected), rtol=1e-12)


def test_sizes_a_little_apart_have_a_covariance():
    logs = rows(40)
    logs[:, 0] = np.log(1.02) * (np.arange(40) % 20)  # neighbours are within 3%, others are not
    least = np.linalg.eigvalsh(DEPARTURE.covariance(logs, logs)).min()
    assert least > -1e-9 * MODEL**2
    near, far = DEPARTURE.covariance(logs[:1], logs[[20, 3]])[0]
    assert near > far


def test_scatter_grows_with_the_excess_and_shrinks_with_repetitions():
    np.testing.assert_allclose(
        scatter(np.array([-0.1, 0.0, GROWS])), RUN * np.sqrt([1, 1, 2]), rtol=1e-4
    )
    np.testing.assert_allclose(scatter(np.zeros(1), 4.0), RUN / 2)
    assert scatter(np.array([3.0]))[0] > 1.0  # nats: a row on a cliff tells nothing


def test_precision_is_the_inverse():
    logs, noise = rows(40), scatter(np.linspace(0, 0.2, 40))
    covariance = DEPARTURE.covariance(logs, logs) + np.diag(noise**2)
    precision = precision_of(DEPARTURE, logs, noise)
    np.testing.assert_allclose(precision @ covariance, np.eye(40), atol=1e-9)
    np.testing.assert_array_equal(precision, precision.T)


@pytest.mark.parametrize("count", [1, 6, 30])
def test_left_out_rows_are_what_the_others_say_without_them(count):
    generator = np.random.default_rng(count)
    logs, noise, prior = rows(40), scatter(np.linspace(0, 0.2, 40)), np.array([0.5, 2.0, 30.0])
    out = np.zeros(40, bool)
    out[generator.permutation(40)[:count]] = True
    rest, missed = ~out, generator.normal(0, 0.02, (2, 40))
    slopes = generator.normal(0, 1, (2, 40, 3))
    precision = precision_of(DEPARTURE, logs, noise)
    turned = [precision @ x for x in slopes]
    inner = [x.T @ y + np.diag(prior) for x, y in zip(slopes, turned, strict=True)]
    expected, variances = left_out(precision, missed, turned, inner, out)
    # The law fitted to the rest, as if the others had never been there.
    seen = Seen(DEPARTURE, logs[rest], precision_of(DEPARTURE, logs[rest], noise[rest]))
    across = seen.across(logs[out])
    for i in range(2):
        np.testing.assert_allclose(expected[i], across @ missed[i, rest], atol=1e-10)
        steep = slopes[i, out] - across @ slopes[i, rest]
        whole = seen.left(logs[out], across)
        whole = whole + steep @ seen.spread(slopes[i, rest], prior) @ steep.T
        np.testing.assert_allclose(variances[i], np.diag(whole) + noise[out] ** 2, rtol=1e-7)


def test_far_from_all_rows_nothing_is_known_and_at_them_what_was_measured():
    logs, missed = rows(20), np.linspace(-0.02, 0.02, 20)
    seen = Seen(DEPARTURE, logs, precision_of(DEPARTURE, logs, np.full(20, 1e-5)))
    np.testing.assert_allclose(seen.across(logs) @ missed, missed, atol=1e-5)
    far = seen.across(logs[:1] + 50.0)
    assert np.abs(far @ missed).max() < 1e-12
    own = 1.5**2 * (MODEL**2 + CELL**2 + SHAPE**2)
    np.testing.assert_allclose(seen.left(logs[:1] + 50.0, far), own)
    assert seen.left(logs, seen.across(logs)).diagonal().max() < 1e-6
