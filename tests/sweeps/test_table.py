"""The index over run directories."""

import pytest

from bss.errors import InputError
from bss.sweeps.branching import decay_branch
from bss.sweeps.grid import expand, sweep_product
from bss.sweeps.table import differing, finals, list_runs, run_table
from bss.training.run_directory import RunStatus, open_run


def test_a_killed_run_is_not_told_as_running(tiny_run, tmp_path):
    with open_run(tmp_path / tiny_run.id) as directory:
        directory.check_config(tiny_run)
        assert [r["status"] for r in list_runs(tmp_path)] == ["to do"]
        directory.write_status(RunStatus("running"))
        assert [r["status"] for r in list_runs(tmp_path)] == ["running"]
    assert [r["status"] for r in list_runs(tmp_path)] == ["interrupted"]


def test_a_table_of_no_runs_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"none of .* finished"):
        run_table(tmp_path, [])


def test_every_field_that_differs_is_a_column_of_the_finals_and_the_parent(tiny_run):
    axes = {"seed": [0, 1], "optimizer.weight_decay": [0.0, 0.1], "averages": [[], ["4%", "1K"]]}
    runs = expand(tiny_run, sweep_product(axes))
    runs.append(decay_branch(runs[0], 0.25))
    statuses = [
        RunStatus("finished", 100, 10 + i, {"loss": 1.0, "eval_loss": 2.0 + i})
        for i in range(len(runs))
    ]
    table = finals(runs, statuses)
    assert table["run"].tolist() == [run.id for run in runs]
    assert table["seed"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 0]
    assert table["optimizer.weight_decay"].tolist() == [0, 0, 0.1, 0.1, 0, 0, 0.1, 0.1, 0]
    assert set(table["averages"]) == {"", "4% 1K"}
    assert table["parent"].isna().tolist() == [True] * 8 + [False]
    assert table["parent"].iloc[-1] == runs[0].id
    assert table["eval_loss"].tolist() == [2.0 + i for i in range(9)]
    assert table["steps"].tolist() == list(range(10, 19))
    assert not {"loss", "optimizer.lr", "optimizer.beta1"} & set(table.columns)
    assert differing([tiny_run]) == [{}]
