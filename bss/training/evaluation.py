"""MetricSums over held-out sequences, as compiled programs: of the loss, and of any other metric.

The sequences lie on the devices in buckets, the last one padded with sequences that do not count:
all are used, whatever the devices are.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from bss.models.family import LOGITS_AT_ONCE, Params
from bss.training.average import pick
from bss.training.config import RunConfig
from bss.training.devices.fsdp import on_devices, specs
from bss.training.devices.mesh import (
    replicated,
    sequence_sharding,
    sequence_split,
    shardings_of,
    sum_over_devices,
)
from bss.training.metrics import Evaluated, Metric
from bss.training.optimizers.base import Optimizer
from bss.training.step import State, in_its_dtype

Measure = Callable[[Params, jax.Array], tuple[jax.Array, jax.Array]]
"""Of parameters and sequences [B, T+1]: what is summed of all, and of each, [B] or [B, K]."""


class MetricSums(NamedTuple):
    """Of some sequences: the sum of a metric over all, and each one's, [N, b] or [N, b, K].

    What stands behind the last sequence does not count.
    """

    total: jax.Array
    each: jax.Array


@dataclass(frozen=True)
class Evaluation:
    """What evaluates a state of a run, compiled for where it lies.

    Attributes:
        run: whose weights are evaluated.
        mesh: the devices, which share each bucket.
        state: shapes and shardings.
        bucket: the most sequences evaluated at once on each device.
        options: the compiler's.
        attention: the kernel's name.
        fleet: whether the state is of several runs, on a leading axis; then so are the sums.
    """

    run: RunConfig
    mesh: Mesh
    state: State
    bucket: int
    options: dict[str, Any] | None = None
    attention: str = "reference"
    fleet: bool = False

    def shape(self, n: int, width: int) -> tuple[int, int, int]:
        """Of n sequences of some width in buckets."""
        size = min(self.bucket, -(-n // self.mesh.size)) * self.mesh.size
        return -(-n // size), size, width

    def sums_of(self, n: int, width: int, measure: Measure) -> Any:
        """The program (params, sequences in buckets) -> MetricSums of the first n sequences."""
        mesh, shape = self.mesh, self.shape(n, width)
        logits = math.prod(shape[1:]) // mesh.size * self.run.model.vocab_size
        add_up = partial(_add_up, measure, n, shape[1], at_once=logits <= LOGITS_AT_ONCE)
        split = specs(self.run.model, self.state.params, mesh), sequence_split(mesh)
        everywhere = sum_over_devices(add_up, mesh, *split, PartitionSpec(mesh.axis_names))

        def sums(params: Params, sequences_NxbxT1: jax.Array) -> MetricSums:
            return everywhere(params, sequences_NxbxT1, jnp.arange(shape[1]))

        sums = in_its_dtype(self.run.model, sums)
        sums = jax.vmap(sums, (0, None)) if self.fleet else sums
        shardings = shardings_of(self.state.params), sequence_sharding(mesh)
        sequences = jax.ShapeDtypeStruct(shape, jnp.int32)
        jitted = jax.jit(sums, in_shardings=shardings)
        return jitted.lower(self.state.params, sequences).compile(self.options)

    @property
    def loss(self) -> Measure:
        """The loss as training sums it; of a family that tells no target's, taken twice."""
        model, (gather, given) = self.run.model, on_devices(self.run.model, self.mesh)
        loss = model.loss_by(self.attention, gather)
        target_losses = model.target_losses_by(self.attention, gather)

        def measure(params: Params, sequences_bxT1: jax.Array) -> tuple[jax.Array, jax.Array]:
            params = given(params)
            if target_losses:
                total, losses_bxT = target_losses(params, sequences_bxT1)
                return total, losses_bxT.sum(-1)
            each = jax.lax.map(lambda one: loss(params, one[None])[0], sequences_bxT1)
            return loss(params, sequences_bxT1)[0], each

        return measure

    def metric(self, metric: Metric, bytes_per_token: float | None) -> Measure:
        """A metric, a sequence at a time where the logits of a bucket are too many to be held."""
        gather, given = on_devices(self.run.model, self.mesh)
        model = Evaluated(self.run.model, self.attention, gather, bytes_per_token)

        def measure(params: Params, sequences_bxT1: jax.Array) -> tuple[jax.Array, jax.Array]:
            params = given(params)
            if sequences_bxT1.size * model.family.vocab_size <= LOGITS_AT_ONCE:
                each = metric(model, params, sequences_bxT1)
            else:
                each = jax.lax.map(lambda one: metric(model, params, one[None])[0], sequences_bxT1)
            return each.sum(0), each

        return measure

    def chooser(self) -> Callable[..., Any]:
        """What makes of parameters and the optimizer's state the weights that are evaluated."""
        choose = self.run.optimizer.evaluation_params
        # What is trained and evaluated as it is needs no program, and no copy.
        if type(self.run.optimizer).evaluation_params is Optimizer.evaluation_params:
            return choose
        return self._compiled(choose, (0, 0), self.state.params, self.state.optimizer)

    def picker(self) -> Callable[..., Any]:
        """What takes the average of a place among all averages."""
        whole = replicated(self.mesh)
        place = jax.ShapeDtypeStruct((), jnp.int32, sharding=whole)
        return self._compiled(pick, (0, None), self.state.averages, place)

    def _compiled(self, choose: Callable[..., Any], axes: tuple, *shapes: Any) -> Any:
        choose = jax.vmap(choose, axes) if self.fleet else choose
        split = shardings_of(self.state.params)
        jitted = jax.jit(choose, in_shardings=shardings_of(shapes), out_shardings=split)
        return jitted.lower(*shapes).compile()


def _add_up(
    measure: Measure,
    n: int,
    size: int,
    params: Params,
    sequences_NxbxT1: jax.Array,
    places_b: jax.Array,
    *,
    at_once: bool,
) -> MetricSums:
    """A device's part of n sequences in buckets of `size`, zero where others have theirs.

    `places_b` says which of a bucket it has, `at_once` whether the logits of these may be held at
    once.
    """
    full, rest = divmod(n, size)

    def add(i: jax.Array, sums: MetricSums) -> MetricSums:
        total, each = measure(params, sequences_NxbxT1[i])
        return MetricSums(sums.total + total, sums.each.at[i, places_b].set(each))

    def one(sequence_T1: jax.Array) -> jax.Array:
        return measure(params, sequence_T1[None])[0]

    zero = jnp.zeros(jax.eval_shape(one, sequences_NxbxT1[0, 0]).shape)
    none = MetricSums(zero, jnp.zeros((len(sequences_NxbxT1), size, *zero.shape)))
    sums = jax.lax.fori_loop(0, full, add, none)
    if rest:
        each = (jax.vmap(one) if at_once else partial(jax.lax.map, one))(sequences_NxbxT1[full])
        counted = (places_b < rest).reshape(-1, *[1] * zero.ndim)
        total = sums.total + jnp.sum(each, axis=0, where=counted)
        sums = MetricSums(total, sums.each.at[full, places_b].set(each))
    return sums
