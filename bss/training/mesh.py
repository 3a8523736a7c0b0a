"""The devices that share a run: one axis, "data"; what each holds a copy of, what is split.

Every device adds up what it makes of its own share, and the shares meet in one sum: nothing moves
between devices inside a loop, and what is added is float32, whatever the activations are.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from bss.errors import InputError

F = TypeVar("F", bound=Callable)

WHOLE = PartitionSpec()
"""Of state and scalars: a copy on every device."""

SPLIT = PartitionSpec(None, "data", None)
"""Of [buckets, sequences, tokens]: the sequences of each bucket are split."""


def make_mesh(devices: int = 0) -> Mesh:
    """A mesh over local devices (0: all of them)."""
    local = jax.local_devices()
    if devices > len(local):
        raise InputError(f"execution.devices is {devices}; this machine has {len(local)}")
    return mesh_of(local[: devices or len(local)])


def mesh_of(devices: list) -> Mesh:
    """A mesh over these devices."""
    return jax.make_mesh((len(devices),), ("data",), axis_types=(AxisType.Auto,), devices=devices)


def on_gpus(mesh: Mesh) -> bool:
    """Whether the devices are GPUs, present ("gpu") or compiled for ("cuda")."""
    return mesh.devices.flat[0].platform in ("gpu", "cuda")


def replicated(mesh: Mesh) -> NamedSharding:
    """The sharding of state and scalars."""
    return NamedSharding(mesh, WHOLE)


def sequence_sharding(mesh: Mesh) -> NamedSharding:
    """The sharding of [buckets, sequences, tokens]."""
    return NamedSharding(mesh, SPLIT)


def sum_over_devices(function: F, mesh: Mesh | None, *specs: PartitionSpec) -> F:
    """What a function makes of each device's share of its arguments, summed when all is done.

    Args:
        function: of arrays, its result a tree of arrays.
        mesh: the devices; with one, or None, this is the function as it is.
        specs: how each argument is split.
    """
    if mesh is None or mesh.size == 1:
        return function

    def share(*arguments: jax.Array) -> jax.Array:
        return jax.lax.psum(function(*arguments), "data")

    # Unchecked: a check would put the sum of a gradient where it is taken, inside the loop.
    return jax.shard_map(share, mesh=mesh, in_specs=specs, out_specs=WHOLE, check_vma=False)  # pyright: ignore[reportReturnType]
