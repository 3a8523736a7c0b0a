"""The devices that share a run: what each holds a copy of, what is split.

One axis, "data": every device holds the whole state and a share of each bucket. Where the weights
are too many for a device, two, "data" and "fsdp": the devices along the second split the weights
too (`bss.training.devices.fsdp`). Every device adds up what it makes of its own share, and the
shares meet in one sum: nothing else moves between devices inside a loop, and what is added is
float32, whatever the activations are.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from bss.errors import InputError

F = TypeVar("F", bound=Callable)

DATA, FSDP = "data", "fsdp"

WHOLE = PartitionSpec()
"""Of scalars, and of a state that is not split: a copy on every device."""


def make_mesh(devices: int = 0, fsdp: int = 1) -> Mesh:
    """A mesh over so many devices of each process (0: all), of which each `fsdp` split the weights.

    One process's come after another's.
    """
    local = jax.local_devices()
    if devices > len(local):
        raise InputError(f"execution.devices is {devices}; this machine has {len(local)}")
    if local[0].platform == "tpu" and len({d.slice_index for d in jax.devices()}) > 1:
        raise InputError(
            "several TPU slices are joined, and a run is trained on one; start it on one slice, "
            "without MEGASCALE_COORDINATOR_ADDRESS, or give each slice runs of its own"
        )
    each = (jax.local_devices(process) for process in range(jax.process_count()))
    return mesh_of([device for own in each for device in own[: devices or len(own)]], fsdp)


def mesh_of(devices: list, fsdp: int = 1) -> Mesh:
    """A mesh over these devices, of which each `fsdp` split the weights.

    Raises:
        InputError: where `fsdp` does not divide them, or their torus holds no such mesh.
    """
    if mesh := _mesh(devices, fsdp):
        return mesh
    held = [ways for ways in range(1, len(devices) + 1) if _mesh(devices, ways)]
    raise InputError(
        f"execution.fsdp is {fsdp}; {len(devices)} devices of {devices[0].device_kind} hold meshes "
        f"of fsdp {', '.join(map(str, held))}: use one of them"
    )


def _mesh(devices: list, fsdp: int) -> Mesh | None:
    if len(devices) % fsdp:
        return None
    sizes = {DATA: len(devices) // fsdp} | ({FSDP: fsdp} if fsdp > 1 else {})
    automatic = (AxisType.Auto,) * len(sizes)
    try:
        return jax.make_mesh(
            tuple(sizes.values()), tuple(sizes), axis_types=automatic, devices=devices
        )
    except NotImplementedError:  # a torus is cut along its own axes only
        return None


def splits_weights(mesh: Mesh | None) -> bool:
    """Whether devices of a mesh split the weights."""
    return mesh is not None and FSDP in mesh.axis_names


def on_gpus(mesh: Mesh) -> bool:
    """Whether the devices are GPUs, present ("gpu") or compiled for ("cuda")."""
    return mesh.devices.flat[0].platform in ("gpu", "cuda")


def replicated(mesh: Mesh) -> NamedSharding:
    """The sharding of scalars, and of a state that is not split."""
    return NamedSharding(mesh, WHOLE)


def shardings_of(shapes: Any) -> Any:
    """The shardings of shapes, in a tree as theirs."""
    return jax.tree.map(lambda x: x.sharding, shapes)


def sequence_split(mesh: Mesh) -> PartitionSpec:
    """Of [buckets, sequences, tokens]: the sequences of each bucket, over all devices."""
    return PartitionSpec(None, mesh.axis_names, None)


def sequence_sharding(mesh: Mesh) -> NamedSharding:
    """The sharding of [buckets, sequences, tokens]."""
    return NamedSharding(mesh, sequence_split(mesh))


def by_position(
    rows: Callable[[np.ndarray], np.ndarray], count: int, shape_NxbxT1: tuple[int, ...], mesh: Mesh
) -> jax.Array:
    """The first `count` of some sequences on the devices, int32 [N, b, T+1], and zeros behind them.

    Args:
        rows: makes those of ascending numbers, int [n] to int32 [n, T+1]; a process is asked for
            those of its own devices.
        count: of them all.
        shape_NxbxT1: of the whole array.
        mesh: the devices, which share each bucket.
    """
    sharding, (capacity, bucket, width) = sequence_sharding(mesh), shape_NxbxT1
    columns = own_columns(mesh, bucket)
    numbers_Nxc = bucket * np.arange(capacity)[:, None] + columns
    own_NxcxT1 = np.zeros((*numbers_Nxc.shape, width), np.int32)
    if (counted := numbers_Nxc[numbers_Nxc < count]).size:
        own_NxcxT1.reshape(-1, width)[: len(counted)] = rows(counted)

    def of_device(index: Any) -> np.ndarray:
        start, stop, _ = index[1].indices(bucket)
        return own_NxcxT1[:, slice(*np.searchsorted(columns, (start, stop)))]

    return jax.make_array_from_callback(shape_NxbxT1, sharding, of_device)


def own_columns(mesh: Mesh, bucket: int) -> np.ndarray:
    """The places in a bucket, ascending, that devices of this process hold."""
    sharding = sequence_sharding(mesh)
    indices = sharding.addressable_devices_indices_map((1, bucket, 1)).values()
    spans = sorted({index[1].indices(bucket) for index in indices if index is not None})
    return np.concatenate([np.arange(*span) for span in spans])


def sum_over_devices(function: F, mesh: Mesh | None, *specs: Any) -> F:
    """What a function makes of each device's share of its arguments, summed when all is done.

    Args:
        function: of arrays, its result a tree of arrays.
        mesh: the devices; with one, or None, this is the function as it is.
        specs: how each argument is split.
    """
    if mesh is None or mesh.size == 1:
        return function

    def share(*arguments: jax.Array) -> jax.Array:
        return jax.lax.psum(function(*arguments), mesh.axis_names)

    # Unchecked: a check would put the sum of a gradient where it is taken, inside the loop.
    return jax.shard_map(share, mesh=mesh, in_specs=specs, out_specs=WHOLE, check_vma=False)  # pyright: ignore[reportReturnType]
