"""The largest bucket that a machine holds, with rematerialisation and without: by memory.

Memory grows in proportion to the bucket, so two small programs say where to look; what is told is
compiled. Buckets are powers of two of sequences on each device, or the most that is asked for.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from jax.sharding import Mesh

from bss.errors import InputError
from bss.machines.absent import Machine
from bss.machines.program import Memory
from bss.machines.targets import target_of
from bss.schedules.plan import Plan
from bss.training.aot.compiled import examine
from bss.training.config import RunConfig
from bss.training.execution import Execution
from bss.training.running.bucketing import Ladder

_FOR_STEPS = 0.9
"""Of what a device gives a process: sequences and the evaluation take the rest."""


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


def largest_bucket(
    run: RunConfig, execution: Execution, machine: Machine, most: int = 1 << 20
) -> Largest:
    """The largest bucket of a run, up to `most`, on a machine whose memory is known."""
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
        share = min(share, max(most // devices, 1))
        while not fits(share):
            share //= 2
        while 2 * share * devices <= most and fits(2 * share):
            share *= 2
    return Largest(remat, share * devices, known[share].peak_bytes)


def by_memory(run: RunConfig, execution: Execution, plan: Plan, mesh: Mesh) -> Execution:
    """An execution whose buckets fit the devices of a mesh, for one that asks for it.

    Raises:
        InputError: where the devices' memory is not known, or no bucket fits it.
    """
    machine = _present(mesh)
    assert machine.target is not None
    batches = {segment.batch for segment in plan.segments}
    largest = largest_bucket(run, execution, machine, max(batches))
    sizes = [size for size in execution.buckets if size <= (largest.bucket or 0)]
    if largest.bucket is None or (execution.buckets and not sizes):
        raise InputError(
            f"execution.fit: a step of {run.model.label} in the smallest bucket does not fit; one "
            f"sequence on each device needs {largest.peak_bytes / 1e9:.3g} GB of "
            f"{machine.target.memory / 1e9:.3g}"
        )
    divisors = Ladder(range(mesh.size, largest.bucket + 1, mesh.size), run.noise_scale.split)
    chosen = sizes or sorted({divisors.bucket(batch) for batch in batches})
    return dataclasses.replace(execution, buckets=tuple(chosen))


def _present(mesh: Mesh) -> Machine:
    """The devices of a mesh, with the memory that steps may take of each."""
    device = mesh.local_devices[0]
    limit = (device.memory_stats() or {}).get("bytes_limit")
    target = target_of(device.device_kind)
    if limit is None or target is None:
        raise InputError(
            f"execution.fit: what a {device.device_kind} holds is not known; name execution.buckets"
        )
    holds = dataclasses.replace(target, memory=_FOR_STEPS * limit)
    return Machine(device.device_kind, holds, list(mesh.devices.flat))
