"""The train step: accumulate gradients, update parameters, update weight averages.

`accumulate` adds the gradients of one micro-batch; `apply` makes the update. The number of
micro-batches in a step is traced, so one compiled program per micro-batch shape serves every batch
size that is a multiple of it. Accumulation is weighted by tokens, in float32; each device
accumulates its share of every micro-batch, and the shares are summed once per step.

The step is also where a run's weight averages and its gradient noise scale are defined.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from bss.models.base import (
    DEFAULT_LAYERS,
    AllGather,
    Compute,
    Layers,
    LossSums,
    ModelFamily,
    Params,
    identity,
)
from bss.schedules.plan import StepSpec
from bss.training import sharding
from bss.training.optimizers import Masks, StepSettings
from bss.training.run_config import RunConfig, half_life
from bss.training.spikes import SpikeStats, judge, no_steps

F = TypeVar("F", bound=Callable)
S = TypeVar("S", bound="AnyState")


class WeightAverages(NamedTuple):
    """Exponential averages of the parameters, before bias correction.

    Attributes:
        sums: a tree as the parameters, with a leading axis [K, ...].
        weights: the weight that each average has accumulated, [K].
    """

    sums: Params
    weights: jax.Array


class State(NamedTuple):
    """All arrays that a step reads and writes. Tokens are counted on the host."""

    params: Params
    optimizer: Any
    averages: WeightAverages | None


class GuardedState(NamedTuple):
    """The state of a run that skips spikes.

    Attributes:
        params, optimizer, averages: as in `State`, which has no further field: checkpoints of runs
            without this policy are read as they were written.
        spikes: Statistics of the gradient norm.
    """

    params: Params
    optimizer: Any
    averages: WeightAverages | None
    spikes: SpikeStats


AnyState = State | GuardedState


class Sums(NamedTuple):
    """Sums over the sequences of a step.

    Attributes:
        gradients: a tree as the parameters.
        loss: in nats.
        targets: number of targets.
        squares: sum of squared norms of the micro-batches' mean gradients, or of each device's
            share of them; None if the run does not measure the gradient noise scale.
    """

    gradients: Params
    loss: jax.Array
    targets: jax.Array
    squares: jax.Array | None = None


class Metrics(NamedTuple):
    """Metrics of one step.

    Attributes:
        loss: mean loss in nats per token.
        grad_norm: global norm of the gradient before clipping.
        update_norm: global norm of the update.
        squares: as in `Sums`.
        action: the `HostAction` that several processes agreed on; None for one process.
        skipped: True if the step changed nothing; None if the run does not skip spikes.
    """

    loss: jax.Array
    grad_norm: jax.Array
    update_norm: jax.Array
    squares: jax.Array | None = None
    action: jax.Array | None = None
    skipped: jax.Array | None = None


Step = Callable[[State, jax.Array, jax.Array, StepSettings], tuple[State, Metrics]]


def step_settings(spec: StepSpec, end_tokens: int, half_lives: tuple[str, ...]) -> StepSettings:
    """Return the float32 settings of a step; 1 - beta is computed in float64 first."""
    s = spec.settings
    return StepSettings(
        np.float32(s.lr),
        np.float32(1 - s.beta1),
        np.float32(1 - s.beta2),
        np.float32(s.weight_decay),
        ema_rates(half_lives, end_tokens, end_tokens - spec.tokens),
    )


def settings_shapes(run: RunConfig, *leading: int) -> StepSettings:
    """Return the shapes of `step_settings`, with leading axes."""
    scalar = jax.ShapeDtypeStruct(leading, jnp.float32)
    rates = jax.ShapeDtypeStruct((*leading, len(run.averages)), jnp.float32)
    return StepSettings(scalar, scalar, scalar, scalar, rates)


def with_matmul_precision(model: ModelFamily, function: F) -> F:
    """Return a function with float32 matrix products, if the model's activations are float32.

    By default GPUs round the inputs of products to TF32, and TPUs to bfloat16.
    """
    if model.compute_dtype != "float32":
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
    """Add one micro-batch of sequences (int32, each with seq_len + 1 tokens) to the sums.

    Gradients include the auxiliary terms; the loss does not.
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
    optimizer: optax.GradientTransformation,
    state: S,
    sums: Sums,
    ema_rates_K: jax.Array,
    scatters: float = math.inf,
) -> tuple[S, Metrics]:
    """Update parameters with the mean gradient over all targets, then the weight averages.

    A `GuardedState` is kept if the step is a spike; `scatters` is the limit, see `judge`.
    """
    gradients = jax.tree.map(lambda g: g / sums.targets, sums.gradients)
    updates, optimizer_state = optimizer.update(gradients, state.optimizer, state.params)
    params = jax.tree.map(jnp.add, state.params, updates)
    metrics = Metrics(
        sums.loss / sums.targets,
        optax.tree.norm(gradients),
        optax.tree.norm(updates),
        sums.squares,
    )
    averages = state.averages and update_averages(state.averages, params, ema_rates_K)
    new: Any = state._replace(params=params, optimizer=optimizer_state, averages=averages)
    if not isinstance(new, GuardedState):
        return new, metrics
    finite = jnp.isfinite(metrics.loss + metrics.grad_norm + metrics.update_norm)
    skipped, spikes = judge(new.spikes, metrics.grad_norm, finite, scatters)
    kept = jax.tree.map(lambda x, old: jnp.where(skipped, old, x), new, state)
    return kept._replace(spikes=spikes), metrics._replace(skipped=skipped)


def make_step(
    run: RunConfig,
    mesh: Mesh | None = None,
    attention: str = "reference",
    *,
    layers: Layers = DEFAULT_LAYERS,
) -> Step:
    """Return the step of a run.

    It maps (state, sequences [N, b, T+1], count, settings) to (state, metrics), and uses the first
    `count` micro-batches of the sequences.

    Args:
        run: the run.
        mesh: the devices, which share each micro-batch.
        attention: name of the attention kernel.
        layers: see `Execution`.
    """

    def loss_fn(all_gather: AllGather = identity) -> LossSums:
        return run.model.loss_fn(Compute(attention, all_gather, layers))

    def accumulate_gradients(
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
            # Without the barrier a TPU's compiler, given a single micro-batch, sees that all turns
            # are equal, moves parts of the forward pass out of the loop, and repeats them in it.
            bucket_bxT1, _ = jax.lax.optimization_barrier((sequences_NxbxT1[i], i))
            return accumulate(loss, params, sums, bucket_bxT1, squared_norm)

        if len(sequences_NxbxT1) == 1 and mesh is not None and sharding.on_gpus(mesh):
            return add(jnp.int32(0), zero)  # no sums to keep; CPUs keep the bits of the loop
        return jax.lax.fori_loop(0, count, add, zero)

    if mesh is not None and sharding.shards_weights(mesh):
        sum_all = sharding.sum_over_shards(accumulate_gradients, run.model, loss_fn, mesh)
    else:
        own = partial(accumulate_gradients, loss_fn())
        specs = sharding.REPLICATED, mesh and sharding.sequence_split(mesh), sharding.REPLICATED
        sum_all = sharding.sum_over_devices(own, mesh, *specs)

    def step(
        state: State, sequences_NxbxT1: jax.Array, count: jax.Array, settings: StepSettings
    ) -> tuple[State, Metrics]:
        optimizer = run.optimizer.chain(settings, _masks(run.model, state.params))
        sums = sum_all(state.params, sequences_NxbxT1, count)
        return apply(optimizer, state, sums, settings.ema_rates, run.spike_scatters)

    return with_matmul_precision(run.model, step)


def many_steps(
    take: Callable[[jax.Array, State], tuple[State, Any]], most: int, state: Any, steps: jax.Array
) -> tuple[Any, Any]:
    """Take `steps` steps in one program: return the state and the metrics, [most, ...].

    Args:
        take: maps the index of a step and the state to the state and the metrics.
        most: maximum of `steps`.
        state: the state before them.
        steps: traced number of steps.
    """
    take = jax.jit(take, inline=True)  # traced once, for the shapes and for the loop
    shapes = jax.eval_shape(take, 0, state)[1]
    empty = jax.tree.map(lambda x: jnp.zeros((most, *x.shape), x.dtype), shapes)

    def one(k: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        state, metrics = take(k, carry[0])
        return state, jax.tree.map(lambda x_K, x: x_K.at[k].set(x), carry[1], metrics)

    return jax.lax.fori_loop(0, steps, one, (state, empty))


def init_state(run: RunConfig) -> AnyState:
    """Return a fresh state from the run's seed. It is traceable, to compile as one program."""
    params = run.model.init(_fold_seed(run.seed))
    optimizer = run.optimizer.init(params, _masks(run.model, params))
    averages = empty_averages(params, len(run.averages)) if run.averages else None
    if run.skips_spikes:
        return GuardedState(params, optimizer, averages, no_steps())
    return State(params, optimizer, averages)


def _fold_seed(seed: int) -> int:
    """Return the seed as 32 bits, all that JAX's keys take; it would drop the others or fail."""
    if 0 <= seed < 2**32:
        return seed
    return int(np.random.SeedSequence(abs(seed), spawn_key=(int(seed < 0),)).generate_state(1)[0])


def state_shapes(run: RunConfig, mesh: Mesh) -> State:
    """Return the shapes and sharding.shardings of a run's state.

    Raises:
        InputError: If the devices do not divide the weights that they shard.
    """
    shapes = jax.eval_shape(lambda: init_state(run))
    return jax.tree.map(
        lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        shapes,
        sharding.shardings(run.model, shapes, mesh),
    )


def _masks(model: ModelFamily, params: Params) -> Masks:
    return Masks(model.decay_mask(params), model.matrices(params), model.rates(params))


def ema_rates(half_lives: tuple[str, ...], tokens: int, batch_tokens: int) -> np.ndarray:
    """Return 1 - tau of each weight average in the step that ends at `tokens`, float32 [K].

    1 - tau = 1 - 2^(-batch tokens / half-life), so that a half-life has the same meaning at every
    batch size. A half-life in percent of the tokens consumed averages the same part of the run at
    every token budget.
    """
    lives = np.array([half_life(text, tokens) for text in half_lives], np.float64)
    return -np.expm1(-math.log(2) * batch_tokens / lives).astype(np.float32)


def empty_averages(params: Params, count: int) -> WeightAverages:
    """Return `count` averages of zero weight."""
    sums = jax.tree.map(lambda p: jnp.zeros((count, *p.shape), p.dtype), params)
    return WeightAverages(sums, jnp.zeros(count))


def update_averages(
    averages: WeightAverages, params: Params, ema_rates_K: jax.Array
) -> WeightAverages:
    """Move every average towards the parameters, as in Zhang et al. (2410.21676)."""

    def move(sum_KxP: jax.Array, p: jax.Array) -> jax.Array:
        rate = ema_rates_K.reshape(-1, *[1] * p.ndim)
        return sum_KxP + rate * (p[None] - sum_KxP)

    sums = jax.tree.map(move, averages.sums, params)
    return WeightAverages(sums, averages.weights + ema_rates_K * (1 - averages.weights))


def select_average(averages: WeightAverages, index: jax.Array) -> Params:
    """Return the parameters of one average, divided by its weight (derived here), which is > 0."""
    return jax.tree.map(lambda s: s[index] / averages.weights[index], averages.sums)
