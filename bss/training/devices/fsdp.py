"""Fully sharded data parallelism: devices split the weights and all that is kept of each weight.

As in ZeRO (Rajbhandari et al., 1910.02054) and FSDP (Zhao et al., 2304.11277). A matrix is gathered
where it is used, rounded first to what activations are, and is gone behind it. Gradients meet in
float32 sums, of which each device gets its own part: layer by layer in every bucket, or once a step
where a device holds a whole gradient. Vectors are whole on every device.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bss.errors import InputError
from bss.models.family import Gather, LossSums, ModelFamily, Params, as_it_is
from bss.training.devices.mesh import DATA, FSDP, WHOLE, replicated, sequence_split, splits_weights


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Shard:
    """One device's part of a parameter, as a model's loss is given it.

    Attributes:
        part: float32.
        like: what has the whole's shape, and gets the gradient of this device's sequences; None
            where the part gets that of all devices that share the weights.
        axis: along which it is split, from the end: layers may be sliced off before.
        dtype: in which it is gathered.
    """

    part: jax.Array
    like: jax.Array | None
    axis: int = field(metadata={"static": True})
    dtype: str = field(metadata={"static": True})


def gather(params: Params) -> Params:
    """A tree with every `Shard` in it made whole."""

    def whole(x: Any) -> jax.Array:
        if not isinstance(x, Shard):
            return x
        if x.like is None:
            return _summed(x.part, x.axis, x.dtype)
        return _unsummed(x.part, x.like, x.axis, x.dtype)

    return jax.tree.map(whole, params, is_leaf=lambda x: isinstance(x, Shard))


def _whole(part: jax.Array, axis: int, dtype: str) -> jax.Array:
    rounded = part.astype(dtype)
    whole = jax.lax.all_gather(rounded, FSDP, axis=axis % part.ndim, tiled=True)
    return whole.astype(part.dtype)


def _scattered(whole: jax.Array, axis: int) -> jax.Array:
    """Each device's part of the sum."""
    at = axis % whole.ndim
    return jax.lax.psum_scatter(whole, FSDP, scatter_dimension=at, tiled=True)


_summed = jax.custom_vjp(_whole, nondiff_argnums=(1, 2))
_summed.defvjp(
    lambda part, axis, dtype: (_whole(part, axis, dtype), None),
    lambda axis, dtype, _, gradient: (_scattered(gradient, axis),),
)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _unsummed(part: jax.Array, like: jax.Array, axis: int, dtype: str) -> jax.Array:
    return _whole(part, axis, dtype)


_unsummed.defvjp(
    lambda part, like, axis, dtype: (_whole(part, axis, dtype), None),
    lambda axis, dtype, _, gradient: (None, gradient),
)


def on_devices(model: ModelFamily, mesh: Mesh) -> tuple[Gather, Gather]:
    """What makes parameters whole where a model uses them, and what it is given of a device's."""
    if not splits_weights(mesh):
        return as_it_is, as_it_is
    return gather, functools.partial(_shards, model)


def sum_over_shards(
    sum_buckets: Callable[..., Any],
    model: ModelFamily,
    loss_by: Callable[[Gather], LossSums],
    mesh: Mesh,
    *,
    whole_gradient: bool,
) -> Callable[[Params, jax.Array, jax.Array], Any]:
    """The sums of a step over all devices, gradients split as the weights are.

    Args:
        sum_buckets: of a loss, what it is differentiated by, sequences, a count, and what squares
            the norm of a gradient: to sums, of which one is called `gradients`.
        model: whose parameters are split.
        loss_by: its loss, by what makes parameters whole.
        mesh: the devices.
        whole_gradient: whether each device adds up a whole gradient, and they meet once a step;
            else they meet layer by layer in every bucket.
    """
    loss = loss_by(gather)

    def share(params: Params, sequences_NxbxT1: jax.Array, count: jax.Array) -> Any:
        shards = _shards(model, params)
        if whole_gradient:

            def of_likes(likes: Params, sequences_bxT1: jax.Array) -> Any:
                return loss(_map(_with_like, shards, likes), sequences_bxT1)

            sums = sum_buckets(of_likes, _map(_like, shards), sequences_NxbxT1, count)
        else:
            sums = sum_buckets(loss, shards, sequences_NxbxT1, count, _squared_norm)
        rest = jax.lax.psum(sums._replace(gradients=None), mesh.axis_names)
        return _map(_meet, shards, sums.gradients), rest

    def summed(params: Params, sequences_NxbxT1: jax.Array, count: jax.Array) -> Any:
        split = specs(model, params, mesh)
        mapped = jax.shard_map(
            share,
            mesh=mesh,
            in_specs=(split, sequence_split(mesh), WHOLE),
            out_specs=(split, WHOLE),
            check_vma=False,  # as in `mesh.sum_over_devices`
        )
        gradients, rest = mapped(params, sequences_NxbxT1, count)
        return rest._replace(gradients=gradients)

    return summed


def _shards(model: ModelFamily, params: Params) -> Params:
    dtype = getattr(model, "dtype", "float32")

    def shard(axis: int, part: jax.Array) -> Any:
        return Shard(part, None, axis, dtype) if axis else part

    return jax.tree.map(shard, model.split_axes(params), params)


def _map(function: Callable[..., Any], *trees: Params) -> Params:
    return jax.tree.map(function, *trees, is_leaf=lambda x: isinstance(x, Shard))


def _like(shard: Any) -> jax.Array:
    """Zeros as large as the whole, which nothing reads; a vector is what it is."""
    if not isinstance(shard, Shard):
        return shard
    sizes = list(shard.part.shape)
    sizes[shard.axis] *= jax.lax.axis_size(FSDP)
    return jnp.zeros(sizes, shard.part.dtype)


def _with_like(shard: Any, like: jax.Array) -> Any:
    return dataclasses.replace(shard, like=like) if isinstance(shard, Shard) else like


def _meet(shard: Any, gradient: Any) -> jax.Array:
    """The sum over all devices of a gradient that was summed over none, or those of its weights."""
    if not isinstance(shard, Shard):
        return jax.lax.psum(gradient, (DATA, FSDP))
    summed = isinstance(gradient, Shard)
    part = gradient.part if summed else _scattered(gradient, shard.axis)
    return jax.lax.psum(part, DATA) if jax.lax.axis_size(DATA) > 1 else part


def _squared_norm(gradients: Params) -> jax.Array:
    """A device's part of the squared norm of the mean gradient of those that share the weights."""
    ways = jax.lax.axis_size(FSDP)

    def squared(gradient: Any) -> jax.Array:
        if isinstance(gradient, Shard):
            return jnp.sum(gradient.part**2)
        return jnp.sum(jax.lax.psum(gradient, FSDP) ** 2) / ways

    return sum(jax.tree.leaves(_map(squared, gradients)), jnp.zeros(())) / ways**2


def gradients_a_bucket(mesh: Mesh, whole_gradient: bool) -> int:
    """How many gradients the devices make of a bucket before they meet."""
    return mesh.size if whole_gradient else mesh.shape[DATA]


def specs(model: ModelFamily, params: Params, mesh: Mesh) -> Any:
    """How every parameter is split."""
    if not splits_weights(mesh):
        return WHOLE
    return jax.tree.map(lambda axis, p: _spec(p.ndim, axis), model.split_axes(params), params)


def _spec(rank: int, axis: int) -> PartitionSpec:
    return PartitionSpec(*[None] * (rank + axis), FSDP) if axis else WHOLE


def shardings(model: ModelFamily, state: Any, mesh: Mesh) -> Any:
    """How everything of a training state lies on the devices.

    What an optimizer, or a bank of averages, keeps of a parameter under its name, as large as it or
    with axes before its own, is split as it is; all else is whole on every device.

    Args:
        model: whose parameters are split.
        state: shapes, with `params`.
        mesh: the devices.

    Raises:
        InputError: where the devices do not divide an axis that they split.
    """
    if not splits_weights(mesh):
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
