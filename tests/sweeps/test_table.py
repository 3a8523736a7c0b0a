"""The index over run directories."""

import pytest

from bss.errors import InputError
from bss.sweeps.table import list_runs, run_table
from bss.training.directory import open_run


def test_a_killed_run_is_not_told_as_running(tiny_run, tmp_path):
    with open_run(tmp_path / tiny_run.id) as directory:
        directory.check_config(tiny_run)
        assert [r["status"] for r in list_runs(tmp_path)] == ["to do"]
        directory.write_status("running", tokens=0)
        assert [r["status"] for r in list_runs(tmp_path)] == ["running"]
    assert [r["status"] for r in list_runs(tmp_path)] == ["interrupted"]


def test_a_table_of_no_runs_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"none of .* finished"):
        run_table(tmp_path, [])
