"""Accumulation equals the full batch; unused rows do not matter; settings are not compiled in;
many steps in one call are the steps one by one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bss.models import network
from bss.training.optimizers import StepSettings
from bss.training.programs import step_programs
from bss.training.sharding import make_mesh, replicated
from bss.training.step import Sums, accumulate, init_state, make_step, many_steps

BATCH = 12


@pytest.fixture(scope="module")
def tiny_run(tiny_transformer):
    """With a transformer."""
    return tiny_transformer


def settings(lr=1e-2, beta2=0.95) -> StepSettings:
    lr, beta1, beta2, decay = map(np.float32, (lr, 0.1, 1 - beta2, 0.01))
    return StepSettings(lr, beta1, beta2, decay, np.zeros(0, np.float32))


@pytest.fixture(scope="module")
def sequences(tiny_run):
    shape = (BATCH, tiny_run.data.seq_len + 1)
    return np.random.default_rng(1).integers(0, tiny_run.model.vocab_size, shape).astype(np.int32)


def largest_error(ours, theirs) -> float:
    """Largest difference of any array, relative to the largest entry of that array."""
    errors = jax.tree.map(
        lambda a, b: float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b))), ours, theirs
    )
    return max(jax.tree.leaves(errors))


@pytest.fixture(scope="module")
def full_batch(tiny_run, start, sequences):
    """Mean loss and gradients of the whole batch at once, and the step with them."""

    def mean_loss(params):
        logits = network.logits(tiny_run.model, params, sequences)
        logits = jax.nn.log_softmax(logits)
        return -jnp.take_along_axis(logits, sequences[:, 1:, None], axis=-1).mean()

    return jax.jit(jax.value_and_grad(mean_loss))(start.params)


@pytest.fixture(scope="module")
def start(tiny_run):
    return jax.jit(lambda: init_state(tiny_run))()


@pytest.mark.parametrize("bucket", [1, 4])
def test_accumulated_gradients_equal_the_full_batch(tiny_run, start, sequences, full_batch, bucket):
    params = start.params
    add = jax.jit(lambda sums, bucket: accumulate(tiny_run.model.loss, params, sums, bucket))
    sums = Sums(jax.tree.map(jnp.zeros_like, params), jnp.zeros(()), jnp.zeros(()))
    for piece in np.split(sequences, BATCH // bucket):
        sums = add(sums, piece)
    assert float(sums.targets) == BATCH * tiny_run.data.seq_len
    loss, gradients = full_batch
    np.testing.assert_allclose(sums.loss / sums.targets, loss, rtol=1e-5)
    mean = jax.tree.map(lambda g: g / sums.targets, sums.gradients)
    assert largest_error(mean, gradients) < 1e-5


@pytest.mark.slow
def test_every_split_makes_the_same_step_and_ignores_unused_rows(
    tiny_run, start, sequences, full_batch
):
    step = jax.jit(make_step(tiny_run))
    poison = np.full((3, *sequences.shape), 7, np.int32)
    results = []
    for bucket in (4, 12):
        count = BATCH // bucket
        shaped = sequences.reshape(count, bucket, -1)
        extra = poison[0][: 2 * bucket].reshape(-1, bucket, shaped.shape[-1])
        padded = np.concatenate([shaped, extra])
        blank = np.concatenate([shaped, np.zeros_like(extra)])
        result = step(start, padded, np.int32(count), settings())
        same = step(start, blank, np.int32(count), settings())
        jax.tree.map(np.testing.assert_array_equal, result, same)
        results.append(result)
    for state, metrics in results:
        np.testing.assert_allclose(metrics.loss, full_batch[0], rtol=1e-5)
        # Adam's first update is a sign: params agree where the gradient is not tiny.
        moved = jax.tree.map(lambda new, old: new - old, state.optimizer, results[0][0].optimizer)
        assert max(float(jnp.max(jnp.abs(x))) for x in jax.tree.leaves(moved)) < 1e-5
        np.testing.assert_allclose(metrics.grad_norm, results[0][1].grad_norm, rtol=1e-5)


def test_learning_rate_and_betas_reuse_one_program(tiny_run, start, sequences):
    step = jax.jit(make_step(tiny_run))
    shaped, three = sequences.reshape(3, 4, -1), np.int32(3)
    state, _ = step(start, shaped, three, settings())
    with jax.no_tracing():
        slow, metrics = step(state, shaped, three, settings(lr=1e-4, beta2=0.9))
        fast, other = step(state, shaped, np.int32(2), settings(lr=1e-3, beta2=0.9))
    assert float(other.update_norm) > 5 * float(metrics.update_norm)
    assert largest_error(slow.params, fast.params) > 0


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_steps_taken_by_one_call_have_the_bits_of_steps_one_by_one(
    tiny_run, start, sequences, count
):
    """Of batches of one bucket and of two, where a program has room for three; fewer than most."""
    shapes = jax.eval_shape(lambda: init_state(tiny_run))
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=replicated(make_mesh(1))), shapes
    )
    program = step_programs(tiny_run, shapes, {4: 3}, make_mesh(1), most=5)[4].result()
    each = [settings(lr=1e-3 * (1 + k)) for k in range(5)]
    rows = np.resize(sequences, (5 * 3 * 4, sequences.shape[1])).reshape(15, 4, -1)

    def take(state, first, steps):
        """Take steps from the first one on in one call, which gives up the state."""
        own = np.roll(rows, -first * count, axis=0)
        stacked = jax.tree.map(lambda *x: np.stack(x), *each[first:], *each[:first])
        return program(state, own, np.int32(count), stacked, np.int32(steps))

    state, losses = jax.tree.map(jnp.array, start), []
    for k in range(4):
        state, metrics = take(state, k, 1)
        losses.append(metrics.loss[0])
    many, told = take(jax.tree.map(jnp.array, start), 0, 4)
    jax.tree.map(np.testing.assert_array_equal, many, state)
    np.testing.assert_array_equal(told.loss[:4], losses)
    single = jax.jit(make_step(tiny_run))(start, rows[:3], np.int32(count), each[0])[1]
    np.testing.assert_allclose(single.loss, losses[0], rtol=1e-6)


def test_many_steps_trace_a_step_once():
    traced = []

    def take(k, state):
        traced.append(k)
        return state + k, state * 2

    add_up = jax.jit(lambda state, steps: many_steps(take, 5, state, steps))
    state, doubled = add_up(jnp.float32(3), 4)
    assert len(traced) == 1
    assert (float(state), doubled.tolist()) == (9, [6, 6, 8, 12, 0])


def test_seeds_of_any_size_start_different_runs(tiny_run):
    seeds = [5, 5 + 2**32, 5 + 2**33, 5 - 2**32, -5, 5 + 2**70]
    starts = []
    for seed in seeds:
        state = init_state(dataclasses.replace(tiny_run, seed=seed))
        starts.append(np.concatenate([np.ravel(x) for x in jax.tree.leaves(state.params)]))
    for i, one in enumerate(starts):
        assert not any((one == other).all() for other in starts[:i])
    again = init_state(dataclasses.replace(tiny_run, seed=5)).params
    plain = tiny_run.model.init(5)  # seeds below 2^32 keep their bits
    jax.tree.map(np.testing.assert_array_equal, again, plain)
