"""Candidates as they are written, what they cost, and goals; each mistake is one line."""

import numpy as np
import pytest

from bss.design.candidates import Candidates, read_candidates
from bss.design.goals import Goal, Space
from bss.errors import InputError
from bss.tables import Reading

CELLS = np.array([[2e8, 1e10], [8e8, 4e10]])


def test_grid_is_the_product_of_its_axes():
    grid = read_candidates("batch=32..128,lr=1e-3..2e-3:sqrt2,params=60M|120M", 2048, Reading())
    assert len(grid) == 3 * 3 * 2
    assert sorted({*grid["batch_tokens"]}) == [65536, 131072, 262144]
    assert np.allclose(sorted({*grid["lr"]}), [1e-3, 2**0.5 * 1e-3, 2e-3])
    assert {*grid["params"]} == {6e7, 1.2e8}


def test_table_of_runs(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("N,tokens,batch,seq_len,seeds\n60M,2B,32,1024,2\n60M,4B,64,1024,1\n")
    grid = read_candidates(str(path), None, Reading({"params": "N"}))
    assert [*grid["batch_tokens"]] == [32768, 65536] and [*grid["seeds"]] == [2, 1]


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ("batch=32..64..128", "no value or range"),
        ("batch=64..32", "smaller end first"),
        ("batch=32,width=3", "no axis"),
        ("batch=32,batch=64", "no axis"),
        ("lr=0", "above 0"),
        ("lr=1e-3..4e-3:3", "no value or range"),
        ("batch=1..512:sqrt2,lr=1e-6..1:sqrt2,params=1..99K", "4000 or fewer"),
        ("missing.csv", "no such file"),
    ],
)
def test_malformed_grids(grid, said):
    with pytest.raises(InputError, match=said):
        read_candidates(grid, 2048, Reading())


def test_batches_need_a_length():
    with pytest.raises(InputError, match="unknown length"):
        read_candidates("batch=32", None, Reading())


def test_costs():
    grid = read_candidates("params=1B,tokens=20B,batch=64,seeds=1|3", 2048, Reading())
    flops = Candidates.of(grid, False, "flops", None).cost
    assert np.allclose(flops, [1.2e20, 3.6e20])
    assert np.allclose(Candidates.of(grid, False, "tokens", None).cost, [2e10, 6e10])
    hours = Candidates.of(grid, False, "hours", "1e16 FLOP/s").cost
    assert np.allclose(hours, flops / 1e16 / 3600)
    assert np.allclose(Candidates.of(grid, False, "hours", "50Ktokens/s").cost[0], 2e10 / 1.8e8)
    for speed in (None, "fast", "3e5", "0FLOP/s"):
        with pytest.raises(InputError, match="--speed"):
            Candidates.of(grid, False, "hours", speed)


def test_goals_are_read():
    assert Goal.parse("B_opt", CELLS).cells == ((8e8, 4e10),)
    assert Goal.parse("loss:350M,10B", CELLS).cells == ((3.5e8, 1e10),)
    middle = Goal.parse("exponent", CELLS)
    assert np.allclose(middle.cells, [(4e8, 1e10), (4e8, 4e10)])
    assert np.allclose(Goal.parse("exponent:N", CELLS).cells, [(2e8, 2e10), (8e8, 2e10)])


@pytest.mark.parametrize(
    "text", ["loss", "B_crit", "B_opt:1B", "loss:1B,0", "loss:x,1B", "exponent:B", "B_opt:1B,2B,3"]
)
def test_malformed_goals(text):
    with pytest.raises(InputError, match="--goal"):
        Goal.parse(text, CELLS)


def test_an_exponent_needs_sizes_that_vary():
    with pytest.raises(InputError, match="one D"):
        Goal.parse("exponent:D", np.array([[1e8, 1e9], [2e8, 1e9]]))


def test_grid_holds_the_batches_measured_and_beyond():
    runs, shape = Goal.parse("exponent", CELLS).grid(Space((1e5, 8e5), (1e-3, 4e-3)))
    assert len(runs.params) == 2 * shape[0] * shape[1]
    assert runs.batch_tokens.min() == pytest.approx(1e5 / 4)
    assert runs.batch_tokens.max() >= 4 * 8e5 * (1 - 1e-9)
    assert runs.lr is not None and runs.lr.min() == pytest.approx(5e-4)
