"""The cells of a table: their rows, their valleys, and rows that are outliers."""

from dataclasses import replace

import numpy as np
import pytest

from bss.laws.final_loss.cells import Cell, cells_of, without_outliers
from bss.laws.final_loss.points import LossPoints
from tests.laws.final_loss.known import valley
from tests.laws.golden import assert_golden, numbers

UNTOLD = ["what is usual"]


def rows(cells=5, batches=8, *, noise=0.001, freedom=0.0):
    """A parabola in log B for each budget of one model, with waves for noise."""
    loss, tokens, batch = [], [], []
    for i in range(cells):
        for k in range(batches):
            at = k - 2.5 - 0.4 * i
            loss.append(3 - 0.1 * i + 0.004 * at**2 + noise * np.cos(7 * i + 3 * k**2))
            tokens.append(4e9 * 2.0**i * (1 + 0.001 * k))
            batch.append(1e5 * 2.0**k)
    n = len(loss)
    lr = 1e-3 * 2.0 ** (np.arange(n) % batches)
    return LossPoints(
        np.full(n, 4e8), np.array(tokens), np.array(batch), np.array(loss), lr,
        np.full(n, 3), np.ones(n, bool), np.where(np.arange(n) % 3, 1, 2), 0.002, freedom, 512.0,
    )  # fmt: skip


def test_cells_have_usable_rows_by_batch_and_one_rate_is_told():
    points = rows(2, 5)
    # A second row of the first batch at a longer budget, and a row that may have diverged.
    points.tokens[1], points.batch[1] = points.tokens[0] * 1.02, points.batch[0]
    usable = np.ones(10, bool)
    usable[7] = False
    points.lr[5:], points.rates[5:] = 1e-3, 1
    first, second = cells_of(points, usable, 0.9)
    assert first.rows.tolist() == [1, 2, 3, 4] and second.rows.tolist() == [5, 6, 8, 9]
    assert (first.params, first.tokens, second.tokens) == (4e8, 4e9, 8e9)
    assert not first.one_rate and second.one_rate
    assert first.valley is not None and second.valley is None and first.valley.level == 0.9
    none = cells_of(points, np.arange(10) > 2, 0.9)[0]
    assert len(none.rows) == 2 and none.valley is None
    three = cells_of(points, np.arange(10) != 2, 0.9)[0]
    assert len(three.rows) == 3 and three.valley is not None


@pytest.mark.parametrize("freedom", [0.0, 4.0, np.inf])
def test_valleys_know_what_repetitions_scatter_by(freedom):
    cells = cells_of(rows(2, 4, freedom=freedom), np.ones(8, bool), 0.8)
    valleys = [one.valley for one in cells if one.valley]
    assert [one.source for one in valleys] == ["seeds" if freedom else "what is usual", *UNTOLD]
    shown = [(one.batch, one.interval, one.scatter, one.depth) for one in valleys]
    assert_golden(f"final_loss-cells-{freedom:g}", numbers(shown), rel=1e-5)


@pytest.mark.parametrize(
    ("probability", "scatter", "limit"),
    [
        (0.0, 0.004, 0.007288),  # 33 times the scatter times the usual distance
        (0.0, 0.0003, 0.003651),  # 5.2 times the usual distance
        (0.2, 0.004, 0.005786),  # 20 times, as its own valley doubts it
        (0.2, 0.0003, 0.002988),  # 3.4 times
        (0.1, 0.004, 0.007288),
        (0.5, 0.004, 0.005786),
        (0.51, 0.004, 0.0),
    ],
)
def test_a_row_so_far_from_the_others_is_an_outlier(probability, scatter, limit):
    def named(shift):
        points = rows(5, 5)
        law = points.loss + 0.001 * np.sin(1 + np.arange(25))
        points.loss[7] += shift
        cells = []
        for i in range(5):
            doubts = np.where(np.arange(5) == 2, probability * (i == 1), 0.0)
            own = replace(valley(2e5 * 1.5**i, scatter=scatter), outlier=doubts)
            cells.append(Cell(4e8, 4e9 * 2.0**i, np.arange(5 * i, 5 * i + 5), own, True))
        rest, outliers, left = without_outliers(points, cells, law, 0.9)
        assert len(outliers) == (~left).sum()
        assert sorted(i for one in rest for i in one.rows) == np.flatnonzero(left).tolist()
        return not left[7]

    assert named(limit * 1.006 + 1e-5) and (not limit or not named(limit * 0.994))


def test_few_cells_do_not_tell_what_is_usual_and_outliers_keep_their_numbers():
    results = {}
    for count in (3, 4):
        points = rows(count, 5)
        law = points.loss + 0.001 * np.sin(1 + np.arange(5 * count))
        points.loss[[7, 11]] += [-0.2, 0.02]
        cells = [
            Cell(4e8, 4e9 * 2.0**i, np.arange(5 * i, 5 * i + 5), valley(2e5 * 1.5**i), True)
            for i in range(count)
        ]
        _, results[count], _ = without_outliers(points, cells, law, 0.9)
    assert not results[3] and len(results[4]) > 1
    assert_golden("final_loss-outliers", numbers(results[4]), rel=1e-5)


def test_the_farthest_outlier_is_first_and_small_cells_have_none():
    points = rows(4, 5)
    law = points.loss + 0.001 * np.sin(1 + np.arange(20))
    points.loss[[2, 8]] += [0.03, 0.3]
    named = np.array([0, 0, 1.0, 0, 0])
    every = [
        Cell(4e8, 4e9, np.arange(5), replace(valley(2e5), outlier=named), True),
        Cell(4e8, 8e9, np.arange(5, 10), replace(valley(3e5), outlier=np.roll(named, 1)), True),
        Cell(4e8, 1.6e10, np.arange(10, 14), replace(valley(4e5), outlier=named[:4]), True),
        Cell(4e8, 3.2e10, np.arange(15, 20), None, True),
    ]
    _, outliers, left = without_outliers(points, every, law, 0.9)
    assert [one.batch_tokens for one in outliers] == [8e5, 4e5]
    assert np.flatnonzero(~left).tolist() == [2, 8]
    none = [replace(one, valley=None) for one in every]
    assert without_outliers(points, none, law, 0.9)[0] is none
