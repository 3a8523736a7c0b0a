"""Runs of several processes in a sweep: where they are trained; they equal those of one."""

import dataclasses
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from bss.errors import InputError
from bss.sweeps.engines import LocalEngine
from bss.sweeps.grid import overlay
from bss.sweeps.setup import EngineConfig
from bss.sweeps.workers import Team, WorkerProcess
from bss.training.hardware import Slot
from bss.training.run_directory import read_curve, read_executions


@pytest.fixture
def two_sizes(tiny_transformer):
    """A run, a larger one, and what gives the latter two processes."""
    large = overlay(tiny_transformer, {"model.num_layers": 3, "schedule.tokens": 2048})
    small = overlay(tiny_transformer, {"schedule.tokens": 512})
    return small, large, f"0:1 {large.model.counts().non_embedding}:2"


class FakeWorker:
    """Tells these events, and how it ended."""

    def __init__(self, *events, how="ended with status 0"):
        self.events, self.how = events, how

    def train(self, job):
        """The events."""
        yield from ({"event": event} for event in self.events)

    def stop(self):
        """Has nothing to save."""

    def close(self):
        """How it ended."""
        return self.how


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (("progress", "done"), ("done",), ["progress", "done"]),
        (("progress",), ("failed",), ["progress", "failed"]),  # it alone has found a mistake
        (("progress",), (), ["progress"]),
        (("interrupted",), ("interrupted",), ["interrupted"]),
    ],
)
def test_the_first_of_a_team_tells(first, second, told):
    team = Team([FakeWorker(*first), FakeWorker(*second, how="was ended by SIGKILL")])
    assert [event["event"] for event in team.train({"runs": []})] == told
    assert team.close() == "ended with status 0, was ended by SIGKILL"


def test_too_few_slots_are_refused_before_anything_is_started(two_sizes, tiny_execution):
    small, large, processes = two_sizes
    engine = LocalEngine(EngineConfig(workers=1, processes=processes))
    told = rf"processes is {processes}: run {large.id} asks for 2 slots .* there are 1; ask"
    with pytest.raises(InputError, match=told):
        engine.train([small, large], tiny_execution)
    assert not engine.workers
    assert not Path(tiny_execution.runs).exists()


def test_processes_of_a_run_are_on_nodes_of_their_own(monkeypatch):
    engine = LocalEngine(EngineConfig(workers=1))
    slots = [Slot(f"{node}-{i}", node=node) for i in range(2) for node in "ab"]
    monkeypatch.setattr(engine, "slots", lambda: slots)
    share = engine._share
    assert [slot.name for slot in share(slots, 2)] == ["a-0", "b-0"]
    assert [slot.name for slot in share(slots, 1)] == ["a-0"]
    assert len(share(slots, 3)) == 2
    assert len(share([slots[0], slots[2]], 2)) == 1  # those of b are not free
    monkeypatch.setattr(engine, "slots", lambda: slots[::2])
    assert [slot.name for slot in share(slots[::2], 2)] == ["a-0", "a-1"]


def test_a_fleet_of_runs_of_several_processes_is_refused():
    with pytest.raises(InputError, match="fleet: 8 given; write 1: a run of several processes"):
        LocalEngine(EngineConfig(fleet=8, processes="0:1 5M:2"))


def assert_close(run, runs, other):
    """Equal curves, losses up to a relative 2e-6."""
    curve, expected = read_curve(runs / run.id), read_curve(other / run.id)
    assert [row["tokens"] for row in curve] == [row["tokens"] for row in expected]
    for name in ("loss", "eval_loss"):
        wanted = [row[name] for row in expected]
        np.testing.assert_allclose([row[name] for row in curve], wanted, rtol=2e-6)


@pytest.mark.slow
def test_a_run_of_two_processes_one_of_which_is_killed_equals_one(two_sizes, tiny_execution):
    small, large, processes = two_sizes
    execution = dataclasses.replace(tiny_execution, buckets=(2,), checkpoint_seconds=0)
    alone = dataclasses.replace(execution, runs=f"{execution.runs}-alone")
    with LocalEngine(EngineConfig(workers=2)) as one:
        one.train([small, large], alone)
    runs, engine = Path(execution.runs), LocalEngine(EngineConfig(workers=2, processes=processes))

    def kill():
        while not list((runs / large.id).glob("checkpoints/[0-9]*")):
            time.sleep(0.01)
        team = engine.workers[engine.slots()[0]]
        assert isinstance(team, Team) and isinstance(team.workers[1], WorkerProcess)
        os.kill(team.workers[1].pid, signal.SIGKILL)

    killing = threading.Thread(target=kill)
    told = r"worker 0 and 1 .*SIGKILL.*trying again \(1 of 2\)"
    with engine:
        killing.start()
        with pytest.warns(RuntimeWarning, match=told):
            statuses = engine.train([small, large], execution)
        killing.join()
    assert [statuses[run.id].status for run in (small, large)] == ["finished"] * 2
    executions = read_executions(runs / large.id)
    assert [one["processes"] for one in executions] == [2, 2]
    assert len(read_curve(runs / large.id)) > 3
    for run in (small, large):
        assert_close(run, runs, Path(alone.runs))
