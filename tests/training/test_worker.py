"""A worker by its lines: what it answers to jobs, and how it leaves. Nothing is trained."""

import json
import os
import signal
import sys
import time
import warnings

import pytest

from bss.errors import InputError
from bss.sweeps.grid import overlay
from bss.training import loop, worker
from bss.training.run_directory import RunStatus
from bss.values import to_dict


def train(run, execution, *, report, stop):
    """Trains nothing: a run's seed tells what becomes of it."""
    assert not stop.is_set()
    report({"run": run.id, "tokens": 64})
    if run.seed == 1:
        raise InputError("no such data")
    if run.seed == 2:
        raise OSError("disk is full")
    if run.seed == 3:
        raise loop.Interrupted("saved")
    return RunStatus("running", 64 + run.seed)


def train_vmapped(runs, execution, *, report, stop):
    """The same of runs side by side."""
    report({"run": runs[0].id, "tokens": 32})
    return {run.id: RunStatus("interrupted", len(runs)) for run in runs}


class Lines:
    """A standard input that closes when so many jobs are answered."""

    def __init__(self, lines, file, count):
        self.lines, self.file, self.count = lines, file, count

    def __iter__(self):
        yield from self.lines
        end = time.monotonic() + 20
        while self.answered() < self.count and time.monotonic() < end:
            time.sleep(0.01)

    def answered(self):
        """How many jobs are."""
        return sum('"progress"' not in line for line in self.file.read_text().splitlines())


@pytest.fixture
def answered(tiny_run, tmp_path, monkeypatch):
    """Serves jobs of runs by their seeds; the answers, the exit status and the core."""

    def serve(*jobs, core=7):
        file, cores, files, open_ = tmp_path / "answers", [], [], os.fdopen
        file.touch()
        lines = [
            json.dumps({"runs": [to_dict(overlay(tiny_run, {"seed": s})) for s in seeds]} | rest)
            for seeds, rest in jobs
        ]
        monkeypatch.setattr(loop, "train", train)
        monkeypatch.setattr(loop, "train_vmapped", train_vmapped)
        monkeypatch.setattr(sys, "argv", ["worker", *([f"--core={core}"] if core else [])])
        monkeypatch.setattr(sys, "stdin", Lines(lines, file, len(jobs)))
        with monkeypatch.context() as patch:
            patch.setattr(os, "dup", lambda fd: os.open(file, os.O_WRONLY) if fd == 1 else -1)
            patch.setattr(
                os, "fdopen", lambda *how, **more: files.append(open_(*how, **more)) or files[0]
            )
            patch.setattr(os, "dup2", lambda *fds: cores.append(fds))
            patch.setattr(os, "sched_getaffinity", lambda process: {9, 4, 6 + process})
            patch.setattr(os, "sched_setaffinity", lambda *given: cores.append(given))
            before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
            try:
                with warnings.catch_warnings(record=True) as said:
                    status = worker.main()
                    for _ in range(2):
                        warnings.warn("each time", RuntimeWarning, stacklevel=1)
                assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN and len(said) == 2
            finally:
                for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
                    signal.signal(number, handler)
        files[0].close()
        answers = [json.loads(line) for line in file.read_text().splitlines()]
        return answers, status, cores

    return serve


ALONE = {"execution": {"buckets": [2]}, "fleet": False}
FLEET = ALONE | {"fleet": True}
WRONG = {"execution": {"bucket": [2]}, "fleet": False}


def test_jobs_are_answered_until_standard_input_closes(answered):
    answers, status, cores = answered(
        ([0, 4], ALONE), ([1], ALONE), ([2], ALONE), ([0, 4], FLEET), ([0], WRONG)
    )
    assert status == 0
    assert cores == [(0, {6}), (2, 1)]  # the seventh of three cores from 0; prints go to the log
    first, second, done, third, data, fourth, disk, fifth, fleet, wrong = answers
    tokens = [one["tokens"] for one in (first, second, third, fourth, fifth)]
    assert tokens == [64, 64, 64, 64, 32]
    assert first["event"] == "progress" and done["event"] == "done"
    assert [*done["statuses"]] == [first["run"], second["run"]]
    assert [one["tokens"] for one in done["statuses"].values()] == [64, 68]
    assert data == {"event": "failed", "message": "no such data"}
    assert disk == {"event": "failed", "message": "disk is full"}
    assert [one["tokens"] for one in fleet["statuses"].values()] == [2, 2]
    assert wrong["event"] == "failed" and "bucket" in wrong["message"]


def test_an_interrupted_run_ends_the_worker(answered):
    answers, status, cores = answered(([3], ALONE), core=None)
    assert [answer["event"] for answer in answers] == ["progress", "interrupted"]
    assert status == 143 and cores == [(2, 1)]
