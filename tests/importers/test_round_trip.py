"""Any run, written in every format, comes back as the same table and the same points."""

import numpy as np
import pytest

from bss.points.curve import points
from bss.tables import check_runs
from tests.importers.imported import assert_same, expected, imported
from tests.importers.writers import FORMATS, rows_of_run


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_table_comes_back(tmp_path, name, seed):
    written = FORMATS[name]
    rows = rows_of_run(seed, schedule=written.schedule)
    path = written.write(tmp_path, rows)
    wanted = expected(rows, written)
    paths = [path] if name != "wandb-chart" and name != "wandb-grouped" else [tmp_path]
    for auto in (False, True):
        table, report = imported(paths, written, auto)
        assert_same(table, wanted)
        assert report.run == "run" and report.rows == len(wanted)
        assert report.restarts == report.superseded == report.duplicates == 0


@pytest.mark.parametrize("name", ["megatron", "wandb-chart", "levanter"])
def test_points_are_the_same(tmp_path, name):
    written = FORMATS[name]
    rows = rows_of_run(2, schedule=written.schedule)
    written.write(tmp_path, rows)
    table, _ = imported([tmp_path], written)
    targets = [float(np.quantile([row["loss"] for row in rows], q)) for q in (0.3, 0.6)]
    ours, theirs = (
        points(check_runs(runs), targets, column="loss")
        for runs in (expected(rows, written), table)
    )
    assert list(ours["tokens_to_target"]) == pytest.approx(list(theirs["tokens_to_target"]))
    assert list(ours["batch"]) == pytest.approx(list(theirs["batch"]))
