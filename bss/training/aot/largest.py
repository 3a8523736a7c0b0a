"""The fastest bucket that a machine holds, with rematerialisation and without.

Memory grows in proportion to the bucket, so two small programs say where to look; what is told is
compiled. Buckets are powers of two of sequences on each device, or the most that is asked for. From
the largest that fits it goes down as long as half is faster: near the end of memory XLA computes
parts again.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from bss.machines.absent import Machine
from bss.training.aot.compiled import Examined, examine
from bss.training.config import RunConfig
from bss.training.execution import Execution


@dataclass(frozen=True)
class Largest:
    """What a machine holds of a run.

    Attributes:
        remat: whether activations are computed again in the backward pass.
        bucket: the fastest that fits, in sequences; None where one on each device does not.
        peak_bytes: on a device with it, or with one sequence on each.
        tokens_per_second: with it, as expected; at most where no such device was measured.
        largest: bucket that fits.
    """

    remat: bool
    bucket: int | None
    peak_bytes: int
    tokens_per_second: float = 0.0
    largest: int | None = None


def remat_choices(run: RunConfig) -> Iterator[RunConfig]:
    """The run as it is, and with rematerialisation where its model has a choice of it."""
    yield run
    model = run.model
    if getattr(model, "remat", None) is False:
        yield dataclasses.replace(run, model=dataclasses.replace(model, remat=True))  # type: ignore[call-arg]


def one_bucket(run: RunConfig, bucket: int, execution: Execution, machine: Machine) -> Examined:
    """A step of one bucket."""
    return next(examine(run, {bucket: 1}, execution, machine))


def fastest_bucket(
    run: RunConfig, execution: Execution, machine: Machine, most: int = 1 << 20
) -> Largest:
    """The fastest bucket of a run, up to `most`, on a machine whose memory is known."""
    assert machine.pool is not None
    devices = len(machine.devices)
    known: dict[int, Examined] = {}

    def of(share: int) -> Examined:
        if share not in known:
            known[share] = one_bucket(run, share * devices, execution, machine)
        return known[share]

    def fits(share: int) -> bool:
        return of(share).memory.fits is True

    remat = bool(getattr(run.model, "remat", False))
    if not fits(1):
        return Largest(remat, None, of(1).memory.peak_bytes)
    share = 1
    if most >= 2 * devices and fits(2):
        one, two = (of(n).memory.peak_bytes for n in (1, 2))
        room = (machine.pool - one) / max(two - one, 1)
        share = 1 << (max(int(1 + room), 2).bit_length() - 1)
        share = min(share, max(most // devices, 1))
        while not fits(share):
            share //= 2
        while 2 * share * devices <= most and fits(2 * share):
            share *= 2
    fastest = share
    while fastest > 1 and of(fastest // 2).tokens_per_second > of(fastest).tokens_per_second:
        fastest //= 2
    chosen = of(fastest)
    speed, peak = chosen.tokens_per_second, chosen.memory.peak_bytes
    return Largest(remat, fastest * devices, peak, speed, share * devices)
