"""Two processes that train a sweep together: a run that fails ends no other run."""

import dataclasses
import json
import socket
import subprocess
import sys

import pytest

from bss.sweeps.grid import overlay
from bss.training.run_config import Parent
from bss.values import to_dict


@pytest.mark.slow
def test_two_processes_go_on_after_runs_that_failed_diverged_or_lack_their_parent(
    tiny_run, tiny_execution, tmp_path
):
    healthy = overlay(tiny_run, {"schedule.tokens": 512, "schedule.batch": 2})
    wild = overlay(healthy, {"optimizer.lr": 1e30, "optimizer.clip": 0, "schedule.warmup": 0})
    orphan = dataclasses.replace(overlay(healthy, {"seed": 9}), parent=Parent(wild.id, 256))
    refused = overlay(healthy, {"data.content": "0" * 64})
    runs = [orphan, wild, refused, healthy]
    told = {"runs": [to_dict(run) for run in runs], "execution": to_dict(tiny_execution)}
    (tmp_path / "runs.json").write_text(json.dumps(told))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "tests.sweeps.joint_processes", str(tmp_path), coordinator]
    processes = [
        subprocess.Popen([*command, str(i)], stderr=subprocess.PIPE, text=True) for i in (0, 1)
    ]
    errors = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    for i in (0, 1):
        statuses = json.loads((tmp_path / f"{i}.json").read_text())
        found = [statuses[run.id]["status"] for run in runs]
        assert found == ["skipped", "diverged", "failed", "finished"]
        assert "have hash" in statuses[refused.id]["message"]
        assert statuses[orphan.id]["message"] == f"{wild.id} failed"
