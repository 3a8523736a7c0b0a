"""A worker: its results for jobs, and how it exits. Nothing is trained."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bss.errors import InputError
from bss.sweeps.grid import overlay
from bss.training import loop, worker
from bss.training.run_directory import open_run
from bss.values import to_dict


@pytest.fixture
def job(tiny_run, tiny_execution):
    """A job of runs with these seeds."""

    def make(*seeds, vmapped=False, **execution):
        runs = [overlay(tiny_run, {"seed": seed}) for seed in seeds]
        execution = {"runs": tiny_execution.runs, "buckets": [2], **execution}
        entries = {run.id: to_dict(run) for run in runs}
        return {"runs": entries, "execution": execution, "vmapped": vmapped}

    return make


def test_the_result_of_a_job_is_an_error_message_or_empty(job, monkeypatch):
    trained = []

    def train(run, execution, *, stop):
        if run.seed == 1:
            raise InputError("no such data")
        if run.seed == 2:
            raise OSError("disk is full")
        trained.append(run.seed)

    def train_vmapped(runs, execution, *, stop):
        trained.append([run.seed for run in runs])

    monkeypatch.setattr(loop, "train", train)
    monkeypatch.setattr(loop, "train_vmapped", train_vmapped)
    stop = threading.Event()
    assert worker.train_job(job(0, 4), stop) == ""
    assert worker.train_job(job(0, 4, vmapped=True), stop) == ""
    assert trained == [0, 4, [0, 4]]
    assert worker.train_job(job(1), stop) == "no such data"
    assert worker.train_job(job(2), stop) == "disk is full"
    assert "bucket" in worker.train_job(job(0, bucket=[2]), stop)


def test_a_run_that_another_process_trains_is_waited_for(job, tiny_execution):
    waiting = job(0)
    (name,), stop = waiting["runs"], threading.Event()
    with open_run(Path(tiny_execution.runs) / name):
        thread = threading.Timer(0.3, stop.set)
        thread.start()
        with pytest.raises(loop.Interrupted):
            worker.train_job(waiting, stop)
        assert stop.is_set()
    assert not (Path(tiny_execution.runs) / name / "status.json").exists()


def start(tmp_path, program):
    (tmp_path / "program.py").write_text(program)
    return subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), "--core=7"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


PROGRAM = """
import os, sys
from bss.training import worker
from bss.training.distributed import Interrupted

def train_job(job, stop):
    print("of a library")
    if job == "wait":
        print("waits", file=sys.stderr)
        stop.wait(60)
        raise Interrupted("saved")
    return f"{job}: {len(os.sched_getaffinity(0))} core"

worker.train_job = train_job
sys.exit(worker.main())
"""


def test_jobs_have_results_until_stdin_closes(tmp_path):
    process = start(tmp_path, PROGRAM)
    assert process.stdin and process.stdout
    process.stdin.write('"a"\n"b"\n')
    process.stdin.flush()
    results = [json.loads(process.stdout.readline()) for _ in range(2)]
    assert results == ["a: 1 core", "b: 1 core"]
    assert process.communicate(timeout=60) == ("", None)
    assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["signal", "stdin"])
def test_a_worker_that_is_stopped_saves_and_exits(tmp_path, how):
    process = start(tmp_path, PROGRAM)
    assert process.stdin and process.stdout
    process.stdin.write('"a"\n"wait"\n')
    process.stdin.flush()
    assert process.stdout.readline()
    time.sleep(0.5)
    if how == "signal":
        os.kill(process.pid, signal.SIGINT)  # ignored
        process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == worker.EXIT_INTERRUPTED


@pytest.mark.slow
def test_an_actor_trains_pinned_until_it_is_stopped(tmp_path):
    program = (
        "import sys, threading\n"
        "from bss.training import worker\n"
        "from bss.training.distributed import Interrupted\n"
        "def train_job(job, stop):\n"
        "    if stop.is_set(): raise Interrupted('saved')\n"
        "    import os; print(os.environ['KIND'], len(os.sched_getaffinity(0)), flush=True)\n"
        "    return ''\n"
        "worker.train_job = train_job\n"
        f"actor = worker.ActorWorker({str(tmp_path)!r}, 'log', 1, {{'KIND': 'cpu'}})\n"
        "assert actor.train({}) == ''\n"
        "actor.stop()\n"
        "assert actor.train({}) is None\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "log").read_text().split() == ["cpu", "1"]
