"""What is left out to judge a law by: folds of cells, of ends, and of a user's own."""

import dataclasses

import numpy as np
import pytest

from bss.errors import InputError
from bss.laws.final_loss.left_out import (
    LeftOut,
    cells_in_turn,
    ends,
    error_of,
    errors_of,
    folds_of,
    near_best,
    reported,
)
from bss.laws.final_loss.solved import design_of
from tests.laws.final_loss.known import points

SIZES, RATIOS = (1e8, 2e8, 4e8), (20, 40, 80, 200)


@pytest.fixture(scope="module")
def table():
    return points(sizes=SIZES, ratios=RATIOS)


def shown(table, folds):
    """The folds by kind, use and the cells that are out."""
    return [[fold.kind, fold.use, *np.unique(table.cell[fold.out])] for fold in folds]


def test_folds_of_a_table_are_its_cells_in_turn_and_its_ends(table):
    design, every = design_of(table), np.ones(len(table.loss), bool)
    later = table.cell > 3
    one_model = dataclasses.replace(design, varies=(False, True))
    few = points(sizes=(4e8,), ratios=(20, 60))
    folds = {
        "reported": reported(design),
        "ends": ends(design, every),
        "one model": ends(one_model, every),
        "of some": ends(design, later),
        "in turn": cells_in_turn(design, later, 3),
        "two cells": cells_in_turn(design, table.cell < 2, 6),
    }
    results = {name: shown(table, each) for name, each in folds.items()}
    assert results["two cells"] == []
    assert len(results["in turn"]) == 3 and results["in turn"][0][0] == "cell"
    assert len(cells_in_turn(design, table.cell < 3, 6)) == 3
    assert cells_in_turn(design_of(few), np.ones(len(few.loss), bool), 6) == []
    assert len(results["reported"]) == 12 + 2


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ("tokens>=8B", lambda table: table.tokens >= 8e9),
        ("tokens > 8B", lambda table: table.tokens > 8e9),
        ("tokens<=4B", lambda table: table.tokens <= 4e9),
        ("tokens<4B", lambda table: table.tokens < 4e9),
        ("params=200M", lambda table: table.params == 2e8),
        ("batch_tokens<=200K", lambda table: table.batch <= 2e5),
    ],
)
def test_a_condition_compares_as_it_is_written(table, text, out):
    (fold,) = folds_of(table, text)
    assert (fold.out == out(table)).all() and fold.kind == text and fold.use == "inside"


def test_each_size_and_each_cell_in_turn(table):
    by_params, by_cell = folds_of(table, "params"), folds_of(table, "cell")
    assert [fold.kind for fold in by_params] == ["params=100M", "params=200M", "params=400M"]
    assert [fold.out.sum() for fold in by_params] == [36] * 3
    assert [fold.out.sum() for fold in by_cell] == [9] * 12
    assert by_cell[1].kind == "params=1e+08 tokens=4e+09"
    assert by_cell[1].out.tolist() == (table.cell == 1).tolist()
    assert len(folds_of(table, "tokens")) == len(np.unique(table.tokens))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("batch_tokens>1", "108 of 108 points are left out, and two (params, tokens) must stay"),
        ("params<1", "0 of 108 points are left out"),
        ("params>=1e8", "108 of 108"),
        (
            "lr>1",
            "'lr>1': expected params, tokens, batch, cell, run, or a condition as tokens>=80B",
        ),
    ],
)
def test_what_leaves_nothing_out_or_nothing_in_is_refused(table, text, says):
    with pytest.raises(InputError) as error:
        folds_of(table, text)
    assert says in str(error.value)


def test_two_cells_must_stay():
    few = points(sizes=(4e8,), ratios=(20, 60, 200))
    assert len(folds_of(few, "cell")) == 3
    two = points(sizes=(4e8,), ratios=(20, 60))
    with pytest.raises(InputError, match="9 of 18 points are left out"):
        folds_of(two, "cell")


def test_errors_are_of_the_folds_of_a_kind():
    out = np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], bool)
    error = np.where(out, [[3.0, 4.0, 1, 1], [2.0] * 4, [5.0] * 4], np.nan)
    folds = [
        LeftOut(k, o, e, {}, {}) for k, o, e in zip(("cell", "cell", "x"), out, error, strict=True)
    ]
    np.testing.assert_equal(errors_of(folds, "cell", 4), [3.0, 4.0, 2.0, np.nan])
    assert error_of(folds, "cell", np.array([True, True, False, True])) == pytest.approx(12.5**0.5)
    assert error_of(folds, "cell", np.array([False, False, False, True])) is None
    assert error_of(folds, "params", np.ones(4, bool)) is None


def test_rows_near_the_best_are_within_three_percent():
    one = points(sizes=(4e8,), ratios=(20,))
    one.loss[:] = 2 * np.array([1, 1.0299, 1.0301, 1.5, 1.01, 1.02, 1.2, 2, 3])
    assert near_best(design_of(one)).tolist() == [
        True,
        True,
        False,
        False,
        True,
        True,
        *[False] * 3,
    ]
