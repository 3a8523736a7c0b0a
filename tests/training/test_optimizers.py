"""Adam with changing betas, against optax where they are constant and NumPy where they are not."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

from bss.errors import InputError
from bss.sweeps.grid import overlay
from bss.training.loop import Interrupted, train
from bss.training.optimizers import (
    SGD,
    AdamW,
    Masks,
    Muon,
    ScheduleFree,
    StepSettings,
    scale_by_moments,
)
from bss.training.run_directory import read_curve


@pytest.fixture(scope="module")
def tiny_run(tiny_transformer):
    """With a transformer."""
    return tiny_transformer


def gradients(steps: int) -> list[dict]:
    draw = np.random.default_rng(0)
    return [
        {"w": jnp.asarray(draw.normal(size=(3, 4)), jnp.float32), "scale": jnp.float32(k - 5)}
        for k in range(steps)
    ]


def settings(lr=1e-2, beta1=0.9, beta2=0.999, weight_decay=0.0) -> StepSettings:
    scalars = (lr, 1 - beta1, 1 - beta2, weight_decay)
    lr, one_minus_beta1, one_minus_beta2, decay = map(np.float32, scalars)
    return StepSettings(lr, one_minus_beta1, one_minus_beta2, decay, ())


def descend(chain: optax.GradientTransformation, steps: int) -> dict:
    params = {"w": jnp.ones((3, 4)), "scale": jnp.float32(1)}
    state = chain.init(params)
    for g in gradients(steps):
        updates, state = chain.update(g, state, params)
        params = optax.apply_updates(params, updates)
    return params


def assert_close(ours: dict, theirs: dict) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6), ours, theirs)


MASK = {"w": True, "scale": False}
MASKS = Masks(MASK, MASK)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.95), (0.95, 0.5)])
def test_constant_betas_are_optax_adam(betas):
    config = AdamW(clip=0)
    ours = config.chain(settings(beta1=betas[0], beta2=betas[1]), MASKS)
    assert_close(descend(ours, 50), descend(optax.adam(1e-2, *betas), 50))


def test_weight_decay_is_masked_and_decoupled_as_in_optax():
    ours = AdamW(clip=0).chain(settings(weight_decay=0.3), MASKS)
    theirs = optax.adamw(1e-2, 0.9, 0.999, weight_decay=0.3, mask=MASK)
    assert_close(descend(ours, 50), descend(theirs, 50))


def test_sgd_is_optax_momentum():
    ours = SGD(clip=0).chain(settings(beta1=0.8), MASKS)
    assert_close(descend(ours, 50), descend(optax.sgd(1e-2, momentum=0.8), 50))


def test_schedule_free_is_that_of_optax_and_evaluated_at_its_average():
    config = ScheduleFree(beta1=0.8, clip=0)
    ours = config.chain(settings(beta1=0.8, weight_decay=0.3), MASKS)
    base = optax.adamw(1e-2, b1=0.0, b2=0.999, weight_decay=0.3, mask=MASK)
    theirs = optax.contrib.schedule_free(base, 1e-2, b1=0.8)
    assert_close(descend(ours, 50), descend(theirs, 50))

    params = {"w": jnp.ones((3, 4)), "scale": jnp.float32(1)}
    state, z, x = ours.init(params), [], None
    for g in gradients(9):
        updates, state = ours.update(g, state, params)
        params = optax.apply_updates(params, updates)
        z.append(state[-1].z["w"])
        x = config.evaluation_params(params, state)["w"]
    np.testing.assert_allclose(x, np.mean(z, axis=0), rtol=1e-4)
    assert AdamW().evaluation_params(params, state) is params


@pytest.mark.slow
def test_muon_is_that_of_optax_at_one_rate_layer_by_layer():
    def params(*stack):
        return {"w": jnp.ones((*stack, 3, 4)), "scale": jnp.ones(4)}

    theirs = optax.contrib.muon(
        1e-2, beta=0.9, adam_learning_rate=3e-3, weight_decay=0.3, weight_decay_mask=MASK
    )
    config = Muon(lr=1e-2, adam_lr=3e-3, clip=0)
    ours = config.chain(settings(weight_decay=0.3), MASKS)
    draw = np.random.default_rng(1).normal(size=(5, 2, 3, 4)).astype(np.float32)

    def descend(chain: optax.GradientTransformation, params: Any, gradients) -> Any:
        state = chain.init(params)
        for w in gradients:
            updates, state = chain.update({"w": w, "scale": jnp.ones(4)}, state, params)
            params = optax.apply_updates(params, updates)
        return params

    stacked = descend(ours, params(2), draw)
    for layer in range(2):
        alone = descend(theirs, params(), draw[:, layer])
        np.testing.assert_allclose(stacked["w"][layer], alone["w"], rtol=1e-5)
    np.testing.assert_allclose(stacked["scale"], 1 - 5 * 3e-3, rtol=1e-5)


@pytest.mark.parametrize(("still", "rates"), [("w", (1e-30, 1e-2)), ("scale", (1e-2, 1e-30))])
def test_muons_groups_go_by_their_own_rates(still, rates):
    config = Muon(lr=rates[0], adam_lr=rates[1], clip=0)
    moved = descend(config.chain(settings(lr=rates[0]), MASKS), 3)
    for name, value in moved.items():
        assert bool(jnp.all(value == 1)) == (name == still)


@pytest.mark.slow
def test_a_run_learns_with_muon_and_compiles_once(tiny_run, tiny_execution):
    changes = {"optimizer.name": "muon", "schedule.tokens": 1024}
    status = train(overlay(tiny_run, changes), tiny_execution)
    assert (status.status, status.programs, status.recompilations) == ("finished", 1, 0)
    assert status.losses["eval_loss"] < 4.2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["schedule_free", "muon"])
def test_a_run_learns_compiles_once_and_resumes(
    name, tiny_run, tiny_execution, stop_after, assert_same_outcome
):
    run = overlay(tiny_run, {"optimizer.name": name, "schedule.tokens": 5120})
    with pytest.raises(Interrupted):
        train(run, tiny_execution, stop=stop_after(75))
    status = train(run, tiny_execution)
    assert (status.status, status.recompilations) == ("finished", 0)
    assert status.losses["eval_loss"] < 3.5
    straight = dataclasses.replace(tiny_execution, runs=f"{tiny_execution.runs}-straight")
    train(run, straight)
    assert_same_outcome(run, tiny_execution, run, straight)
    rows = read_curve(Path(tiny_execution.runs) / run.id)
    assert rows[-1]["eval_loss"] < rows[0]["eval_loss"] - 0.5


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(InputError, match=r"optimizer\.beta1 is 0; schedule_free divides by it"):
        ScheduleFree(beta1=0.0)
    with pytest.raises(InputError, match=r"optimizer\.adam_lr is 0; expected a positive number"):
        Muon(adam_lr=0)


def test_gradients_are_clipped_by_their_global_norm():
    ours = SGD(clip=0.5).chain(settings(lr=1, beta1=0), MASKS)
    g = gradients(1)[0]
    updates, _ = ours.update(g, ours.init(g), g)
    assert optax.tree.norm(g) > 0.5
    np.testing.assert_allclose(optax.tree.norm(updates), 0.5, rtol=1e-5)


def test_correction_after_beta2_changes_is_the_running_product():
    before, after, steps = 0.999, 0.999**8, 20
    betas = np.array([before] * 50 + [after] * steps)
    chain = [scale_by_moments(np.float32(0.1), np.float32(1 - b), 1e-8) for b in betas]
    params = {"w": jnp.zeros(2)}
    state, weights = chain[0].init(params), []
    for transformation in chain:
        _, state = transformation.update({"w": jnp.ones(2)}, state, params)
        weights.append(float(state.nu_weight))
    np.testing.assert_allclose(weights, 1 - np.cumprod(betas), rtol=2e-6)
    np.testing.assert_allclose(weights[50], 0.056, atol=5e-4)
    np.testing.assert_allclose(1 - after**51, 0.335, atol=5e-4)  # what the count would say


def test_constant_gradients_give_unit_directions_through_the_change():
    state = scale_by_moments(0.1, 1e-3, 0.0).init({"w": jnp.zeros(1)})
    for k in range(30):
        transformation = scale_by_moments(0.1, 1e-3 if k < 10 else 8e-3, 0.0)
        direction, state = transformation.update({"w": jnp.full(1, 7.0)}, state)
        np.testing.assert_allclose(direction["w"], 1, rtol=1e-5)
