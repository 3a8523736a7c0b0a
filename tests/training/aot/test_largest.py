"""Buckets chosen by memory: those that a device of little of it takes, and the same numbers."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from bss.errors import InputError
from bss.machines.absent import Machine
from bss.machines.program import Bound, Memory
from bss.machines.targets import Target
from bss.schedules.batch import BatchSchedule
from bss.training.aot import largest
from bss.training.aot.compiled import Examined
from bss.training.aot.largest import by_memory, fastest_bucket
from bss.training.devices.mesh import make_mesh
from bss.training.execution import Execution
from bss.training.running.loop import train


def step(bucket, peak, memory, speed=None):
    """A step of one bucket that takes so much, at a speed that grows with it."""
    speed = speed or bucket
    memory = Memory(0, 0, peak, peak <= memory)
    return Examined("train", bucket, memory, None, Bound(1.0, speed, 1.0, "memory"), 0.0)


@pytest.fixture
def device_of(monkeypatch):
    """Makes the devices here hold so many bytes."""

    def make(memory):
        target = Target("small", (), memory, 1e9, 1e12)
        monkeypatch.setattr(
            largest,
            "_present",
            lambda mesh: Machine("small", target, [*mesh.devices.flat], memory),
        )

    return make


@pytest.fixture
def growing(tiny_run):
    """A run of batches 6 and 12."""
    schedule = dataclasses.replace(tiny_run.schedule, batch=BatchSchedule((0, 192), (6, 12)))
    return dataclasses.replace(tiny_run, schedule=schedule)


@pytest.mark.parametrize(
    ("memory", "asked", "buckets"),
    [(80, (), (6,)), (500, (), (6, 12)), (45, (), (3, 4)), (45, (1, 2, 3, 6), (1, 2, 3))],
)
def test_buckets_are_those_that_fit(memory, asked, buckets, growing, device_of, monkeypatch):
    """Of planted memory, 10 bytes for each sequence; none is tried beyond the largest batch."""
    tried = []

    def planted(run, bucket, *_):
        tried.append(bucket)
        return step(bucket, 10 * bucket, memory)

    monkeypatch.setattr(largest, "one_bucket", planted)
    device_of(memory)
    execution = Execution(buckets=asked, fit=True)
    chosen = by_memory(growing, execution, growing.plan(), make_mesh(1))
    assert chosen == dataclasses.replace(execution, buckets=buckets)
    assert max(tried) <= 12


@pytest.mark.slow
def test_a_run_in_what_fits_has_the_numbers_of_any_other(
    growing, device_of, execution_in, tmp_path
):
    """Of its compiled programs: the buckets fit, the next would not."""
    mesh = make_mesh(1)
    plain = dataclasses.replace(execution_in(tmp_path / "plain"), devices=1, buckets=(6, 12))
    machine = Machine("small", Target("small", (), 1e12, 1e9, 1e12), [*mesh.devices.flat], 1e12)
    four = largest.one_bucket(growing, 4, plain, machine).memory.peak_bytes
    device_of(four)
    fitting = dataclasses.replace(
        execution_in(tmp_path / "fitting"), devices=1, buckets=(), fit=True
    )
    chosen = by_memory(growing, fitting, growing.plan(), mesh)
    assert (chosen.buckets, fastest_bucket(growing, plain, machine, 12).bucket) == ((3, 4), 12)
    losses = [train(growing, execution).losses["eval_loss"] for execution in (plain, fitting)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


def test_what_cannot_be_chosen_is_told(growing, device_of):
    execution = Execution(fit=True)
    with pytest.raises(InputError, match=r"execution.fit: what a cpu holds is not known"):
        by_memory(growing, execution, growing.plan(), make_mesh(1))
    device_of(100)
    with pytest.raises(InputError, match=r"does not fit; one sequence on each device needs .* GB"):
        by_memory(growing, execution, growing.plan(), make_mesh(1))


@pytest.mark.parametrize(
    ("memory", "most", "bucket", "peak"),
    [
        (19, 64, 2, 17),
        (16, 64, 1, 12),
        (11, 64, None, 12),
        (1000, 64, 64, 327),
        (1000, 48, 48, 247),
    ],
)
def test_the_fastest_bucket_is_a_power_of_two_or_the_most(memory, most, bucket, peak, monkeypatch):
    """Of planted memory, 7 bytes and 5 for each sequence; the model has no rematerialisation."""
    monkeypatch.setattr(
        largest,
        "one_bucket",
        lambda run, size, *_: step(size, 7 + 5 * size, memory),
    )
    machine = Machine("small", Target("small", (), memory, 1.0, 1.0), [None], memory)
    run: Any = SimpleNamespace(model=object())
    found = fastest_bucket(run, Execution(), machine, most)
    speed = float(bucket or 0)
    assert found == largest.Largest(False, bucket, peak, speed, bucket)


def test_the_fastest_of_those_that_fit_is_chosen(monkeypatch):
    """Of planted speeds, which fall from 16 on, as where XLA computes parts again."""
    speeds = {1: 1.0, 2: 2.0, 4: 3.0, 8: 4.0, 16: 3.5, 32: 3.0}
    monkeypatch.setattr(
        largest,
        "one_bucket",
        lambda run, size, *_: step(size, 10 * size, 320, speeds[min(size, 32)]),
    )
    machine = Machine("small", Target("small", (), 320, 1.0, 1.0), [None], 320)
    run: Any = SimpleNamespace(model=object())
    found = fastest_bucket(run, Execution(), machine)
    assert found == largest.Largest(False, 8, 80, 4.0, 32)
