"""Design points: their (N, D), the rate that they share, and for which use they are."""

from dataclasses import replace

import numpy as np
import pytest

from bss.laws.final_loss.points import LossPoints, uses


def points(params, tokens, lr=None, rates=None):
    n = len(params)
    lr = np.full(n, 1e-3) if lr is None else np.array(lr)
    rates = np.ones(n) if rates is None else np.array(rates)
    ones = np.ones(n)
    return LossPoints(
        np.array(params, float), np.array(tokens, float), ones, ones, lr, rates, ones > 0, ones,
        np.nan, 0.0, None,
    )  # fmt: skip


def test_budgets_within_three_percent_of_a_neighbour_are_one_cell():
    params = [2, 1, 1, 1, 2, 1]
    tokens = 100 * np.exp([0.0, 0.0, 0.029, 0.058, 0.031, 0.0881])
    assert points(params, tokens).cell.tolist() == [2, 0, 0, 0, 3, 1]


@pytest.mark.parametrize(
    ("lr", "rates", "shared"),
    [
        ([1e-3, 1e-3], [1, 1], True),
        ([1.0, 1.01], [1, 1], True),
        ([1.0, 1.011], [1, 1], False),
        ([1e-3, 1e-3], [1, 2], False),
        ([1e-3], [1], False),
    ],
)
def test_batches_share_a_rate_where_one_alone_was_tried(lr, rates, shared):
    n = len(lr)
    assert points([1] * n, [1] * n, lr, rates).shared_rate(np.arange(n)) == shared


@pytest.mark.parametrize(
    ("bracketed", "lr", "shared"),
    [
        ([False] * 5, [2e-3] * 5, True),  # of several rates the largest was best everywhere
        ([True, False, False, False, False], [1e-3, *[2e-3] * 4], True),  # and about the least
        ([False, False, True, False, False], [2e-3] * 5, False),
        ([False] * 5, [1e-3, 1e-3, 2e-3, 2e-3, 2e-3], False),
    ],
)
def test_batches_share_a_rate_where_the_same_end_was_best_about_the_least(bracketed, lr, shared):
    tried = replace(
        points([1] * 5, [1] * 5, lr, [3] * 5),
        bracketed=np.array(bracketed),
        loss=np.array([3.0, 2.2, 2.0, 2.1, 2.5]),
    )
    assert tried.shared_rate(np.arange(5)) == shared


@pytest.mark.parametrize(
    ("n", "d", "use"),
    [
        (0.5, 0.5, "inside"),
        (1.0299, 1.0299, "inside"),
        (1.031, 0.5, "beyond"),
        (0.5, -0.031, "below"),
        (-0.0299, -0.0299, "inside"),
        (1.5, -0.5, "beyond"),
        (1.4, -0.5, "below"),
        (1.5, -0.6, "below"),
    ],
)
def test_the_farther_direction_counts(n, d, use):
    assert uses(np.array([[n, d]]), np.array([[0.0, 1.0], [1.0, 0.0]])) == [use]
