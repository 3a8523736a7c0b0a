"""Committed loss curves: how they are written, and compared with later ones."""

import csv
import json

import pytest

from benchmarks import curves
from benchmarks.curves import CONFIGS, FOLDER, check_machine, difference, write

ROWS = [{"run": "a", "step": 1, "loss": 0.1 + 0.2}, {"run": "a", "step": 2, "loss": 3.5, "x": None}]


def test_curves_are_compared_to_the_last_bit(tmp_path):
    write(ROWS, tmp_path / "a.csv")
    assert difference(ROWS, tmp_path / "a.csv") == 0
    other = [ROWS[0] | {"loss": 0.3}, ROWS[1]]
    assert difference(other, tmp_path / "a.csv") == pytest.approx(2**-54, rel=0.01)
    assert difference(ROWS[:1], tmp_path / "a.csv") == float("inf")
    assert difference([ROWS[0] | {"run": "b"}, ROWS[1]], tmp_path / "a.csv") == float("inf")


@pytest.mark.parametrize("name", CONFIGS)
def test_every_config_has_its_rows(name):
    with (FOLDER / f"{name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    runs = {row["run"] for row in rows}
    assert len(runs) == {"fleet": 4, "branch": 2}.get(name, 1)
    assert len(rows) >= 20 and all(float(row["eval_loss"]) > 0 for row in rows)


@pytest.mark.parametrize("name", ["cpu", "jaxlib"])
def test_curves_of_another_machine_are_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr(curves, "MACHINE", tmp_path / "machine.json")
    curves.MACHINE.write_text(json.dumps(curves.machine()))
    check_machine()
    curves.MACHINE.write_text(json.dumps({**curves.machine(), name: "another"}))
    with pytest.raises(SystemExit, match=f"{name}: the baselines are of another, this is .*parent"):
        check_machine()
