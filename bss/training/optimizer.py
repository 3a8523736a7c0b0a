"""Optimizers built inside the step from traced settings, so that no setting is compiled in.

Adam follows Kingma & Ba (1412.6980) with one change, derived here: the moments are divided by
the weight they have accumulated, 1 - prod(beta), instead of 1 - beta**count. With constant
betas the two are equal; when a batch change moves beta2, only the accumulated weight is right.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
import optax.contrib

from bss.training.config import OptimizerConfig


class Settings(NamedTuple):
    """What is traced in one step: float32 scalars, and one share per weight average, [K].

    The betas come as 1 - beta: near 1, float32 loses beta.
    """

    lr: Any
    one_minus_beta1: Any
    one_minus_beta2: Any
    weight_decay: Any
    average_shares: Any


class MomentsState(NamedTuple):
    """Adam's moments and the weight each has accumulated."""

    mu: optax.Updates
    nu: optax.Updates
    mu_weight: jax.Array
    nu_weight: jax.Array


def scale_by_moments(one_minus_beta1, one_minus_beta2, eps: float) -> optax.GradientTransformation:
    """Adam's direction, unbiased also when the betas change between steps.

    Equals `optax.scale_by_adam` for constant betas (derived here; tested).
    """

    def init(params):
        def zeros():
            return jax.tree.map(jnp.zeros_like, params)

        return MomentsState(zeros(), zeros(), jnp.zeros(()), jnp.zeros(()))

    def update(updates, state, params=None):
        del params
        mu = jax.tree.map(lambda m, g: m + one_minus_beta1 * (g - m), state.mu, updates)
        nu = jax.tree.map(lambda v, g: v + one_minus_beta2 * (g * g - v), state.nu, updates)
        mu_weight = state.mu_weight + one_minus_beta1 * (1 - state.mu_weight)
        nu_weight = state.nu_weight + one_minus_beta2 * (1 - state.nu_weight)
        direction = jax.tree.map(
            lambda m, v: (m / mu_weight) / (jnp.sqrt(v / nu_weight) + eps), mu, nu
        )
        return direction, MomentsState(mu, nu, mu_weight, nu_weight)

    return optax.GradientTransformation(init, update)


def build(
    config: OptimizerConfig, settings: Settings, decay_mask: Any
) -> optax.GradientTransformation:
    """The optax chain of a run: clip, direction, decoupled weight decay, learning rate.

    Args:
        config: its static part (name, eps, clip).
        settings: traced scalars of this step.
        decay_mask: tree of bools, True where weight decay applies.
    """
    free = config.name == "schedule_free"
    if config.name == "sgd":
        direction = optax.trace(decay=1.0 - settings.one_minus_beta1)
    else:
        one_minus_beta1 = 1.0 if free else settings.one_minus_beta1
        direction = scale_by_moments(one_minus_beta1, settings.one_minus_beta2, config.eps)
    clip = optax.clip_by_global_norm(config.clip) if config.clip else optax.identity()
    descent = (
        direction,
        optax.add_decayed_weights(settings.weight_decay, mask=decay_mask),
        optax.scale_by_learning_rate(settings.lr),
    )
    if not free:
        return optax.chain(clip, *descent)
    beta1 = 1.0 - settings.one_minus_beta1
    return optax.chain(
        clip, optax.contrib.schedule_free(optax.chain(*descent), settings.lr, b1=beta1)
    )


def evaluation_params(config: OptimizerConfig, params: optax.Params, state: Any) -> optax.Params:
    """The parameters to evaluate: those trained, but for schedule_free their average x."""
    if config.name != "schedule_free":
        return params
    return optax.contrib.schedule_free_eval_params(state[-1], params)
