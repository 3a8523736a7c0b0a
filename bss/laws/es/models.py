"""The laws E(S) as functions: tokens E against steps S to a target loss, at constant LR.

Inside this module the amount of data is counted in sequences, E = B·S, so that the batch B of a
run in sequences is E/S; callers multiply by the sequence length. The three-stage law is Zhou et
al., arXiv 2601.05034 [secondary]; the hyperbola McCandlish et al., arXiv 1812.06162; the surface
is derived here, and its family with it. Each law is solved for E at the batch of a run, which is
exact: E and S share their noise, so E is never regressed on S. The functions take scalars or
arrays, traced or not.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

Number = Any
"""A scalar or an array, of NumPy or traced."""


class Surface(NamedTuple):
    """L(S, B) = L_0 + a·[S / sqrt(1 + B_phi/B)]^−α + b/B^m (derived here).

    m = 1 and B_phi = 0 is what the functional scaling law gives for SGD at constant LR and batch,
    with α its source exponent and b proportional to the LR. B_phi > 0 is an "Adam clock": a step
    makes less progress where gradient noise dominates. S in steps, B in sequences, b in
    nats·sequences^m.
    """

    L_0: Number
    a: Number
    alpha: Number
    b: Number
    m: Number
    B_phi: Number


class Hyperbola(NamedTuple):
    """(E/E_min − 1)(S/S_min − 1) = 1 (McCandlish et al.); E_min in sequences, S_min in steps."""

    E_min: Number
    S_min: Number


class Piecewise(NamedTuple):
    """The three-stage law with C¹ knots, six free parameters (the joints are derived here).

        E(S) = B_m1/(S − S_min) + B_0        S_min < S < S_1   inverse-linear stage
               C·(S − S_opt)² + E_min        S_1 ≤ S ≤ S_2     transition stage
               A_1·S + A_0                   S > S_2           linear stage

    The stages, B_min = A_1 and B_opt = E_min/S_opt are the paper's [secondary]; whether it asks
    smooth joints is unknown. E in sequences, S in steps.
    """

    S_min: Number
    S_1: Number
    S_opt: Number
    S_2: Number
    C: Number
    E_min: Number


class Stages(NamedTuple):
    """The coefficients of the outer stages that C¹ joints imply (derived here)."""

    B_m1: Number
    B_0: Number
    A_1: Number
    A_0: Number


def surface_loss(law: Surface, steps: Number, batch: Number) -> Number:
    """The loss in nats after `steps` at a constant batch."""
    clock = 1 / jnp.sqrt(1 + law.B_phi / batch)
    return law.L_0 + law.a * (steps * clock) ** -law.alpha + law.b * batch**-law.m


def surface_sequences(law: Surface, batch: Number, target: Number) -> Number:
    """E in sequences at which the surface meets a loss; infinite where it never does."""
    excess = target - law.L_0 - law.b * batch**-law.m
    met = excess > 0
    steps = (law.a / jnp.where(met, excess, 1.0)) ** (1 / law.alpha)
    return jnp.where(met, batch * steps * jnp.sqrt(1 + law.B_phi / batch), jnp.inf)


class Optimum(NamedTuple):
    """What the surface says of a target loss: batches in sequences, E_min in sequences."""

    S_min: np.ndarray
    B_min: np.ndarray
    S_opt: np.ndarray
    B_opt: np.ndarray
    E_min: np.ndarray


def surface_optimum(law: Surface, target: Number) -> Optimum:
    """Asymptotes and minimum of the surface's E(S), for target losses above L_0 (derived here).

    With Δ = L − L_0: S_min = (a/Δ)^{1/α}, B_min = (b/Δ)^{1/m}. For B_phi = 0 the minimum is at
    B_opt = (1 + m/α)^{1/m}·B_min; otherwise it is the root of a monotone function of log B,
    bisected. Arguments broadcast as NumPy arrays.
    """
    law = Surface(*(np.asarray(value, np.float64) for value in law))
    excess = np.asarray(target, np.float64) - law.L_0
    B_min = (law.b / excess) ** (1 / law.m)
    ratio = law.m / law.alpha
    low, high = np.zeros_like(B_min), np.log1p(2 * ratio) / law.m + np.zeros_like(B_min)
    for _ in range(60):
        middle = (low + high) / 2
        noise = np.exp(-law.m * middle)
        half_clock = 0.5 * law.B_phi / (B_min * np.exp(middle) + law.B_phi)
        rising = 1 - half_clock > ratio * noise / (1 - noise)
        low, high = np.where(rising, low, middle), np.where(rising, middle, high)
    B_opt = B_min * np.exp((low + high) / 2)
    steps = (law.a / (excess - law.b * B_opt**-law.m)) ** (1 / law.alpha)
    S_opt = steps * np.sqrt(1 + law.B_phi / B_opt)
    S_min = (law.a / excess) ** (1 / law.alpha) + np.zeros_like(B_min)
    return Optimum(S_min, B_min, S_opt, B_opt, B_opt * S_opt)


def hyperbola_sequences(law: Hyperbola, batch: Number) -> Number:
    """E at a batch: E_min + S_min·B, the hyperbola with S = E/B put in."""
    return law.E_min + law.S_min * batch


def piecewise_stages(law: Piecewise) -> Stages:
    """Coefficients of the inverse-linear and linear stages from the six parameters."""
    left, right = law.S_opt - law.S_1, law.S_2 - law.S_opt
    reach = law.S_1 - law.S_min
    return Stages(
        B_m1=2 * law.C * left * reach**2,
        B_0=law.E_min + law.C * left**2 - 2 * law.C * left * reach,
        A_1=2 * law.C * right,
        A_0=law.E_min - law.C * (law.S_2**2 - law.S_opt**2),
    )


def piecewise_curve(law: Piecewise, steps: Number) -> Number:
    """E(S) in sequences; infinite at S_min and below."""
    stages = piecewise_stages(law)
    beyond = jnp.maximum(steps - law.S_min, 0.0)
    first = jnp.where(beyond > 0, stages.B_m1 / jnp.where(beyond > 0, beyond, 1.0), jnp.inf)
    middle = law.C * (steps - law.S_opt) ** 2 + law.E_min
    last = stages.A_1 * steps + stages.A_0
    return jnp.where(steps < law.S_1, first + stages.B_0, jnp.where(steps > law.S_2, last, middle))


def piecewise_sequences(law: Piecewise, batch: Number) -> Number:
    """E in sequences at a batch, in closed form (derived here); infinite up to B_min.

    A_0 > 0 makes E/S strictly decreasing, so that each batch above B_min = A_1 meets the law
    once: on a quadratic in the first two stages, on a line in the last.
    """
    stages = piecewise_stages(law)
    batch_1 = (law.C * (law.S_1 - law.S_opt) ** 2 + law.E_min) / law.S_1
    batch_2 = (law.C * (law.S_2 - law.S_opt) ** 2 + law.E_min) / law.S_2
    sum_1 = law.S_min + stages.B_0 / batch
    product_1 = (stages.B_0 * law.S_min - stages.B_m1) / batch
    first = 0.5 * (sum_1 + jnp.sqrt(jnp.maximum(sum_1**2 - 4 * product_1, 1e-300)))
    sum_2 = law.S_opt + 0.5 * batch / law.C
    product_2 = law.S_opt**2 + law.E_min / law.C
    middle = product_2 / (sum_2 + jnp.sqrt(jnp.maximum(sum_2**2 - product_2, 1e-300)))
    met = batch > stages.A_1
    last = stages.A_0 / jnp.where(met, batch - stages.A_1, 1.0)
    steps = jnp.where(batch > batch_1, first, jnp.where(batch < batch_2, last, middle))
    return jnp.where(met, batch * steps, jnp.inf)
