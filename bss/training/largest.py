"""The largest bucket that a machine holds, with rematerialisation and without: by memory.

Memory grows in proportion to the bucket, so two small programs say where to look; what is told is
compiled. Buckets are powers of two of sequences on each device.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from bss.machines.absent import Machine
from bss.machines.program import Memory
from bss.training.compiled import examine
from bss.training.config import RunConfig
from bss.training.execution import Execution


@dataclass(frozen=True)
class Largest:
    """What a machine holds of a run.

    Attributes:
        remat: whether activations are computed again in the backward pass.
        bucket: the largest that fits, in sequences; None where one on each device does not.
        peak_bytes: on a device with it, or with one sequence on each.
    """

    remat: bool
    bucket: int | None
    peak_bytes: int


def remat_choices(run: RunConfig) -> Iterator[RunConfig]:
    """The run as it is, and with rematerialisation where its model has a choice of it."""
    yield run
    model = run.model
    if getattr(model, "remat", None) is False:
        yield dataclasses.replace(run, model=dataclasses.replace(model, remat=True))  # type: ignore[call-arg]


def bucket_memory(run: RunConfig, bucket: int, execution: Execution, machine: Machine) -> Memory:
    """What a step of one bucket takes of a device."""
    return next(examine(run, {bucket: 1}, execution, machine)).memory


def largest_bucket(run: RunConfig, execution: Execution, machine: Machine) -> Largest:
    """The largest bucket of a run on a machine whose memory is known."""
    assert machine.target is not None
    devices = len(machine.devices)
    known: dict[int, Memory] = {}

    def fits(share: int) -> bool:
        if share not in known:
            known[share] = bucket_memory(run, share * devices, execution, machine)
        return known[share].fits is True

    remat = bool(getattr(run.model, "remat", False))
    if not fits(1):
        return Largest(remat, None, known[1].peak_bytes)
    share = 1
    if fits(2):
        one, two = known[1].peak_bytes, known[2].peak_bytes
        room = (machine.target.memory - one) / max(two - one, 1)
        share = 1 << (max(int(1 + room), 2).bit_length() - 1)
        while not fits(share):
            share //= 2
        while fits(2 * share):
            share *= 2
    return Largest(remat, share * devices, known[share].peak_bytes)
