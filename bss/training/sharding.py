"""Device meshes, shardings, and fully sharded data parallelism.

The mesh has an axis "data": every device holds the whole state and a share of each micro-batch.
With FSDP (as in ZeRO, Rajbhandari et al., 1910.02054, and Zhao et al., 2304.11277) it has a second
axis, "fsdp". Devices shard matrices, and all state per matrix, along this axis. A matrix is
gathered before its use, in the dtype of activations, and dropped afterwards; vectors are
replicated. Every device accumulates the float32 gradients of its sequences; nothing else moves
between devices inside a loop. They are summed once per step or, with FSDP, reduce-scattered layer
by layer in every micro-batch.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from bss.errors import InputError
from bss.models.base import AllGather, LossSums, ModelFamily, Params, identity

F = TypeVar("F", bound=Callable)

DATA = "data"
FSDP = "fsdp"
REPLICATED = PartitionSpec()


def make_mesh(devices: int = 0, fsdp: int = 1) -> Mesh:
    """Return a mesh over `devices` devices of each process (0: all), in the order of processes.

    Args:
        devices: number of devices per process.
        fsdp: number of consecutive devices that shard the weights.
    """
    local = jax.local_devices()
    if devices > len(local):
        raise InputError(f"execution.devices is {devices}; this machine has {len(local)}")
    if local[0].platform == "tpu" and len({d.slice_index for d in jax.devices()}) > 1:
        raise InputError(
            "several TPU slices are joined, and a run is trained on one; start it on one slice, "
            "without MEGASCALE_COORDINATOR_ADDRESS, or give each slice other runs"
        )
    each = (jax.local_devices(process) for process in range(jax.process_count()))
    return mesh_of([device for own in each for device in own[: devices or len(own)]], fsdp)


def mesh_of(devices: list, fsdp: int = 1) -> Mesh:
    """Return a mesh over these devices, of which each `fsdp` shard the weights.

    Raises:
        InputError: If `fsdp` does not divide them, or their torus has no such mesh.
    """
    if mesh := _mesh(devices, fsdp):
        return mesh
    possible = [ways for ways in range(1, len(devices) + 1) if _mesh(devices, ways)]
    raise InputError(
        f"execution.fsdp is {fsdp}; {len(devices)} devices of {devices[0].device_kind} hold meshes "
        f"of fsdp {', '.join(map(str, possible))}: use one of them"
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
    except NotImplementedError:  # a torus can be cut along its own axes only
        return None


def shards_weights(mesh: Mesh | None) -> bool:
    """Return True if devices of a mesh shard the weights."""
    return mesh is not None and FSDP in mesh.axis_names


def on_gpus(mesh: Mesh) -> bool:
    """Return True if the devices are GPUs, present ("gpu") or described ("cuda")."""
    return mesh.devices.flat[0].platform in ("gpu", "cuda")


def replicated(mesh: Mesh) -> NamedSharding:
    """Return the sharding of scalars and of a state that is not sharded."""
    return NamedSharding(mesh, REPLICATED)


def shardings_of(shapes: Any) -> Any:
    """Return the shardings of a tree of shapes."""
    return jax.tree.map(lambda x: x.sharding, shapes)


def abstract(state: Any, sharding: jax.sharding.Sharding | None = None) -> Any:
    """Return shapes with a sharding, by default their own, as orbax and compilers expect them."""
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding or x.sharding), state
    )


def sequence_split(mesh: Mesh) -> PartitionSpec:
    """Return the spec of [micro-batches, sequences, tokens]: sequences over all devices."""
    return PartitionSpec(None, mesh.axis_names, None)


def sequence_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of [micro-batches, sequences, tokens]."""
    return NamedSharding(mesh, sequence_split(mesh))


def by_position(
    rows: Callable[[np.ndarray], np.ndarray], count: int, shape_NxbxT1: tuple[int, ...], mesh: Mesh
) -> jax.Array:
    """Place sequences on the devices, int32 [N, b, T+1], zeros after the first `count`.

    Args:
        rows: maps ascending sequence numbers, int [n], to sequences, int32 [n, T+1]; each process
            calls it for the sequences of its devices.
        count: number of sequences.
        shape_NxbxT1: shape of the global array.
        mesh: the devices, which share each micro-batch.
    """
    capacity, bucket, width = shape_NxbxT1
    columns = own_columns(mesh, bucket)
    numbers_Nxc = bucket * np.arange(capacity)[:, None] + columns
    own_NxcxT1 = np.zeros((*numbers_Nxc.shape, width), np.int32)
    if (counted := numbers_Nxc[numbers_Nxc < count]).size:
        own_NxcxT1.reshape(-1, width)[: len(counted)] = rows(counted)

    def of_device(index: Any) -> np.ndarray:
        start, stop, _ = index[1].indices(bucket)
        return own_NxcxT1[:, slice(*np.searchsorted(columns, (start, stop)))]

    return jax.make_array_from_callback(shape_NxbxT1, sequence_sharding(mesh), of_device)


def own_columns(mesh: Mesh, bucket: int) -> np.ndarray:
    """Return the indices in a micro-batch, ascending, that devices of this process hold."""
    sharding = sequence_sharding(mesh)
    indices = sharding.addressable_devices_indices_map((1, bucket, 1)).values()
    spans = sorted({index[1].indices(bucket) for index in indices if index is not None})
    return np.concatenate([np.arange(*span) for span in spans])


def sum_over_devices(function: F, mesh: Mesh | None, *specs: Any) -> F:
    """shard_map `function` over the mesh and psum its result.

    Args:
        function: maps arrays to a tree of arrays.
        mesh: the devices; for one device or None, `function` is returned unchanged.
        specs: the partition spec of each argument.
    """
    if mesh is None or mesh.size == 1:
        return function

    def share(*arguments: jax.Array) -> jax.Array:
        return jax.lax.psum(function(*arguments), mesh.axis_names)

    # check_vma would sum a gradient where it is taken, inside the loop.
    return jax.shard_map(share, mesh=mesh, in_specs=specs, out_specs=REPLICATED, check_vma=False)  # pyrefly: ignore[bad-return]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Shard:
    """One device's part of a parameter, as it is passed to a model's loss.

    Attributes:
        part: float32; its cotangent is the reduce-scattered gradient.
        axis: the sharded axis, counted from the end: layers may be sliced off before.
        dtype: the dtype in which the parameter is gathered.
    """

    part: jax.Array
    axis: int = field(metadata={"static": True})
    dtype: str = field(metadata={"static": True})


def all_gather(params: Params) -> Params:
    """Gather every `Shard` in a tree."""

    return _map_shards(
        lambda x: _gather(x.part, x.axis, x.dtype) if isinstance(x, Shard) else x, params
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _gather(part: jax.Array, axis: int, dtype: str) -> jax.Array:
    rounded = part.astype(dtype)
    whole = jax.lax.all_gather(rounded, FSDP, axis=axis % part.ndim, tiled=True)
    return whole.astype(part.dtype)


def _scatter(whole: jax.Array, axis: int) -> jax.Array:
    """Return each device's part of the sum over devices."""
    at = axis % whole.ndim
    return jax.lax.psum_scatter(whole, FSDP, scatter_dimension=at, tiled=True)


_gather.defvjp(
    lambda part, axis, dtype: (_gather(part, axis, dtype), None),
    lambda axis, dtype, _, gradient: (_scatter(gradient, axis),),
)


def all_gather_fn(model: ModelFamily, mesh: Mesh) -> tuple[AllGather, AllGather]:
    """Return (all_gather function, function that wraps a device's parameters as shards)."""
    if not shards_weights(mesh):
        return identity, identity
    return all_gather, functools.partial(_shards, model)


def sum_over_shards(
    accumulate_gradients: Callable[..., Any],
    model: ModelFamily,
    loss_fn: Callable[[AllGather], LossSums],
    mesh: Mesh,
) -> Callable[[Params, jax.Array, jax.Array], Any]:
    """Return a function to the sums of a step over all devices, gradients sharded as weights.

    Args:
        accumulate_gradients: maps (loss, parameters, sequences, count, function to the squared norm
            of a gradient) to sums with a field `gradients`.
        model: the model whose parameters are sharded.
        loss_fn: returns its loss, given the function that gathers parameters.
        mesh: the devices.
    """
    loss = loss_fn(all_gather)

    def share(params: Params, sequences_NxbxT1: jax.Array, count: jax.Array) -> Any:
        shards = _shards(model, params)
        sums = accumulate_gradients(loss, shards, sequences_NxbxT1, count, _squared_norm)
        rest = jax.lax.psum(sums._replace(gradients=None), mesh.axis_names)
        return _map_shards(_reduced, sums.gradients), rest

    def summed(params: Params, sequences_NxbxT1: jax.Array, count: jax.Array) -> Any:
        split = specs(model, params, mesh)
        mapped = jax.shard_map(
            share,
            mesh=mesh,
            in_specs=(split, sequence_split(mesh), REPLICATED),
            out_specs=(split, REPLICATED),
            check_vma=False,  # as in `sum_over_devices`
        )
        gradients, rest = mapped(params, sequences_NxbxT1, count)
        return rest._replace(gradients=gradients)

    return summed


def _shards(model: ModelFamily, params: Params) -> Params:
    def shard(axis: int, part: jax.Array) -> Any:
        return Shard(part, axis, model.compute_dtype) if axis else part

    return jax.tree.map(shard, model.split_axes(params), params)


def _map_shards(function: Callable[..., Any], tree: Params) -> Params:
    return jax.tree.map(function, tree, is_leaf=lambda x: isinstance(x, Shard))


def _reduced(gradient: Any) -> jax.Array:
    """Sum a gradient over all devices; a `Shard` is already summed over the FSDP axis."""
    if not isinstance(gradient, Shard):
        return jax.lax.psum(gradient, (DATA, FSDP))
    return jax.lax.psum(gradient.part, DATA) if jax.lax.axis_size(DATA) > 1 else gradient.part


def _squared_norm(gradients: Params) -> jax.Array:
    """Return a device's part of the squared norm of the mean gradient over the FSDP axis."""
    ways = jax.lax.axis_size(FSDP)

    def squared(gradient: Any) -> jax.Array:
        if isinstance(gradient, Shard):
            return jnp.sum(gradient.part**2)
        return jnp.sum(jax.lax.psum(gradient, FSDP) ** 2) / ways

    return sum(jax.tree.leaves(_map_shards(squared, gradients)), jnp.zeros(())) / ways**2


def specs(model: ModelFamily, params: Params, mesh: Mesh) -> Any:
    """Return the partition spec of every parameter."""
    if not shards_weights(mesh):
        return REPLICATED
    return jax.tree.map(lambda axis, p: _spec(p.ndim, axis), model.split_axes(params), params)


def _spec(rank: int, axis: int) -> PartitionSpec:
    return PartitionSpec(*[None] * (rank + axis), FSDP) if axis else REPLICATED


def shardings(model: ModelFamily, state: Any, mesh: Mesh) -> Any:
    """Return the sharding of every array of a training state.

    Arrays of an optimizer or a weight average with a parameter's name and shape (or leading axes)
    are sharded like the parameter. All other arrays are replicated.

    Args:
        model: the model whose parameters are sharded.
        state: shapes, with a field `params`.
        mesh: the devices.

    Raises:
        InputError: If the devices do not divide an axis that they shard.
    """
    if not shards_weights(mesh):
        return jax.tree.map(lambda _: replicated(mesh), state)
    axes = jax.tree.leaves(model.split_axes(state.params))
    params = jax.tree.leaves_with_path(state.params)
    _check_divides(axes, [x.shape for _, x in params], mesh.shape[FSDP])
    named = {path: (x.shape, axis) for (path, x), axis in zip(params, axes, strict=True)}

    def sharding(path: tuple, x: Any) -> NamedSharding:
        for start in range(len(path)):
            shape, axis = named.get(path[start:], ((), 0))
            if shape and x.shape[-len(shape) :] == shape:
                return NamedSharding(mesh, _spec(x.ndim, axis))
        return replicated(mesh)

    return jax.tree.map_with_path(sharding, state)


def _check_divides(axes: list[int], shapes: list[tuple[int, ...]], ways: int) -> None:
    common = math.gcd(*(shape[axis] for shape, axis in zip(shapes, axes, strict=True) if axis))
    if common % ways:
        raise InputError(
            f"execution.fsdp is {ways}; the weights of this model can be split over the divisors "
            f"of {common}: use one of them"
        )
