"""Sweeps on a Ray cluster of this machine: killed workers and nodes change no curve."""

import dataclasses
import os
import re
import signal
import threading
import time
import warnings
from pathlib import Path

import pytest

from benchmarks.unattended.kills import workers_of
from bss.errors import InputError
from bss.sweeps.cluster import RayEngine
from bss.sweeps.grid import overlay
from bss.sweeps.local import LocalEngine
from bss.sweeps.setup import EngineConfig
from bss.training.run_directory import read_curve, read_executions

pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("default")  # Ray's own


@pytest.fixture
def cluster(request):
    """A Ray cluster: a head with so many cores, to which nodes are added."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": getattr(request, "param", 0), "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=head)
    yield made
    made.shutdown()


def wait_for_checkpoints(runs: Path, at_least: int) -> None:
    """Returns when so many runs have begun to write one."""
    while sum(1 for _ in runs.glob("*/checkpoints/[0-9]*")) < at_least:
        time.sleep(0.05)


def disturbed(engine, runs, execution, *disturbances):
    """Trains, while each disturbance is called once there are more checkpoints than before."""
    folder = Path(execution.runs)

    def disturb():
        for i, disturbance in enumerate(disturbances):
            wait_for_checkpoints(folder, 1 + 2 * i)
            disturbance()

    thread = threading.Thread(target=disturb)
    thread.start()
    with engine, pytest.warns(RuntimeWarning, match=r"trying again"):
        statuses = engine.train(runs, execution)
    thread.join()
    assert {status.status for status in statuses.values()} == {"finished"}, statuses


def kill_worker(execution):
    os.kill(workers_of(Path(execution.runs))[0], signal.SIGKILL)


def curves(runs, execution):
    """All columns of all curves, but the seconds."""
    folder = Path(execution.runs)
    rows = {run.id: read_curve(folder / run.id) for run in runs}
    return {run: [row | {"seconds": None} for row in curve] for run, curve in rows.items()}


def check_as_undisturbed(runs, execution):
    undisturbed = dataclasses.replace(execution, runs=f"{execution.runs}-undisturbed")
    with LocalEngine(EngineConfig(retries=0)) as engine:
        engine.train(runs, undisturbed)
    told = curves(runs, undisturbed)
    assert curves(runs, execution) == told
    assert min(map(len, told.values())) > 3


def often_saved(run, execution, count, tokens):
    """Runs that save at every step, so that there is much to kill."""
    changes = {"schedule.tokens": tokens, "schedule.batch": "0:2 512:4 1024:8"}
    runs = [overlay(run, changes | {"seed": seed}) for seed in range(count)]
    return runs, dataclasses.replace(execution, checkpoint_seconds=0)


@pytest.mark.parametrize("cluster", [1], indirect=True)
def test_a_killed_worker_changes_no_curve(cluster, tiny_run, tiny_execution):
    runs, execution = often_saved(tiny_run, tiny_execution, 2, 1280)
    disturbed(
        RayEngine(EngineConfig(address=cluster.address)),
        runs,
        execution,
        lambda: kill_worker(execution),
    )
    starts = {run.id: len(read_executions(Path(execution.runs) / run.id)) for run in runs}
    assert sorted(starts.values()) == [1, 2]
    check_as_undisturbed([run for run in runs if starts[run.id] == 2], execution)


@pytest.mark.slow
def test_too_few_devices_are_refused(cluster, monkeypatch):
    with pytest.raises(InputError, match=r"devices is 1; no node .* has more than 0 CPUs"):
        RayEngine(EngineConfig(address=cluster.address))
    cluster.add_node(num_cpus=2, num_gpus=2)
    monkeypatch.setattr("bss.sweeps.cluster.uses_cpu", lambda: False)
    with pytest.raises(InputError, match=r"devices is 3; no node .* has more than 2 GPUs"):
        RayEngine(EngineConfig(address=cluster.address, devices=3))


@pytest.mark.slow
def test_a_killed_node_and_two_workers_change_no_curve(cluster, tiny_run, tiny_execution):
    nodes = [cluster.add_node(num_cpus=2) for _ in range(2)]
    runs, execution = often_saved(tiny_run, tiny_execution, 12, 3072)
    disturbed(
        RayEngine(EngineConfig(address=cluster.address, retries=5)),
        runs,
        execution,
        lambda: kill_worker(execution),
        lambda: cluster.remove_node(nodes[0], allow_graceful=False),
        lambda: kill_worker(execution),
    )
    starts = [len(read_executions(Path(execution.runs) / run.id)) for run in runs]
    assert sum(starts) > len(runs)
    check_as_undisturbed(runs, execution)


@pytest.mark.slow
def test_what_a_dead_node_prints_is_a_line(cluster, tiny_run, tiny_execution, capfd):
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    runs, execution = often_saved(tiny_run, tiny_execution, 4, 2048)
    capfd.readouterr()

    def kill_node():
        wait_for_checkpoints(Path(execution.runs), 1)
        cluster.remove_node(nodes[0], allow_graceful=False)

    killing = threading.Thread(target=kill_node)
    with RayEngine(EngineConfig(address=cluster.address)) as engine:
        killing.start()
        with warnings.catch_warnings(record=True) as lines:
            warnings.simplefilter("always")
            statuses = engine.train(runs, execution)
        killing.join()
    assert {status.status for status in statuses.values()} == {"finished"}
    told = [str(one.message) for one in lines if one.category is RuntimeWarning]
    (line,) = [text for text in told if "os.fork()" not in text]  # JAX warns of the cluster's
    assert re.fullmatch(
        r"run \w{12}: worker .*-\w{6}-0 died, or its node .*; see .*; trying again \(1 of 2\)", line
    )
    assert capfd.readouterr() == ("", "")
