"""Several processes on this machine train as one does: numbers, stops, deaths, mistakes."""

import dataclasses
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bss.data import synthetic
from bss.data.synthetic import SyntheticLanguage
from bss.errors import InputError
from bss.sweeps.grid import overlay
from bss.training.distributed import DistributedConfig, initialized
from bss.training.loop import train
from bss.training.run_directory import read_curve, read_status
from bss.values import to_dict

SCRIPT = (sys.executable, "-m", "tests.training.many_processes")


@pytest.fixture(scope="module")
def run(tiny_run):
    """20 steps through a batch change, a curve row behind each, with the noise scale."""
    changes = {
        "schedule.tokens": 960,
        "schedule.batch": "0:2 320:4",
        "schedule.warmup": 64,
        "evaluation.first": 32,
        "evaluation.per_efold": 1000,
        "noise_scale.half_life": 500,
    }
    return overlay(tiny_run, changes)


def job(run, *executions, **rest) -> dict:
    """A job of `many_processes`; with several executions, one a process."""
    told = [dataclasses.asdict(execution) for execution in executions]
    return {"run": to_dict(run), "execution": told if len(told) > 1 else told[0], **rest}


def started(folder: Path, processes: int, **environment: str) -> list[subprocess.Popen]:
    """Start processes that connect to each other and do the jobs of a folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    command = [*SCRIPT, str(folder), f"--processes={processes}", f"--coordinator={coordinator}"]
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    how["env"] = os.environ | environment
    return [subprocess.Popen([*command, f"--process={i}"], **how) for i in range(processes)]


def done_by(folder: Path, jobs: list[dict], processes: int, devices: int = 1) -> list[list[dict]]:
    """What each process tells of each job."""
    folder.mkdir(exist_ok=True)
    (folder / "jobs.json").write_text(json.dumps(jobs))
    every = started(folder, processes, JAX_NUM_CPU_DEVICES=str(devices))
    for process in every:
        printed, errors = process.communicate()
        assert process.returncode == 0, errors
        assert printed == ""
    return [json.loads((folder / f"{i}.json").read_text()) for i in range(processes)]


def assert_same_curve(path: Path, other: Path, tolerance: float = 1e-6, steps: int = 20) -> None:
    """Equal rows, none twice, losses and norms up to a relative tolerance."""
    curve, expected = read_curve(path), read_curve(other)
    assert [row["step"] for row in curve] == [*range(1, steps + 1)]
    for row, wanted in zip(curve, expected, strict=True):
        assert row.keys() == wanted.keys()
        for name in row.keys() - {"seconds", "noise_scale"}:
            loose = name == "grad_norm" or name.endswith("_se")
            within = 10 * tolerance if loose else tolerance
            np.testing.assert_allclose(row[name], wanted[name], rtol=within, err_msg=name)


@pytest.fixture(scope="module")
def alone(run, execution_in, tmp_path_factory):
    """The run's directory as one process on one device leaves it."""
    execution = dataclasses.replace(execution_in(tmp_path_factory.mktemp("alone")), buckets=(2,))
    assert train(run, execution).finished
    return Path(execution.runs) / run.id


@pytest.fixture(scope="module")
def two(run, execution_in, tmp_path_factory):
    """What two processes tell of seven jobs, by name; their executions, by name."""
    folder = tmp_path_factory.mktemp("two")
    names = ("whole", "stopped", "again", "other", "absent", "odd", "synthetic")
    here = {n: dataclasses.replace(execution_in(folder / n), buckets=(2,)) for n in names}
    absent = dataclasses.replace(here["absent"], data=str(folder / "nowhere"))
    odd = dataclasses.replace(here["odd"], buckets=(1,))
    language = overlay(run, {"data.corpus": "synthetic", "data.content": "synthetic"})
    jobs = {
        "whole": job(run, here["whole"]),
        "stopped": job(run, here["stopped"], stop=(1, 7)),
        "again": job(run, here["whole"]),
        "other": job(run, here["other"], dataclasses.replace(here["other"], buckets=())),
        "absent": job(run, here["absent"], absent),
        "odd": job(run, odd),
        "synthetic": job(language, here["synthetic"], batch=(5, 8, 3, 4)),
    }
    first, second = done_by(folder, [*jobs.values()], 2)
    return {name: pair for name, *pair in zip(jobs, first, second, strict=True)}, here


@pytest.mark.slow
def test_two_processes_are_one_through_a_batch_change(two, run, alone):
    told, here = two
    assert [one["status"]["status"] for one in told["whole"]] == ["finished"] * 2
    assert [one["status"]["recompilations"] for one in told["whole"]] == [0, 0]
    assert_same_curve(Path(here["whole"].runs) / run.id, alone)
    assert told["again"][0] == {**told["whole"][0], "made": []}


@pytest.mark.slow
def test_a_process_makes_only_its_rows(two):
    """Half of every bucket of 2."""
    first, second = (one["made"] for one in two[0]["whole"])
    assert (first, second) == ([*range(0, 60, 2)], [*range(1, 60, 2)])


@pytest.mark.slow
def test_of_the_synthetic_language_it_makes_a_block_of_its_rows(two, run):
    """Two buckets of 4 from position 5 on, and room for one more."""
    language = SyntheticLanguage(run.model.vocab_size, run.data.seq_len)
    whole = np.asarray(synthetic.sequences(language, 5, 8)).reshape(2, 4, -1)
    for half, outcome in enumerate(two[0]["synthetic"]):
        places = 1 + 4 * np.arange(512)[:, None] + [2 * half, 2 * half + 1]
        assert outcome["made"] == places.ravel().tolist()
        ((*counted, rest),) = outcome["rows"]
        np.testing.assert_array_equal(counted, whole[:, 2 * half : 2 * half + 2])
        assert not np.any(rest)


@pytest.mark.slow
def test_a_stop_asked_of_the_second_saves_all_at_one_step_and_one_process_continues(
    two, run, alone
):
    told, here = two
    directory = Path(here["stopped"].runs) / run.id
    status = read_status(directory)
    assert status.status == "interrupted"
    assert 7 * 32 <= status.tokens <= 9 * 32
    saved = f"run {run.id} saved at {status.tokens} tokens"
    assert [one["interrupted"] for one in told["stopped"]] == [saved] * 2
    assert (directory / "checkpoints" / str(status.tokens)).is_dir()
    with pytest.warns(RuntimeWarning, match="processes"):
        assert train(run, here["stopped"]).finished
    assert_same_curve(directory, alone)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("other", r"^execution\.buckets is \[\] in process 1 and \[2\] in process 0; start all"),
        ("absent", "process 1: shards: cannot read .*nowhere"),
        ("odd", "bucket 1 cannot be split over 2 devices"),
    ],
)
def test_a_mistake_of_one_is_told_by_all(two, name, mistake):
    told, _ = two
    first, second = (one["mistake"] for one in told[name])
    assert first == second
    with pytest.raises(InputError, match=mistake):
        raise InputError(first)


@pytest.mark.parametrize(
    ("asked", "mistake"),
    [
        ((2, "127.0.0.1:1", 1, 1), "127.0.0.1:1 cannot be reached within 1 seconds"),
        ((2, "somewhere", 0), "coordinator is 'somewhere'; expected HOST:PORT, of a port"),
        ((2, "127.0.0.1:1", 2), "process is 2 of 2; with a coordinator"),
        ((2, "127.0.0.1:1"), "process is None of 2"),
        ((2,), "coordinator is ''; expected HOST:PORT, of a port from 1 to 65535, or auto"),
        ((2, "here:65536", 0), "coordinator is 'here:65536'; expected"),
        ((2, "127.0.0.1:1", -1), "process is -1 of 2"),
        ((0,), r"distributed.processes is 0; expected 1"),
    ],
)
def test_what_cannot_connect_is_reported_in_one_line(asked, mistake):
    with pytest.raises(InputError, match=mistake), initialized(DistributedConfig(*asked)):
        raise AssertionError("connected")


@pytest.mark.slow
def test_sigterm_in_one_process_saves_all_at_one_step(run, execution_in, tmp_path):
    longer = overlay(run, {"schedule.tokens": 10_000_000, "data.repeat": True})
    execution = dataclasses.replace(execution_in(tmp_path / "runs"), buckets=(2,))
    (tmp_path / "jobs.json").write_text(json.dumps([job(longer, execution)]))
    every, directory = started(tmp_path, 2), Path(execution.runs) / longer.id
    while not read_curve(directory):
        assert all(process.poll() is None for process in every)
        time.sleep(0.05)
    every[1].terminate()
    for process in every:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    status = read_status(directory)
    assert status.status == "interrupted"
    assert (directory / "checkpoints" / str(status.tokens)).is_dir()


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "devices", "fsdp"), [(2, 4, 1), (4, 2, 2)])
def test_many_processes_and_devices_are_one(
    run, tiny_transformer, execution_in, tmp_path, processes, devices, fsdp
):
    """Split weights are those of a transformer."""
    size = processes * devices
    if fsdp > 1:
        run = dataclasses.replace(run, model=tiny_transformer.model)
    longer = overlay(run, {"schedule.tokens": 1600, "schedule.batch": f"0:{size} 50%:{2 * size}"})
    execution = dataclasses.replace(execution_in(tmp_path / "runs"), buckets=(size,), devices=0)
    one = dataclasses.replace(execution, runs=str(tmp_path / "one"), devices=1)
    asked = [job(longer, dataclasses.replace(execution, fsdp=fsdp))]
    for (outcome,) in done_by(tmp_path, asked, processes, devices):
        assert outcome["devices"] == size
    assert train(longer, one).finished
    path, other = (Path(e.runs) / longer.id for e in (execution, one))
    assert_same_curve(path, other, steps=longer.plan().steps)


def killed(folder: Path, victim: int, ready, after: float) -> None:
    """Two processes begin the job; one is killed once it is `ready`; the other leaves by itself."""
    every = started(folder, 2)
    while not ready():
        assert all(process.poll() is None for process in every)
        time.sleep(0.005)
    time.sleep(after)
    every[victim].kill()
    _, lines = every[1 - victim].communicate(timeout=60)
    assert every[1 - victim].returncode not in (0, None), lines
    every[victim].communicate()
    assert every[victim].returncode == -signal.SIGKILL


@pytest.fixture(scope="module")
def longer(run):
    """A run that lasts for two deaths, and some rows behind them."""
    return overlay(run, {"schedule.tokens": 9600, "schedule.batch": "0:4 50%:8"})


@pytest.fixture(scope="module")
def killed_twice(longer, execution_in, tmp_path_factory):
    """The execution of a run in two processes, each of which was killed once at a random point."""
    folder = tmp_path_factory.mktemp("killed")
    execution = dataclasses.replace(execution_in(folder / "runs"), buckets=(4,))
    saving = dataclasses.replace(execution, checkpoint_seconds=0)
    (folder / "jobs.json").write_text(json.dumps([job(longer, saving)]))
    directory = Path(execution.runs) / longer.id
    draw = random.Random(0)

    def rows() -> int:
        return len(read_curve(directory))

    for victim in (0, 1):
        before = rows()
        killed(folder, victim, lambda b=before: rows() > b + 1, draw.uniform(0, 0.2))
        assert read_status(directory).status == "running"
    return execution


@pytest.fixture(scope="module")
def undisturbed(longer, killed_twice, tmp_path_factory):
    """The execution of the run without a death, by its number of processes."""

    @cache
    def trained(processes: int):
        folder = tmp_path_factory.mktemp("undisturbed")
        execution = dataclasses.replace(killed_twice, runs=str(folder / "runs"))
        done_by(folder, [job(longer, execution)], processes)
        return execution

    return trained


@pytest.mark.slow
@pytest.mark.parametrize("then", [2, 4, 1])
def test_killed_at_random_points_it_continues_in_any_number_of_processes(
    longer, killed_twice, undisturbed, assert_same_outcome, tmp_path, then
):
    """In two processes as before it is equal to the bit."""
    execution = dataclasses.replace(killed_twice, runs=str(tmp_path / "runs"))
    shutil.copytree(killed_twice.runs, execution.runs)
    done_by(tmp_path, [job(longer, execution)], then)
    other = undisturbed(2 if then == 2 else 1)
    path, expected = (Path(e.runs) / longer.id for e in (execution, other))
    assert_same_curve(path, expected, steps=longer.plan().steps)
    if then == 2:
        assert_same_outcome(longer, execution, longer, other)
