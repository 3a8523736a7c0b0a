"""A batch schedule in a user's own loop: restarts, micro-batches, resuming, optax's MultiSteps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bss
from bss.errors import InputError
from bss.training.optimizers import scale_by_moments
from tests.training.own_loop import LENGTH, Loader, loss_fn, make_step, start, trained

COUPLING = bss.Coupling(lr="sqrt", reference_batch=8, beta2_half_life=2000)


def ramp(batch="0:8 960:16 2400:64", tokens=6240, **settings):
    return bss.plan(batch, tokens=tokens, seq_len=LENGTH, lr=1e-2, **settings)


def test_a_ramp_compiles_once_and_resumes_anywhere():
    plan = ramp(coupling=COUPLING)
    assert [(s.batch, s.steps) for s in plan.segments] == [(8, 10), (16, 8), (64, 4)]
    train_step, tx = make_step(micro_batch=4)
    whole, _ = trained(plan, 4, (train_step, tx))
    middle = plan.step_at(2000)
    first, state = trained(plan, 4, (train_step, tx), last=middle)
    rest, _ = trained(plan, 4, (train_step, tx), state, first=middle)
    assert first + rest == whole and 0 < middle < plan.steps
    assert whole[-1] < whole[0]
    assert train_step._cache_size() == 1


def test_a_ramp_equals_restarts_at_each_stage():
    plan = ramp()
    losses, _ = trained(plan, 4)
    state = None
    restarted = []
    for segment in plan.segments:  # each stage is a plan of one batch size, and a program
        stage = bss.plan(
            segment.batch,
            tokens=segment.end_tokens,
            seq_len=LENGTH,
            lr=1e-2,
            start=segment.start_tokens,
        )
        part, state = trained(stage, segment.batch, state=state)
        restarted += part
    np.testing.assert_allclose(losses, restarted, rtol=1e-5)


def test_batch_64_has_one_curve_as_2_by_32_8_by_8_and_64_by_1():
    plan = ramp(64, tokens=20 * 64 * LENGTH)
    curves = [trained(plan, micro_batch)[0] for micro_batch in (32, 8, 1)]
    assert len(curves[0]) == 20
    np.testing.assert_allclose(curves[1], curves[0], rtol=1e-5)
    np.testing.assert_allclose(curves[2], curves[0], rtol=1e-5)


def test_multi_steps_of_optax_follows_the_plan():
    plan = ramp(coupling=bss.Coupling(lr="sqrt", reference_batch=8))
    tx = optax.MultiSteps(optax.sgd(plan.lr_schedule()), plan.every_k_schedule(4))
    loader = Loader()
    params = start()
    state = tx.init(params)

    @jax.jit
    def micro_step(params, state, rows):
        grads = jax.grad(lambda params: loss_fn(params, rows)[0])(params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    grads_of = jax.jit(jax.grad(lambda params, rows: loss_fn(params, rows)[0]))
    expected = start()
    for step in plan:
        grads = grads_of(expected, Loader(loader.taken).take(step.batch))
        expected = jax.tree.map(lambda p, g, lr=step.lr: p - lr * g, expected, grads)
        for _ in range(step.batch // 4):
            params, state = micro_step(params, state, loader.take(4))
    assert int(state.gradient_step) == plan.steps
    for name in params:
        np.testing.assert_allclose(params[name], expected[name], rtol=1e-4, atol=1e-6)
    assert micro_step._cache_size() == 1


def gradients(steps=40):
    return np.random.default_rng(2).normal(size=(steps, 3))


def adam_written_out(betas, eps=1e-8):
    """Adam's direction at each step, with the weights that its averages have taken, in float64."""
    mu = nu = np.zeros(3)
    rest1 = rest2 = 1.0  # what the averages have not yet been filled with
    for g, beta2 in zip(gradients(len(betas)), betas, strict=True):
        mu = 0.9 * mu + 0.1 * g
        nu = beta2 * nu + (1 - beta2) * g**2
        rest1 *= 0.9
        rest2 *= beta2
        yield mu / (1 - rest1) / (np.sqrt(nu / (1 - rest2)) + eps)


def directions(factory, betas):
    tx = optax.inject_hyperparams(factory)(b2=0.5)
    state = tx.init(jnp.zeros(3))
    for g, beta2 in zip(gradients(len(betas)), betas, strict=True):
        update, state = tx.update(
            jnp.asarray(g, jnp.float32), optax.tree.set(state, b2=np.float32(beta2))
        )
        yield np.asarray(update)


def test_the_remedy_for_a_beta2_that_changes_is_adam_and_the_usual_correction_is_not():
    betas = [0.999] * 20 + [0.99] * 20

    def remedy(b2):
        return scale_by_moments(1 - 0.9, 1 - b2, 1e-8)

    def usual(b2):
        return optax.scale_by_adam(b2=b2)

    expected = list(adam_written_out(betas))
    np.testing.assert_allclose(list(directions(remedy, betas)), expected, rtol=1e-3, atol=1e-5)
    ratio = np.array(list(directions(usual, betas))) / expected
    np.testing.assert_allclose(ratio[:20], 1, rtol=1e-3)  # until it changes they are equal
    assert ratio[20].min() > 2.5  # sqrt((1 - 0.99^21) / (1 - 0.999^20 0.99)): the step is too long


def test_a_loss_that_is_no_number_is_returned_as_it_is():
    rows = np.full((4, 2), np.nan, np.float32)
    grad_fn = bss.microbatch_grad(lambda params, batch: (params * batch).mean(), 2)
    loss, grads, stats = grad_fn(jnp.float32(1), rows)
    assert np.isnan(loss) and np.isnan(grads) and np.isnan(stats.grad_norm)


PLAN = ramp()
BAD = {
    "a batch that is not divided": (
        lambda: PLAN.pack(np.zeros((8, 3)), micro_batch=16),
        "micro_batch: 16 does not divide batch size 8 of the plan; write a divisor of 8",
    ),
    "k": (lambda: PLAN.every_k_schedule(3), "micro_batch: 3 does not divide batch size 8"),
    "nothing": (lambda: PLAN.pack(np.zeros((8, 3)), 0), "micro_batch: 0 given"),
    "rows": (lambda: PLAN.pack(np.zeros((6, 3)), 4), "batch: 6 rows are no multiple of"),
    "name": (lambda: PLAN.at(0).hyperparams("lr"), "'lr' is unknown; choose from learning_rate"),
    "unset": (
        lambda: PLAN.at(0).hyperparams("weight_decay"),
        "the plan sets no weight_decay; give `bss.plan` coupling=bss.Coupling(weight_decay=...)",
    ),
    "no LR": (
        lambda: bss.plan(8, tokens="1K", seq_len=4).at(0).hyperparams("learning_rate"),
        "the plan sets no learning_rate; give `bss.plan` lr=",
    ),
    "no LR schedule": (
        lambda: bss.plan(8, tokens="1K", seq_len=4).lr_schedule(),
        "lr_schedule: the plan has no learning rate",
    ),
    "not injected": (
        lambda: PLAN.at(0).hyperparams("b2", opt_state=optax.adamw(1e-3).init(start())),
        "the optimizer has no 'b2'; wrap the one that takes it, e.g. optax.inject_hyperparams(",
    ),
    "a fraction": (lambda: PLAN.lr_schedule()(0.5), "step: float64 given"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(name):
    call, words = BAD[name]
    with pytest.raises(InputError) as caught:
        call()
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_hyperparameters_of_a_step_are_those_of_the_plan():
    plan = ramp(coupling=bss.Coupling(beta1=0.8, beta2_half_life=2000, weight_decay=0.1))
    step = plan.at(plan.steps - 1)
    tx = optax.inject_hyperparams(optax.adamw)(learning_rate=0.0)
    names = ("learning_rate", "b1", "b2", "weight_decay")
    found = step.hyperparams(*names, opt_state=tx.init(start()))
    settings = step.settings
    expected = (settings.lr, settings.beta1, settings.beta2, settings.weight_decay)
    assert [float(found[name]) for name in names] == pytest.approx(expected, rel=1e-6)
    assert plan.at(0).hyperparams("b2") != step.hyperparams("b2")
