"""Slots filled: each worker its own devices, all of them used, the longest runs first."""

import dataclasses
import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from bss.sweeps import local
from bss.sweeps.grid import overlay
from bss.sweeps.local import LocalEngine
from bss.sweeps.queue import lengths
from bss.sweeps.setup import EngineConfig
from bss.training.run_config import Parent


@pytest.fixture
def sweep(monkeypatch, tiny_execution):
    """Runs "trained" by fake workers in the slots of a config: their records, and the statuses."""
    fake = str(Path(__file__).with_name("fake_worker.py"))
    monkeypatch.setattr(local, "COMMAND", (sys.executable, "-S", fake))

    def train(runs, **config):
        with LocalEngine(EngineConfig(**config)) as engine:
            statuses = engine.train(runs, tiny_execution)
        lines = (Path(tiny_execution.runs) / "records.jsonl").read_text().splitlines()
        return sorted(map(json.loads, lines), key=lambda record: record["began"]), statuses

    return train


@pytest.fixture
def eight_gpus(monkeypatch):
    """A machine that seems to have eight GPUs."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "jax_plugins")
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")


def of_lengths(run, *tokens):
    return [overlay(run, {"schedule.tokens": t, "seed": i}) for i, t in enumerate(tokens)]


@pytest.mark.parametrize(("devices", "workers", "most"), [(0, 0, 8), (2, 0, 4), (0, 2, 2)])
def test_each_run_has_devices_of_its_own(sweep, eight_gpus, tiny_run, devices, workers, most):
    runs = of_lengths(tiny_run, *(1024 + 128 * (i % 5) for i in range(18)))
    told, statuses = sweep(runs, devices=devices, workers=workers, vmap_runs=1)
    assert len(told) == len(statuses) == len(runs)
    used = {event["devices"] for event in told}
    assert len(used) == most
    seen = [device for devices in used for device in devices.split(",")]
    assert sorted(seen) == list("01234567")
    first = []
    for devices in used:
        own = [event for event in told if event["devices"] == devices]
        assert all(a["ended"] <= b["began"] for a, b in pairwise(own))
        first.append(own[0]["tokens"])
    assert first.count(1536) == min(3, most)


def test_the_longest_chains_go_first_and_parents_before_branches(sweep, tiny_run):
    trunk, middle, short = of_lengths(tiny_run, 2048, 3072, 1024)
    branch = overlay(tiny_run, {"schedule.tokens": 4096, "schedule.decay": 1024})
    branch = dataclasses.replace(branch, parent=Parent(trunk.id, 2048))
    runs = [short, branch, middle, trunk]
    told, _ = sweep(runs, workers=1)
    assert [event["tokens"] for event in told] == [2048, 3072, 4096, 1024]
    far = lengths(runs)
    assert far[trunk.id] == far[branch.id] + lengths([trunk])[trunk.id]


def test_a_run_whose_worker_dies_is_tried_again(sweep, tiny_run):
    fatal, other = (overlay(tiny_run, {"schedule.tokens": 512, "seed": s}) for s in (99, 1))
    with pytest.warns(
        RuntimeWarning, match=rf"{fatal.id}: worker 0 ended with status 1.*again \(1 of 1\)"
    ):
        told, statuses = sweep([fatal, other], workers=1, retries=1)
    assert {status.status for status in statuses.values()} == {"finished"}
    assert sorted(event["seed"] for event in told) == [1, 99]


def test_a_run_whose_worker_dies_too_often_has_failed(sweep, tiny_run):
    fatal, other = (overlay(tiny_run, {"schedule.tokens": 512, "seed": s}) for s in (99, 1))
    _, statuses = sweep([fatal, other], workers=1, retries=0)
    assert statuses[other.id].finished
    assert statuses[fatal.id].status == "failed"
    assert "worker 0 ended with status 1; see " in statuses[fatal.id].message
