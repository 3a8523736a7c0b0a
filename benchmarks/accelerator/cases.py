"""The cases in order of importance, because time may run out before the last ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Attention kernels of a GPU.
REFERENCE = "reference"
BEST = "cudnn"

START = 15.0
"""Seconds until a process measures: imports, and the start of the device."""


@dataclass(frozen=True)
class Case:
    """One measurement.

    Attributes:
        what: Name of a measurement in `measure.MEASURES`.
        settings: Arguments of the measurement; its row contains them.
        seconds: Approximate time on an H100. The case is not started if less time is left.
    """

    what: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


Processes = tuple[tuple[Case, ...], ...]
"""Cases that share a process; within one, memory grows, so that each peak belongs to its case."""


def full() -> Processes:
    """Return every measurement of an accelerator: 6 to 7 minutes on an H100."""
    loops = ((1, "nothing"), (2, "nothing"), (1, "attention"))
    unrolled = ((0, "all"), (0, "nothing"), (0, "products"))
    layers = [
        step("85M", 32, 14 if n else 40, unroll=n, remat_policy=k) for n, k in (*loops, *unrolled)
    ]
    return (
        (Case("machine", {}, 5), *layers[:3]),
        *((one,) for one in layers[3:]),
        fleets("nano", 8, 64, (1, 16, 256), 20),
        (*kernels("10M", 32, 10), step("10M", 8, 10)),
        (step("85M", 8, 18), *kernels("85M", 32, 14)),
        (step("302M", 8, 18), *kernels("302M", 16, 18)[:2]),
        (Case("ramp", model("10M", (16, 64), 1024, BEST), 30),),
        (
            *(Case("gradients", model("10M", 64, 256, k), 12) for k in (REFERENCE, BEST)),
            *repeats("10M", 8, 1024, BEST, 12),
            *(step("nano", b, 8, REFERENCE, seq_len=64, remat=False) for b in (1, 8)),
        ),
        (step("302M", 32, 18),),
        (step("85M", None, 20),),
    )


def tiny() -> Processes:
    """Return the same at toy sizes: seconds on a CPU."""
    here = model("pico", 2, 32, REFERENCE)
    return (
        (
            Case("machine"),
            step("pico", 2, 0, REFERENCE, seq_len=32, remat=False),
            step("pico", 2, 0, REFERENCE, seq_len=32),
            Case("gradients", here),
            *repeats("pico", 2, 32, REFERENCE, 0),
            *fleets("pico", 2, 32, (2,), 0),
            Case("ramp", here | {"bucket": (2, 4)}),
        ),
    )


def model(name: str, bucket: Any, seq_len: int, attention: str) -> dict[str, Any]:
    """Return the settings that most cases have."""
    return {"model": name, "bucket": bucket, "seq_len": seq_len, "attention": attention}


def step(
    name: str,
    bucket: int | None,
    seconds: float,
    attention: str = BEST,
    *,
    seq_len: int = 1024,
    remat: bool = True,
    **layers: Any,
) -> Case:
    """Return a training step; without a bucket, in the largest that is expected to fit."""
    settings = {**model(name, bucket, seq_len, attention), "remat": remat, **layers}
    return Case("step", settings, seconds)


def kernels(name: str, bucket: int, seconds: float) -> tuple[Case, ...]:
    """Return steps with each kernel, and without remat, which takes most memory."""
    each = (step(name, bucket, seconds, kernel) for kernel in (BEST, REFERENCE))
    return *each, step(name, bucket, seconds, remat=False)


def repeats(name: str, bucket: int, seq_len: int, kernel: str, seconds: float) -> tuple[Case, ...]:
    """Return the same steps twice, as they are and repeatable."""
    settings = model(name, bucket, seq_len, kernel)
    each = ({**settings, "repeatable": repeatable} for repeatable in (False, True))
    return tuple(Case("repeats", one, seconds) for one in each)


def fleets(
    name: str, bucket: int, seq_len: int, numbers: tuple[int, ...], seconds: float
) -> tuple[Case, ...]:
    """Return several numbers of batched runs."""
    settings = model(name, bucket, seq_len, REFERENCE)
    return tuple(Case("fleet", {**settings, "runs": number}, seconds) for number in numbers)
