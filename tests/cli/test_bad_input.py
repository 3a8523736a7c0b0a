"""Bad input: exit status 2 and one line, whatever it is."""

import json
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from bss.cli import main
from bss.sweeps.grid import overlay
from bss.values import to_dict
from tests.cli.called import printed

PLAN = {"tokens": "10M", "seq-len": "128", "batch": "0:8 2M:16", "lr": "4e-3", "buckets": "8"}


def refusal(arguments, capsys) -> str:
    """The one line on stderr."""
    try:
        status = main(arguments)
    except SystemExit as ended:  # how argparse leaves
        status = ended.code
    captured = capsys.readouterr()
    assert status == 2
    assert captured.out == ""
    assert captured.err.endswith("\n")
    assert captured.err.count("\n") == 1, captured.err
    assert captured.err.startswith("bss")
    return captured.err


@pytest.fixture
def job(tiny_run, tiny_execution, tmp_path):
    """Writes a job's file and gives its path."""

    def write(changes=None, **execution) -> str:
        run, how = overlay(tiny_run, changes or {}), replace(tiny_execution, **execution)
        path = tmp_path / "job.json"
        path.write_text(json.dumps({"run": to_dict(run), "execution": asdict(how)}))
        return str(path)

    return write


@pytest.fixture
def _quiet(monkeypatch):
    """Leaves the signals and warnings of the test process alone."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("warnings.showwarning", None)


@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize(
    ("changes", "execution", "told"),
    [
        ({}, {"data": "nowhere"}, "nowhere"),
        ({"data.content": "0" * 64}, {}, "hash"),
        ({"schedule.tokens": "1B"}, {}, "one pass"),
        ({"evaluation.test_tokens": "1B"}, {}, "test split"),
        ({"schedule.batch": "3"}, {}, "nearest that work"),
        ({}, {"devices": 9}, "this machine has"),
        ({"parent": {"run": "0" * 12, "tokens": 32}}, {}, "fork"),
    ],
)
def test_runs_that_cannot_start(job, capsys, changes, execution, told):
    assert told in refusal(["train", job(changes, **execution), "--json"], capsys)


@pytest.mark.usefixtures("_quiet")
def test_a_full_disk_is_told_in_one_line(job, tiny_execution, capsys, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", "curve.jsonl")

    monkeypatch.setattr("bss.training.run_directory.RunDirectory.add_row", full)
    told = refusal(["train", job(), "--json"], capsys)
    assert told.startswith("bss train: curve.jsonl: No space left on device")
    assert told.count("\n") == 1
    monkeypatch.undo()
    assert main(["runs", str(tiny_execution.runs)]) == 0
    assert "1 failed" in capsys.readouterr().out


@pytest.mark.usefixtures("_quiet")
def test_a_good_run_prints_one_object(job, tiny_execution, capsys):
    config = job({"schedule.tokens": 1024})
    for _ in range(2):
        assert printed(capsys, "train", config)["status"] == "finished"
    assert printed(capsys, "runs", tiny_execution.runs)["counts"] == {"finished": 1}
    assert main(["runs", tiny_execution.runs]) == 0
    assert "1 finished" in capsys.readouterr().out


def test_a_reader_that_leaves_is_no_error():
    command = f"{sys.executable} -m bss models --json | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("{", "")
