"""What is measured, in which order: the most telling first, since the last may find no time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KERNELS = ("reference", "cudnn")
"""Attention of a GPU, by name; the first is what the others are compared with."""

START = 15.0
"""Seconds until a process measures: imports, and the device's own start."""


@dataclass(frozen=True)
class Case:
    """One measurement.

    Attributes:
        what: which one, a name in `measure.MEASURES`.
        settings: of it; they are in its row.
        seconds: that it takes on an H100, at a guess: it is not begun with less left.
    """

    what: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


Processes = tuple[tuple[Case, ...], ...]
"""Cases that share a process; within one, memory grows, so that each peak is its own."""


def full() -> Processes:
    """Every measurement of an accelerator: 8 to 10 minutes on an H100."""
    best = KERNELS[-1]
    return (
        (Case("machine", {}, 5), *_loops("85M", 32, 14)),
        *((one,) for one in _unrolled("85M", 32, 40)),
        (Case("torch", {"model": "85M", "bucket": 32, "seq_len": 1024}, 45),),
        _fleets("nano", 8, 64, (1, 16, 256), 20),
        (*_beside("10M", 32, 10), _step("10M", 8, best, seconds=10)),
        (_step("85M", 8, best, seconds=18), *_beside("85M", 32, 14)),
        (_step("302M", 8, best, seconds=18), *_by_each("302M", 16, 18)),
        (Case("ramp", _model("10M", (16, 64), 1024, best), 30),),
        (
            *(Case("gradients", _model("10M", 64, 256, k), 12) for k in KERNELS),
            *_host_and_small("nano", (1, 8), 64, 8),
            *_repeats("10M", 8, 1024, 12),
        ),
        (_step("302M", 32, best, seconds=18),),
        (_step("10M", 128, best, seconds=12),),
        (_step("85M", None, best, seconds=20),),
        (Case("torch", {"model": "10M", "bucket": 32, "seq_len": 1024}, 40),),
    )


def tiny() -> Processes:
    """The same at toy sizes, in one process: seconds on a CPU."""
    here = KERNELS[0]
    return (
        (
            Case("machine"),
            _step("pico", 2, here, seq_len=32, remat=False),
            _step("pico", 2, here, seq_len=32),
            Case("gradients", _model("pico", 2, 32, here)),
            *_repeats("pico", 2, 32, 0, kernels=(here,)),
            *_host_and_small("pico", (1, 2), 32, 0),
            *_fleets("pico", 2, 32, (2,), 0),
            Case("ramp", _model("pico", (2, 4), 32, here)),
        ),
        (Case("torch", {"model": "pico", "bucket": 2, "seq_len": 32}),),
    )


def _model(model: str, bucket: Any, seq_len: int, attention: str) -> dict[str, Any]:
    return {"model": model, "bucket": bucket, "seq_len": seq_len, "attention": attention}


def _step(
    model: str,
    bucket: int | None,
    attention: str,
    *,
    seq_len: int = 1024,
    remat: bool = True,
    seconds: float = 0,
    **layers: Any,
) -> Case:
    """A training step; of no bucket, of the largest that is expected to fit."""
    settings = {**_model(model, bucket, seq_len, attention), "remat": remat, **layers}
    return Case("step", settings, seconds)


def _loops(model: str, bucket: int, seconds: float) -> tuple[Case, ...]:
    """Steps that take their layers in a loop, the one that keeps least first."""
    each = ((1, "nothing"), (2, "nothing"), (1, "attention"))
    how = ({"unroll": unroll, "keep": keep} for unroll, keep in each)
    return tuple(_step(model, bucket, KERNELS[-1], seconds=seconds, **one) for one in how)


def _unrolled(model: str, bucket: int, seconds: float) -> tuple[Case, ...]:
    """Steps without a loop over layers, the one that moves fewest bytes first."""
    how = ({"unroll": 0, "keep": keep} for keep in ("all", "nothing", "products"))
    return tuple(_step(model, bucket, KERNELS[-1], seconds=seconds, **one) for one in how)


def _by_each(model: str, bucket: int, seconds: float) -> tuple[Case, ...]:
    """Steps with each kernel, the one of least memory first."""
    return tuple(_step(model, bucket, kernel, seconds=seconds) for kernel in KERNELS[::-1])


def _beside(model: str, bucket: int, seconds: float) -> tuple[Case, ...]:
    """Steps with each kernel, and without remat, which takes most memory."""
    plain = _step(model, bucket, KERNELS[-1], remat=False, seconds=seconds)
    return *_by_each(model, bucket, seconds), plain


def _repeats(
    model: str, bucket: int, seq_len: int, seconds: float, kernels: tuple[str, ...] = KERNELS
) -> tuple[Case, ...]:
    """The same steps twice with each kernel, as it is and repeatable."""
    return tuple(
        Case("repeats", {**_model(model, bucket, seq_len, k), "repeatable": repeatable}, seconds)
        for k in kernels
        for repeatable in (False, True)
    )


def _host_and_small(
    model: str, buckets: tuple[int, ...], seq_len: int, seconds: float
) -> tuple[Case, ...]:
    """The device beside this CPU, in float32; then steps too small to fill a device."""
    largest = _model(model, buckets[-1], seq_len, KERNELS[0])
    return (
        Case("host", largest, 2 * seconds),
        *(
            _step(model, bucket, KERNELS[0], seq_len=seq_len, remat=False, seconds=seconds)
            for bucket in buckets
        ),
    )


def _fleets(
    model: str, bucket: int, seq_len: int, numbers: tuple[int, ...], seconds: float
) -> tuple[Case, ...]:
    """So many runs side by side."""
    each = _model(model, bucket, seq_len, KERNELS[0])
    return tuple(Case("fleet", {**each, "runs": number}, seconds) for number in numbers)
