"""The train step: two pure functions, and the program that joins them for one bucket shape.

`accumulate` adds the gradients of one bucket of sequences; `apply` makes the update. The number
of buckets in a step is a traced count, so one compiled program per bucket shape serves every
batch that is a whole number of buckets. Accumulation is token-weighted, in float32; each device
accumulates its share of the buckets, and the shares are added up once a step.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from bss.models.family import ONE_BY_ONE, Gather, Layers, LossSums, ModelFamily, Params, as_it_is
from bss.training import average
from bss.training.config import RunConfig
from bss.training.devices.fsdp import shardings, sum_over_shards
from bss.training.devices.mesh import WHOLE, sequence_split, splits_weights, sum_over_devices
from bss.training.optimizers.base import Masks, StepSettings

F = TypeVar("F", bound=Callable)


class State(NamedTuple):
    """Everything a step reads and writes. The device counts no tokens."""

    params: Params
    optimizer: Any
    averages: average.Averages | None


class Sums(NamedTuple):
    """Sums over the sequences of a step so far: gradients, loss in nats, targets.

    `squares` sums the squared norms of the buckets' mean gradients, where a run asks for them; on
    several devices those of each device's share of a bucket.
    """

    gradients: Params
    loss: jax.Array
    targets: jax.Array
    squares: jax.Array | None = None


class Metrics(NamedTuple):
    """Of one step: mean loss in nats per token, norms of the unclipped gradient and the update.

    `squares` is the sum over its buckets, or the devices' shares of them, of their squared gradient
    norms, where a run asks for it; `wish` what several processes agreed to do.
    """

    loss: jax.Array
    grad_norm: jax.Array
    update_norm: jax.Array
    squares: jax.Array | None = None
    wish: jax.Array | None = None


Step = Callable[[State, jax.Array, jax.Array, StepSettings], tuple[State, Metrics]]


def in_its_dtype(model: ModelFamily, function: F) -> F:
    """A function whose products are float32 where the model's activations are.

    By default GPUs round what they multiply to TF32, and TPUs to bfloat16.
    """
    if getattr(model, "dtype", "float32") != "float32":
        return function
    return jax.default_matmul_precision("float32")(function)  # type: ignore[return-value]


def _squared_norm(gradients: Params) -> jax.Array:
    return optax.tree.norm(gradients, squared=True)


def accumulate(
    loss_sums: LossSums,
    params: Params,
    sums: Sums,
    sequences_bxT1: jax.Array,
    squared_norm: Callable[[Params], jax.Array] = _squared_norm,
) -> Sums:
    """Adds one bucket of sequences (int32, each with seq_len + 1 tokens) to the sums.

    Gradients are those of the loss and the auxiliary terms; the loss is without them.
    """

    def objective(params: Params) -> tuple[jax.Array, jax.Array]:
        loss, auxiliary = loss_sums(params, sequences_bxT1)
        return sum(auxiliary.values(), loss), loss

    (_, loss), gradients = jax.value_and_grad(objective, has_aux=True)(params)
    targets = sequences_bxT1.shape[0] * (sequences_bxT1.shape[1] - 1)
    squares = sums.squares
    if squares is not None:
        squares += squared_norm(gradients) / targets**2
    return Sums(
        jax.tree.map(jnp.add, sums.gradients, gradients),
        sums.loss + loss,
        sums.targets + targets,
        squares,
    )


def apply(
    optimizer: optax.GradientTransformation, state: State, sums: Sums, average_shares: jax.Array
) -> tuple[State, Metrics]:
    """One optimizer update with the mean gradient over all targets, then the weight averages."""
    gradients = jax.tree.map(lambda g: g / sums.targets, sums.gradients)
    updates, optimizer_state = optimizer.update(gradients, state.optimizer, state.params)
    params = jax.tree.map(jnp.add, state.params, updates)
    metrics = Metrics(
        sums.loss / sums.targets,
        optax.tree.norm(gradients),
        optax.tree.norm(updates),
        sums.squares,
    )
    averages = state.averages and average.update(state.averages, params, average_shares)
    return State(params, optimizer_state, averages), metrics


def make_step(
    run: RunConfig,
    mesh: Mesh | None = None,
    attention: str = "reference",
    *,
    whole_gradient: bool = False,
    layers: Layers = ONE_BY_ONE,
) -> Step:
    """The step of a run: (state, sequences [N, b, T+1], count <= N, settings) -> state, metrics.

    Only the first `count` buckets of `sequences` are used. The devices of a mesh share each bucket.
    `attention` names the kernel that computes it; `whole_gradient` and `layers` as in `Execution`.
    """
    how = {} if layers == ONE_BY_ONE else {"layers": layers}

    def loss_by(gather: Gather = as_it_is) -> LossSums:
        return run.model.loss_by(attention, gather, **how)

    def sum_buckets(
        loss: LossSums,
        params: Params,
        sequences_NxbxT1: jax.Array,
        count: jax.Array,
        squared_norm: Callable[[Params], jax.Array] = _squared_norm,
    ) -> Sums:
        zero = Sums(
            jax.tree.map(jnp.zeros_like, params),
            jnp.zeros(()),
            jnp.zeros(()),
            jnp.zeros(()) if run.noise_scale.half_life else None,
        )

        def add(i: jax.Array, sums: Sums) -> Sums:
            # Tied to the turn: of a single bucket, TPUs' compiler would see that all turns are the
            # same, and make parts of the forward pass outside the loop, and again in it.
            bucket_bxT1, _ = jax.lax.optimization_barrier((sequences_NxbxT1[i], i))
            return accumulate(loss, params, sums, bucket_bxT1, squared_norm)

        return jax.lax.fori_loop(0, count, add, zero)

    if mesh is not None and splits_weights(mesh):
        of_shards = run.model, loss_by, mesh
        sum_all = sum_over_shards(sum_buckets, *of_shards, whole_gradient=whole_gradient)
    else:
        own = partial(sum_buckets, loss_by())
        sum_all = sum_over_devices(own, mesh, WHOLE, mesh and sequence_split(mesh), WHOLE)

    def step(state: State, sequences_NxbxT1: jax.Array, count: jax.Array, settings: StepSettings):
        optimizer = run.optimizer.chain(settings, _masks(run.model, state.params))
        sums = sum_all(state.params, sequences_NxbxT1, count)
        return apply(optimizer, state, sums, settings.average_shares)

    return in_its_dtype(run.model, step)


def many_steps(
    take: Callable[[jax.Array, State], tuple[State, Any]], most: int, state: Any, steps: jax.Array
) -> tuple[Any, Any]:
    """The state and metrics [most] behind so many steps, each `take(k, state)`, in one program."""
    shapes = jax.eval_shape(take, jnp.int32(0), state)[1]
    empty = jax.tree.map(lambda x: jnp.zeros((most, *x.shape), x.dtype), shapes)

    def one(k: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        state, metrics = take(k, carry[0])
        return state, jax.tree.map(lambda x_K, x: x_K.at[k].set(x), carry[1], metrics)

    return jax.lax.fori_loop(0, steps, one, (state, empty))


def init_state(run: RunConfig) -> State:
    """A fresh state from the run's seed. Traceable, so that it compiles as one program."""
    params = run.model.init(run.seed)
    settings = StepSettings(0.0, 1 - run.optimizer.beta1, 0.1, 0.0, ())
    optimizer = run.optimizer.chain(settings, _masks(run.model, params))
    averages = average.empty(params, len(run.averages)) if run.averages else None
    return State(params, optimizer.init(params), averages)


def state_shapes(run: RunConfig, mesh: Mesh) -> State:
    """Shapes and shardings of a run's state, as compilers and orbax want them.

    Raises:
        InputError: where the devices do not divide the weights that they split.
    """
    shapes = jax.eval_shape(lambda: init_state(run))
    return jax.tree.map(
        lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        shapes,
        shardings(run.model, shapes, mesh),
    )


def _masks(model: ModelFamily, params: Params) -> Masks:
    return Masks(model.decay_mask(params), model.matrices(params), model.rates(params))
