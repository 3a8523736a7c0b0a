"""What is left out to judge a law by: folds of cells, of ends, and of a user's own."""

import numpy as np
import pytest

from bss.errors import InputError
from bss.laws.final_loss.left_out import (
    folds_of,
)
from tests.laws.final_loss.known import points

SIZES, RATIOS = (1e8, 2e8, 4e8), (20, 40, 80, 200)


@pytest.fixture(scope="module")
def table():
    return points(sizes=SIZES, ratios=RATIOS)


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
