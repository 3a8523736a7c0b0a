"""Measurements of a GPU: the parts in order, each within its time, in one JSON."""

import json

import pytest

from benchmarks import gpu
from benchmarks.gpu import PART_SECONDS, PARTS, Part, measured

SAVES = "import json, sys; json.dump({'ms': 7}, open(sys.argv[1] + '/step.json', 'w')); print('ok')"


def test_without_a_gpu_every_part_is_not_measured_and_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "gpus", lambda: [])
    file = tmp_path / "gpu.json"
    assert gpu.main(["--out", str(file)]) == 0
    found = json.loads(file.read_text())
    assert [part["part"] for part in found["parts"]] == [part.name for part in PARTS]
    assert {part["not_measured"] for part in found["parts"]} == {"no NVIDIA GPU is here"}
    assert "step: no NVIDIA GPU is here" in capsys.readouterr().out


def test_parts_run_in_order_and_a_failure_does_not_stop_the_next(tmp_path, monkeypatch, capsys):
    parts = (
        Part("broken", ("-c", "import sys; sys.exit('broken here')")),
        Part("step", ("-c", SAVES, "{out}"), gpu._saved),
    )
    monkeypatch.setattr(gpu, "PARTS", parts)
    monkeypatch.setattr(gpu, "gpus", lambda: ["0"])
    file = tmp_path / "gpu.json"
    assert gpu.main(["--out", str(file)]) == 1
    broken, step = json.loads(file.read_text())["parts"]
    assert (broken["passed"], broken["status"]) == (False, 1)
    assert "broken here" in broken["printed"]
    assert step["passed"] and step["results"] == {"step": {"ms": 7}}
    assert capsys.readouterr().out.splitlines()[:2] == ["broken: FAILED", "step: passed"]


@pytest.mark.parametrize("whole", [True, False])
def test_a_part_that_takes_too_long_is_stopped_and_keeps_what_it_left(whole):
    text = (
        "import sys, time; open(sys.argv[1] + '/curve.jsonl', 'w').write('{\"a\": 1}\\n{\"a\":');"
    )
    part = Part("long", ("-c", text + "time.sleep(99)", "{out}"), gpu._curves, whole)
    row = measured(part, seconds=1.0)
    assert row["stopped"] and row["passed"] is not whole
    ((_, rows),) = row["results"].items()
    assert rows == [{"a": 1}]


def test_an_unknown_part_is_one_line(capsys):
    assert gpu.main(["--only", "stepp"]) == 2
    assert "--only: 'stepp' is none of devices, step" in capsys.readouterr().err


def test_parts_have_at_most_ten_minutes_and_their_modules_are_there():
    from importlib.util import find_spec

    assert PART_SECONDS <= 600
    assert all(find_spec(part.command[1]) for part in PARTS)
