"""The local engine: two workers, parents before branches, workers that die, interrupts."""

import dataclasses
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bss.sweeps.grid import overlay
from bss.sweeps.local import LocalEngine, WorkerProcess
from bss.sweeps.setup import VMAPPED_RUNS, EngineConfig
from bss.sweeps.table import lineage_curve, list_runs, run_table
from bss.tables import check_runs
from bss.training.run_config import Parent
from bss.training.run_directory import read_curve, read_executions, read_status


@pytest.fixture(scope="module")
def engine():
    """Two workers for all sweeps of this file."""
    with LocalEngine(EngineConfig(workers=2, retries=0)) as engine:
        yield engine


def test_a_sweep_with_a_branch_and_a_diverging_run(engine, tiny_run, tiny_execution, monkeypatch):
    execution = dataclasses.replace(tiny_execution, forks=(1024,))
    trunk = overlay(tiny_run, {"schedule.tokens": 1024})
    branch = overlay(tiny_run, {"schedule.tokens": 2048, "schedule.decay": 1024})
    branch = dataclasses.replace(branch, parent=Parent(trunk.id, 1024))
    wild = overlay(trunk, {"optimizer.lr": 1e30, "optimizer.clip": 0, "schedule.warmup": 0})
    orphan = dataclasses.replace(branch, parent=Parent(wild.id, 1024))
    refused = overlay(trunk, {"data.content": "0" * 64})
    runs = [branch, orphan, wild, refused, trunk]
    statuses = engine.train(runs, execution)
    told = [statuses[run.id].status for run in runs]
    assert told == ["finished", "skipped", "diverged", "failed", "finished"]
    assert "have hash" in statuses[refused.id].message

    runs.remove(refused)
    monkeypatch.setattr(WorkerProcess, "train", None)  # nothing is left to train
    assert engine.train(runs, execution) == {run.id: statuses[run.id] for run in runs}
    _check_index(Path(execution.runs), trunk, branch, wild)


def _check_index(runs: Path, trunk, branch, wild):
    records = {r["run"]: r for r in list_runs(runs)}
    assert {r["status"] for r in records.values()} == {"finished", "diverged"}
    assert records[branch.id]["parent"] == trunk.id
    assert records[wild.id]["eval_loss"] is None
    curve = lineage_curve(runs, branch)
    tokens = [row["tokens"] for row in curve]
    assert curve == read_curve(runs / trunk.id) + read_curve(runs / branch.id)
    assert tokens == sorted(set(tokens))
    assert tokens[-1] == 2048
    table = run_table(runs, [trunk, branch, wild])
    assert table.groupby("run").size().to_dict() == {
        trunk.id: len(read_curve(runs / trunk.id)),
        branch.id: len(curve),
    }
    check_runs(table)


ENDLESS = {"schedule.tokens": 20_000_000, "data.repeat": True}  # it is stopped long before


def signal_worker_once_running(engine, run, execution, number) -> threading.Thread:
    """Sends the first worker a signal as soon as it trains the run."""

    def send():
        while read_status(Path(execution.runs) / run.id).status != "running":
            time.sleep(0.01)
        os.kill(engine.workers[engine.slots()[0]].process.pid, number)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (signal.SIGKILL, "worker 0 was ended by SIGKILL (a guess: "),
        (signal.SIGTERM, "worker 0 ended with status 143"),
    ],
)
@pytest.mark.slow
def test_a_worker_that_leaves_is_replaced(
    engine, tiny_run, tiny_execution, monkeypatch, number, told
):
    long = overlay(tiny_run, ENDLESS | {"seed": 1})
    others = [overlay(tiny_run, {"schedule.tokens": 512, "seed": seed}) for seed in (2, 3)]
    one_slot = engine.slots()[:1]
    monkeypatch.setattr(engine, "slots", lambda: one_slot)
    sender = signal_worker_once_running(engine, long, tiny_execution, number)
    statuses = engine.train([long, *others], tiny_execution)
    sender.join()
    assert statuses[long.id].status == "failed"
    assert told in statuses[long.id].message
    assert [statuses[run.id].status for run in others] == ["finished", "finished"]


def test_errors_of_the_engine_itself_do_not_hang_it(tiny_run, tiny_execution, monkeypatch):
    trunk = overlay(tiny_run, {"schedule.tokens": 1024})
    branch = dataclasses.replace(tiny_run, parent=Parent(trunk.id, 1024))
    with LocalEngine(EngineConfig(workers=2, retries=0)) as engine:
        monkeypatch.setattr(engine, "start", lambda *_: 1 / 0)
        statuses = engine.train([branch, trunk], tiny_execution)
    assert statuses[trunk.id].message == "ZeroDivisionError: division by zero"
    assert statuses[branch.id].status == "skipped"


@pytest.mark.slow
def test_an_interrupt_saves_every_run(engine, tiny_run, tiny_execution):
    """The last of this file, as the engine's workers leave."""
    runs = [overlay(tiny_run, ENDLESS | {"seed": seed}) for seed in range(2)]
    paths = [Path(tiny_execution.runs) / run.id for run in runs]

    def interrupt():
        while not all(read_curve(path) for path in paths):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    sender = threading.Thread(target=interrupt)
    sender.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            engine.train(runs, tiny_execution)
    finally:
        sender.join()
        signal.signal(signal.SIGINT, previous)
    for path in paths:
        status = read_status(path)
        assert status.status == "interrupted"
        assert (path / "checkpoints" / str(status.tokens)).is_dir()


def test_small_models_share_a_program_on_accelerators(tiny_run, monkeypatch):
    monkeypatch.setattr("bss.sweeps.local.COMMAND", (sys.executable, "-c", "input()"))
    wide = overlay(tiny_run, {"model": {"name": "mini", "vocab_size": tiny_run.model.vocab_size}})

    def shared(**config):
        with LocalEngine(EngineConfig(workers=1, **config)) as engine:
            return [engine._runs_per_program(run) for run in (tiny_run, wide)]

    assert shared() == [1, 1]
    assert shared(vmap_runs=8) == [8, 8]
    monkeypatch.setattr("bss.sweeps.local.has_accelerators", lambda: True)
    assert shared() == [VMAPPED_RUNS, 1]
    assert shared(vmap_runs=8) == [8, 8]
    assert shared(fsdp=2) == [1, 1]


HANGS = """
import sys, time
from bss.training import distributed, worker
guard = distributed.HangGuard(0.2)
def hang(job, stop):
    guard.watch()
    time.sleep(60)
worker.train_job = hang
sys.exit(worker.main())
"""


@pytest.mark.slow
def test_a_step_that_hangs_ends_its_worker_and_is_tried_again(
    tiny_run, tiny_execution, monkeypatch
):
    monkeypatch.setattr("bss.sweeps.local.COMMAND", (sys.executable, "-c", HANGS))
    with (
        LocalEngine(EngineConfig(workers=1, retries=1, pin=False)) as engine,
        pytest.warns(RuntimeWarning, match=r"worker 0 ended with status 1.*again \(1 of 1\)"),
    ):
        statuses = engine.train([tiny_run], tiny_execution)
    assert statuses[tiny_run.id].status == "failed"
    assert "Timeout" in (Path(tiny_execution.runs) / "logs/worker-0.log").read_text()


@pytest.mark.slow
def test_two_sweeps_in_one_directory_train_each_run_once(tiny_run, tiny_execution):
    execution = dataclasses.replace(tiny_execution, forks=(1024,))
    trunk = overlay(tiny_run, {"schedule.tokens": 1024})
    branch = overlay(tiny_run, {"schedule.tokens": 2048, "schedule.decay": 1024})
    branch = dataclasses.replace(branch, parent=Parent(trunk.id, 1024))
    other = overlay(trunk, {"seed": 1})

    def sweep(runs):
        with LocalEngine(EngineConfig(workers=1, retries=0)) as engine:
            return engine.train(runs, execution)

    with ThreadPoolExecutor() as pool:
        both = [*pool.map(sweep, ([trunk, branch, other], [other, branch, trunk]))]
    for statuses in both:
        assert {status.status for status in statuses.values()} == {"finished"}, statuses
    for run in (trunk, branch, other):
        assert len(read_executions(Path(execution.runs) / run.id)) == 1
