"""A small part of `python -m benchmarks.laws`, and its summary."""

import json

import numpy as np
import pytest

from benchmarks.laws.__main__ import curves, main, read, summary
from benchmarks.laws.planted_curves import SMALLEST
from benchmarks.laws.planted_steps import SHAPES, planted


@pytest.mark.slow
def test_best_batches_of_laws_that_are_not_the_packages():
    for law, seed in (("inner", 1), ("inner", 3)):
        ((_, (true, value, low, high)),) = curves(law, seed)
        assert value is not None and low is not None and high is not None
        assert true / 1.5 < value < true * 1.5 and low < value < high
    for law in SMALLEST:
        ((_, (_, value, _, _)),) = curves(law, 1)
        assert value is None


def test_summary_of_the_sets_that_are_there(tmp_path, monkeypatch, capsys):
    sets = [
        {"question": "curves", "answers": [["inner", [8, 16, 4, 32]]], "cpu_seconds": 2.0},
        {"question": "curves", "answers": [["inner", [8, None, None, 9]]], "cpu_seconds": 4.0},
        {"question": "costs", "answers": [["fit", [None, 7.5, None, None]]], "cpu_seconds": 0.1},
    ]
    file, out = tmp_path / "sets.jsonl", tmp_path / "laws.csv"
    file.write_text("".join(json.dumps(one) + "\n" for one in sets))
    table = summary(read(file))
    found = {(x["kind"], x["measure"]): (x["value"], x["n"]) for x in table.to_dict("records")}
    assert found["inner", "share_with_number"] == (0.5, 2)
    assert found["inner", "coverage"] == (1.0, 1)
    assert found["inner", "width_median"] == found["inner", "width_p90"] == (8.0, 1)
    assert found["inner", "error_rms"] == (pytest.approx(0.6931, abs=1e-4), 1)
    assert found["fit", "cpu_seconds"] == (7.5, 1)
    assert found["all", "cpu_seconds_per_set_median"] == (3.0, 2)
    monkeypatch.setattr("sys.argv", ["laws", str(file), "--table", str(out)])
    main()
    assert len(out.read_text().splitlines()) == 1 + len(table)
    assert "share_with_number" in capsys.readouterr().out


def test_critical_batch_sizes_of_planted_shapes():
    for shape in SHAPES:
        points, true = planted(shape, 9, 3, 0)
        assert len(points) == 27 and points["batch"].nunique() == 9
        assert points["batch"].min() < true < points["batch"].max()
        means = np.log(points["steps"]).groupby(points["batch"]).mean()
        batch = means.index.to_numpy(float)
        excess = means.to_numpy() + np.log(batch)
        excess -= excess[0]
        # Noise of the means is at most 0.03, so 0.1 is three SDs of a difference.
        assert np.interp(np.log(true), np.log(batch), excess) == pytest.approx(np.log(1.2), abs=0.1)
