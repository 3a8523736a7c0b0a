"""One compiled program on one kind of device: what it takes, whether it fits, how long it takes.

The bound is a roofline (Williams et al., 2009): a device multiplies no faster than its peak and
moves no more than its memory's bandwidth, and does both at once. The time that is expected is of
rates that such a device reached (`bss.machines.targets.Reached`). What moves between devices is
told but not timed.
"""

import re
from dataclasses import dataclass
from typing import Any

from bss.machines.counts import Counted, count
from bss.machines.hlo import Program
from bss.machines.targets import Target

_UNITS = {"K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40}
_REFUSED = re.compile(r"(temporaries \(|Used )([\d.]+)([KMGT])")


@dataclass(frozen=True)
class Memory:
    """Bytes on one device.

    Attributes:
        state_bytes: of the training state.
        temp_bytes: of everything that is made and gone within the program.
        peak_bytes: of all, with arguments and results.
        fits: whether JAX gives programs so much of a device; None where that is not known.
    """

    state_bytes: int
    temp_bytes: int
    peak_bytes: int
    fits: bool | None


@dataclass(frozen=True)
class Bound:
    """The roofline of a program: no run of it is faster.

    Attributes:
        seconds: of one bucket, or of one evaluation.
        tokens_per_second: of all devices.
        mfu: the model's own FLOPs as a part of the devices' peak.
        by: "compute" or "memory", whichever takes longer.
    """

    seconds: float
    tokens_per_second: float
    mfu: float
    by: str


@dataclass(frozen=True)
class Expected:
    """What a program is expected to take; see `Bound` for its fields."""

    seconds: float
    tokens_per_second: float
    mfu: float


def read(compiled: Any) -> Counted:
    """Counts a compiled program."""
    return count(Program(compiled.as_text()))


def memory(compiled: Any, state_bytes: int, beside: int, pool: float | None) -> Memory:
    """What a compiled program takes of the pool that JAX has of a device.

    `beside` are bytes there that it does not take.
    """
    uses = compiled.memory_analysis()
    arguments = uses.argument_size_in_bytes + uses.output_size_in_bytes - uses.alias_size_in_bytes
    temporary = uses.temp_size_in_bytes
    peak = beside + arguments + temporary + uses.generated_code_size_in_bytes
    return Memory(state_bytes, temporary, peak, None if pool is None else peak <= pool)


def refused(error: str, state_bytes: int) -> Memory | None:
    """What a program would have taken that a TPU's compiler refused; None of another error."""
    match = _REFUSED.search(error)
    if match is None or "RESOURCE_EXHAUSTED" not in error:
        return None
    needed = round(float(match.group(2)) * _UNITS[match.group(3)])
    apart = "temporaries" in match.group(1)
    peak = needed + state_bytes if apart else needed
    return Memory(state_bytes, peak - state_bytes, peak, False)


def bound(reading: Counted, target: Target, tokens: int, model_flops: float, devices: int) -> Bound:
    """The roofline of a program that handles `tokens` at `model_flops`, both of all devices."""
    parts = {
        "compute": reading.flops / target.peak_flops,
        "memory": reading.bytes / target.bandwidth,
    }
    by = max(parts, key=lambda name: parts[name])
    seconds = parts[by]
    mfu = model_flops / (devices * target.peak_flops * seconds)
    return Bound(seconds, tokens / seconds, mfu, by)


def expected(
    reading: Counted, target: Target, tokens: int, model_flops: float, devices: int
) -> Expected | None:
    """Of a program as `bound`; None where no such device was measured."""
    if target.reached is None:
        return None
    seconds = target.reached.seconds(reading.flops, reading.bytes)
    return Expected(
        seconds, tokens / seconds, model_flops / (devices * target.peak_flops * seconds)
    )
