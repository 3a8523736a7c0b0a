"""Runs that a process trains one after another share programs, with the numbers they have alone."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest

from bss.sweeps.branching import decayed
from bss.sweeps.grid import overlay
from bss.training import program_cache
from bss.training.loop import train
from bss.training.optimizers import AdamW
from bss.training.run_directory import read_curve
from bss.training.vmapped import vmap_key


@pytest.fixture
def compiled(monkeypatch):
    """The keys of the programs that were compiled."""
    monkeypatch.setattr(program_cache, "PROGRAMS", kept := {})
    return kept


@pytest.fixture
def trained(tiny_execution):
    """Trains a run in a folder of its own: its curve without seconds."""

    def train_in(folder, run, **settings):
        runs = f"{tiny_execution.runs}/{folder}"
        execution = dataclasses.replace(tiny_execution, runs=runs, **settings)
        assert train(run, execution).finished
        rows = read_curve(Path(execution.runs) / run.id)
        return [{name: x for name, x in row.items() if name != "seconds"} for row in rows]

    return train_in


SHORT = {"schedule.tokens": 1024, "schedule.batch": "4", "averages": ("4%",)}


CHANGES = (
    {"optimizer.lr": 3e-3, "optimizer.beta1": 0.5, "optimizer.weight_decay": 0.0},
    {"seed": 1, "data.seed": 1},
    {"schedule.rate": "cosine", "schedule.warmup": 0},
    {"optimizer.eps": 1e-3},
    {"optimizer.clip": 0.1},
    {"model.shrink": 1.0},
    {"averages": ()},
    {"schedule.batch": "2"},
    {"noise_scale.half_life": 500},
    {"optimizer.name": "schedule_free"},
)


# The fast half: what is traced, what is compiled in, and what changes the state.
@pytest.mark.parametrize(
    "some",
    [
        pytest.param((CHANGES[0], CHANGES[3], CHANGES[6]), id="three"),
        pytest.param(CHANGES, id="all", marks=pytest.mark.slow),
    ],
)
def test_runs_after_others_have_the_bits_that_they_have_alone(tiny_run, compiled, trained, some):
    first = overlay(tiny_run, SHORT)
    runs = [first, *(overlay(first, changes) for changes in some)]
    alone = []
    for i, run in enumerate(runs):
        compiled.clear()
        alone.append(trained(f"alone/{i}", run))
    assert all(alone[0] != one for one in alone[1:])
    compiled.clear()
    for run, changes, expected in zip(runs, ({}, *some), alone, strict=True):
        assert trained("together", run) == expected, changes


def test_rates_and_schedules_compile_nothing(tiny_run, compiled, trained):
    trained("runs", overlay(tiny_run, SHORT))
    before = {*compiled}
    trained("runs", overlay(tiny_run, SHORT | {"schedule.rate": "cosine"}))
    changed = overlay(tiny_run, SHORT | {"optimizer.lr": 3e-3, "optimizer.weight_decay": 0.5})
    trained("runs", changed)
    trained("runs", decayed(changed, 0.2))
    assert {*compiled} == before


def test_batches_of_one_micro_batch_size_compile_one_program(tiny_run, compiled, trained):
    one, two, ramp = (
        overlay(tiny_run, SHORT | {"schedule.batch": b}) for b in ("2", "4", "0:2 512:8")
    )
    alone = trained("alone", two, buckets=(2,))
    compiled.clear()
    trained("runs", one, buckets=(2,))
    before = {*compiled}
    assert trained("runs", two, buckets=(2,)) == alone
    trained("runs", ramp, buckets=(2,))
    assert {*compiled} == before


class Own(AdamW):
    """Of a user, whose `direction` may read `self.lr`."""


def test_an_optimizer_of_ones_own_shares_no_program_between_rates(tiny_run):
    runs = [dataclasses.replace(tiny_run, optimizer=Own(lr=lr)) for lr in (1e-3, 2e-3)]
    assert program_cache.step_key(runs[0]) != program_cache.step_key(runs[1])


def test_the_programs_that_were_used_last_are_kept(compiled, monkeypatch):
    monkeypatch.setattr(program_cache, "_KEPT", 2)
    jitted = SimpleNamespace(lower=lambda: SimpleNamespace(compile=lambda options: object()))
    first = program_cache.compile_cached("a", jitted)
    program_cache.compile_cached("b", jitted)
    assert program_cache.compile_cached("a", jitted) is first
    program_cache.compile_cached("c", jitted)
    assert [key[0] for key in compiled] == ["a", "c"]


def test_muons_rates_are_compiled_in(tiny_run, tiny_execution, compiled, trained):
    """The factor of its other group is `adam_lr / lr`."""
    first = overlay(tiny_run, {**SHORT, "optimizer.name": "muon", "optimizer.lr": 1e-2})
    run = overlay(first, {"optimizer.lr": 8e-2})
    assert vmap_key(run, tiny_execution) != vmap_key(first, tiny_execution)
    alone = trained("alone", run)
    compiled.clear()
    trained("first", first)
    assert trained("second", run) == alone
