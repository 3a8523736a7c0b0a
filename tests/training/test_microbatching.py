"""One compiled gradient for every batch size, in a loop and with a loss that are not ours."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bss.errors import InputError
from bss.training.microbatching import Weighted, microbatch_grad, pack
from bss.training.noise_scale import NoiseScale
from tests.training.eight_devices import wrapped

D = 5


def rows_of(count, seed=0):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, D)).astype(np.float32)
    return {"x": x, "y": draw.normal(size=count).astype(np.float32), "mask": x[:, 0] > -0.5}


PARAMS = {"w": jnp.arange(D, dtype=jnp.float32) / D, "b": jnp.float32(0.1)}


def errors(params, batch):
    return (batch["x"] @ params["w"] + params["b"] - batch["y"]) ** 2


def mean_loss(params, batch):
    return errors(params, batch).mean()


def masked_loss(params, batch):
    kept = batch["mask"].astype(jnp.float32)
    return Weighted((errors(params, batch) * kept).sum(), kept.sum())


def whole(loss_fn, batch):
    def value(params):
        loss = loss_fn(params, batch)
        return loss.sum / loss.weight if isinstance(loss, Weighted) else loss

    return jax.value_and_grad(value)(PARAMS)


@pytest.mark.parametrize("loss_fn", [mean_loss, masked_loss])
@pytest.mark.parametrize("micro_batch", [1, 4, 12])
def test_any_micro_batch_and_padding_give_the_gradient_of_the_whole_batch(loss_fn, micro_batch):
    rows = rows_of(24)
    loss, grads = jax.device_get(whole(loss_fn, rows))
    grad_fn = jax.jit(microbatch_grad(loss_fn, micro_batch))
    for largest in (24, 48):
        batch, count = pack(rows, micro_batch, largest)
        found, own, stats = grad_fn(PARAMS, batch, count)
        assert found == pytest.approx(float(loss), rel=1e-5)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), own, grads
        )
        assert stats.grad_norm == pytest.approx(float(optax.tree.norm(grads)), rel=1e-5)


def test_padding_is_never_trained_on():
    batch, count = pack(rows_of(8), 4, 32)
    poisoned = jax.tree.map(np.copy, batch)
    places = np.arange(32).reshape(4, 8)[:, int(count) :].ravel()
    poisoned["x"][places] = np.nan
    loss, grads, _ = microbatch_grad(mean_loss, 4)(PARAMS, poisoned, count)
    assert np.isfinite(loss) and all(np.isfinite(g).all() for g in jax.tree.leaves(grads))


def test_a_ramp_compiles_once_and_an_octave_once_each():
    grad_fn = microbatch_grad(mean_loss, 2)
    traced = []

    @jax.jit
    def step(params, batch, count):
        traced.append(1)
        return grad_fn(params, batch, count)

    for size in (2, 4, 8, 16):
        step(PARAMS, *pack(rows_of(size), 2, 16))
    assert len(traced) == 1
    for size in (2, 6, 8, 12, 16):  # buffers of 1, 4, 4, 8 and 8 micro-batches; 8 is there
        step(PARAMS, *pack(rows_of(size), 2, 16, octaves=True))
    assert len(traced) == 3


@pytest.mark.parametrize(("how", "expected"), [("sum", 24.0), ("mean", 24 / 6)])
def test_aux_is_averaged_or_summed(how, expected):
    def loss_fn(params, batch):
        return mean_loss(params, batch), {"rows": jnp.float32(len(batch["x"]))}

    grad_fn = microbatch_grad(loss_fn, 4, has_aux=True, aux=how)
    (_, aux), _, _ = grad_fn(PARAMS, *pack(rows_of(24), 4, 32))
    assert aux["rows"] == pytest.approx(expected)


def test_each_micro_batch_has_a_key_of_its_own():
    def loss_fn(params, batch, rng):
        return mean_loss(params, batch), jax.random.uniform(rng)

    grad_fn = microbatch_grad(loss_fn, 4, has_aux=True, aux="sum")
    (_, total), _, _ = grad_fn(PARAMS, *pack(rows_of(12), 4, 16), rng=jax.random.key(0))
    own = [jax.random.uniform(jax.random.fold_in(jax.random.key(0), i)) for i in range(3)]
    assert total == pytest.approx(float(sum(own)))


def test_the_noise_scale_is_unbiased_also_with_unequal_weights():
    trace, square = 9.0, 0.25
    draw = np.random.default_rng(1)

    def loss_fn(params, batch):  # its gradient is the mean of the rows that the mask keeps
        kept = batch["mask"].astype(jnp.float32)
        return Weighted(((batch["g"] @ params) * kept).sum(), kept.sum())

    grad_fn = jax.jit(microbatch_grad(loss_fn, 4, noise_scale=True))
    size = 100
    noise = NoiseScale(half_life=10**9)
    for _ in range(300):
        g = np.sqrt(square / size) + draw.normal(0, np.sqrt(trace / size), (32, size))
        rows = {"g": g.astype(np.float32), "mask": draw.uniform(size=32) < 0.8}
        rows["mask"][::4] = True
        stats = grad_fn(jnp.zeros(size), *pack(rows, 4, 32))[2]
        noise = noise.update(stats.noise_trace, stats.noise_square, 32)
    # a row counts 1 / 0.85 as much as one that is always kept
    assert noise.value == pytest.approx(trace / square / 0.85, rel=0.1)
    single = grad_fn(jnp.zeros(size), *pack(jax.tree.map(lambda x: x[:4], rows), 4, 32))[2]
    assert np.isnan(single.noise_trace)
    assert noise.update(single.noise_trace, single.noise_square, 4) == noise


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("split_weights", [False, True])
def test_devices_share_the_rows_of_each_micro_batch(devices, split_weights):
    rows = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
    weights = np.arange(16, dtype=np.float32) / 16
    loss, gradients = wrapped(devices, split_weights)
    assert loss == pytest.approx(float(((rows @ weights) ** 2).mean()), rel=1e-5)
    expected = 2 * rows.T @ (rows @ weights) / 16
    np.testing.assert_allclose(gradients, expected, rtol=1e-4, atol=1e-6)


def test_gradients_keep_the_dtype_of_the_parameters_and_are_summed_in_float32():
    params = jax.tree.map(lambda p: p.astype(jnp.bfloat16), PARAMS)
    _, grads, stats = microbatch_grad(mean_loss, 1)(params, *pack(rows_of(64), 1, 64))
    assert {g.dtype for g in jax.tree.leaves(grads)} == {jnp.dtype("bfloat16")}
    assert stats.grad_norm.dtype == jnp.float32


BAD = {
    "divides": (lambda: pack(rows_of(6), 4, 8), "6 rows are no multiple of micro_batch 4"),
    "largest": (lambda: pack(rows_of(8), 4, 4), "more than the largest batch, 4"),
    "differ": (
        lambda: pack({"x": np.zeros(4), "y": np.zeros(2)}, 2, 4),
        "batch: arrays differ in rows",
    ),
    "count": (lambda: microbatch_grad(mean_loss, 2)(PARAMS, rows_of(4), 3), "count: 3"),
    "scalar": (
        lambda: microbatch_grad(errors, 2)(PARAMS, rows_of(4)),
        "loss_fn: its loss has shape",
    ),
    "integers": (
        lambda: microbatch_grad(mean_loss, 2)({"w": jnp.arange(D)}, rows_of(4)),
        "params['w']: dtype int32",
    ),
    "micro": (lambda: microbatch_grad(mean_loss, 0), "micro_batch: 0"),
    "aux": (
        lambda: microbatch_grad(mean_loss, 1, aux="max"),  # type: ignore[arg-type]
        "aux: 'max'",
    ),
    "half": (partial(NoiseScale, 0), "half_life: 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(name):
    call, words = BAD[name]
    with pytest.raises(InputError) as caught:
        call()
    assert words in str(caught.value) and "\n" not in str(caught.value)
