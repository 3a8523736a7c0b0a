"""AdamW: Adam's direction with decoupled weight decay (Loshchilov & Hutter, 1711.05101).

Adam follows Kingma & Ba (1412.6980) with one change, derived here: the moments are divided by
the weight they have accumulated, 1 - prod(beta), instead of 1 - beta**count. With constant
betas the two are equal; when a batch change moves beta2, only the accumulated weight is right.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bss.training.optimizers.base import Masks, Optimizer, StepSettings


@dataclass(frozen=True)
class AdamW(Optimizer):
    """Adam, unbiased also when a batch change moves beta2."""

    own_rates: ClassVar[bool] = True

    def direction(self, settings: StepSettings, masks: Masks) -> optax.GradientTransformation:
        """Moments over the root of second moments; see `Optimizer`."""
        return scale_by_moments(settings.one_minus_beta1, settings.one_minus_beta2, self.eps)


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
        mu = jax.tree.map(lambda m, g: m + one_minus_beta1 * (g - m), state.mu, updates)
        nu = jax.tree.map(lambda v, g: v + one_minus_beta2 * (g * g - v), state.nu, updates)
        mu_weight = state.mu_weight + one_minus_beta1 * (1 - state.mu_weight)
        nu_weight = state.nu_weight + one_minus_beta2 * (1 - state.nu_weight)
        direction = jax.tree.map(
            lambda m, v: (m / mu_weight) / (jnp.sqrt(v / nu_weight) + eps), mu, nu
        )
        return direction, MomentsState(mu, nu, mu_weight, nu_weight)

    return optax.GradientTransformation(init, update)
