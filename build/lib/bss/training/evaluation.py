"""Held-out loss on fixed tokens: the same for every run that is compared, whatever its batch."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, PartitionSpec

from bss.models.family import LOGITS_AT_ONCE
from bss.training.average import pick
from bss.training.config import RunConfig
from bss.training.fsdp import loss_by, specs
from bss.training.mesh import (
    by_position,
    replicated,
    sequence_sharding,
    sequence_split,
    shardings_of,
    sum_over_devices,
)
from bss.training.optimizers.base import Optimizer
from bss.training.source import Source
from bss.training.step import State, in_its_dtype


def bucketed(n: int, width: int, devices: int, bucket: int) -> tuple[int, int, int]:
    """The shape of n sequences in buckets of at most `bucket` sequences on each device."""
    size = min(bucket, -(-n // devices)) * devices
    return -(-n // size), size, width


def compile_total_loss(
    run: RunConfig,
    n: int,
    shape_NxbxT1: tuple[int, ...],
    mesh: Mesh,
    state: State,
    options: dict[str, Any] | None = None,
    attention: str = "reference",
    *,
    fleet: bool = False,
) -> Any:
    """The program of the summed loss of the first n sequences of buckets of a shape.

    Args:
        run: the model.
        n: how many count; those behind them are padding.
        shape_NxbxT1: of the sequences, int32, which the devices share.
        mesh: the devices.
        state: shapes and shardings.
        options: the compiler's.
        attention: the kernel's name.
        fleet: whether the state is of several runs, on a leading axis; then so are the losses.
    """
    size, loss = shape_NxbxT1[1], loss_by(run.model, attention, mesh)
    full, rest = divmod(n, size)
    logits = math.prod(shape_NxbxT1[1:]) // mesh.size * run.model.vocab_size

    def sum_losses(params: dict, sequences_NxbxT1: jax.Array, counted_b: jax.Array) -> jax.Array:
        def add(i: jax.Array, total: jax.Array) -> jax.Array:
            return total + loss(params, sequences_NxbxT1[i])[0]

        def sequence_loss(sequence_T1: jax.Array) -> jax.Array:
            return loss(params, sequence_T1[None])[0]

        total = jax.lax.fori_loop(0, full, add, jnp.zeros(()))
        if rest:
            last_bxT1 = sequences_NxbxT1[full]
            if logits <= LOGITS_AT_ONCE:
                losses_b = jax.vmap(sequence_loss)(last_bxT1)
            else:
                losses_b = jax.lax.map(sequence_loss, last_bxT1)
            total += jnp.sum(losses_b, where=counted_b)
        return total

    split = specs(run.model, state.params, mesh), sequence_split(mesh)
    sum_all = sum_over_devices(sum_losses, mesh, *split, PartitionSpec(mesh.axis_names))

    def total_loss(params: dict, sequences_NxbxT1: jax.Array) -> jax.Array:
        return sum_all(params, sequences_NxbxT1, jnp.arange(size) < rest)

    total_loss = in_its_dtype(run.model, total_loss)
    total_loss = jax.vmap(total_loss, (0, None)) if fleet else total_loss
    shardings = shardings_of(state.params), sequence_sharding(mesh)
    jitted = jax.jit(total_loss, in_shardings=shardings)
    return jitted.lower(state.params, jax.ShapeDtypeStruct(shape_NxbxT1, jnp.int32)).compile(
        options
    )


class Evaluation:
    """Mean losses over fixed sequences, of the raw weights and of every weight average.

    At most `bucket` sequences are evaluated at once on each device, and stay there. The last
    bucket is padded with sequences that do not count: all are used, whatever the devices are.
    """

    def __init__(
        self,
        run: RunConfig,
        sequences_nxT1: np.ndarray,
        mesh: Mesh,
        bucket: int,
        state: State,
        options: dict[str, Any] | None = None,
        attention: str = "reference",
        *,
        fleet: bool = False,
    ):
        """Compiles the programs; the sequences are int32, the state is shapes and shardings.

        `options` are the compiler's, `attention` names the kernel; a `fleet` is of several runs, on
        a leading axis.
        """
        n, width = sequences_nxT1.shape
        shape = bucketed(n, width, mesh.size, bucket)
        self._sequences_NxbxT1 = by_position(sequences_nxT1.__getitem__, n, shape, mesh)
        self._targets = n * (width - 1)
        self._labels = run.averages

        whole, split = replicated(mesh), shardings_of(state.params)
        self._choose = choose = run.optimizer.evaluation_params
        # What is trained and evaluated as it is needs no program, and no copy.
        if type(run.optimizer).evaluation_params is not Optimizer.evaluation_params:
            choose = jax.vmap(choose) if fleet else choose
            both = split, shardings_of(state.optimizer)
            jitted = jax.jit(choose, in_shardings=both, out_shardings=split)
            self._choose = jitted.lower(state.params, state.optimizer).compile()
        self._total_loss = compile_total_loss(
            run, n, shape, mesh, state, options, attention, fleet=fleet
        )
        if run.averages:
            index = jax.ShapeDtypeStruct((), jnp.int32)
            choose = jax.vmap(pick, (0, None)) if fleet else pick
            both = shardings_of(state.averages), whole
            jitted = jax.jit(choose, in_shardings=both, out_shardings=split)
            self._pick = jitted.lower(state.averages, index).compile()

    def losses(self, state: State, name: str) -> dict[str, Any]:
        """Losses in nats per token: `name` of the weights, `name`_avg_HALFLIFE of the averages.

        Which weights these are, the optimizer says. Numbers, or arrays over a fleet.
        """
        found = {name: self._loss(self._choose(state.params, state.optimizer))}
        for index, label in enumerate(self._labels):
            averaged = self._pick(state.averages, np.int32(index))
            found[f"{name}_avg_{label}"] = self._loss(averaged)
        return found

    def _loss(self, params: optax.Params) -> Any:
        return np.asarray(self._total_loss(params, self._sequences_NxbxT1), float) / self._targets


class HeldOut:
    """The held-out losses of runs that are compared: along them, and at their end."""

    def __init__(self, run: RunConfig, source: Source):
        """Reads the sequences; InputError where there are too few."""
        sizes = {"validation": run.evaluation.tokens, "test": run.evaluation.test_tokens}
        seq_len = run.evaluation.seq_len or run.data.seq_len
        self._run, self._bytes_per_token = run, source.bytes_per_token()
        self._sequences = {
            split: source.held_out(split, size, seq_len) for split, size in sizes.items() if size
        }
        self._evaluations: dict[str, Evaluation] = {}

    def compile(self, mesh: Mesh, bucket: int, *rest: Any, fleet: bool = False) -> None:
        """Compiles the programs; see `Evaluation`."""
        self._evaluations = {
            split: Evaluation(self._run, sequences, mesh, bucket, *rest, fleet=fleet)
            for split, sequences in self._sequences.items()
        }

    def losses(self, state: State) -> dict[str, Any]:
        """Those along a run, and bits per byte for text."""
        losses = self._evaluations["validation"].losses(state, "eval_loss")
        if self._bytes_per_token is not None:
            losses["bits_per_byte"] = losses["eval_loss"] / math.log(2) / self._bytes_per_token
        return losses

    def test_losses(self, state: State) -> dict[str, Any]:
        """Those on the test split, where the run asks for it."""
        test = self._evaluations.get("test")
        return test.losses(state, "test_loss") if test else {"test_loss": None}
