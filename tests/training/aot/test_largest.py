"""The fastest bucket that a machine holds."""

from types import SimpleNamespace
from typing import Any

import pytest

from bss.machines.absent import Machine
from bss.machines.program import Bound, Memory
from bss.machines.targets import Target
from bss.training.aot import largest
from bss.training.aot.compiled import Examined
from bss.training.aot.largest import fastest_bucket
from bss.training.execution import Execution


@pytest.fixture(scope="module")
def tiny_run(tiny_transformer):
    """With a transformer."""
    return tiny_transformer


def step(bucket, peak, memory, speed=None):
    """A step of one bucket that takes so much, at a speed that grows with it."""
    speed = speed or bucket
    memory = Memory(0, 0, peak, peak <= memory)
    return Examined("train", bucket, memory, None, Bound(1.0, speed, 1.0, "memory"), 0.0)


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
