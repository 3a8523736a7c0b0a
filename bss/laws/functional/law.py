"""The functional scaling law of language-model losses under any LR and batch schedule.

Li et al. (arXiv 2509.19189) fit the losses of LR schedules in this form. The batch is added as in
the regression theory (derived here):

    L(T) = L_0 + c_1 (1 + T/T_0)^−s + ∫₀ᵀ [A_0 + A_1 (1 + u/T_0)^−s] ν(u) (1 + c_K (T − u))^−q du

with noise ν = η^p / B^m and intrinsic time T = Σ η / sqrt(1 + B_phi/B). SGD has p = m = 1 and
B_phi = 0. With B_phi > 0 a step of Adam makes less progress if gradient noise dominates. A schedule
is a sequence of segments of constant (η, B). The kernel is integrated exactly over each segment,
and the signal in the integral is its exact mean there. N losses of G segments cost O(N·G).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bss.jitting import jit
from bss.laws.functional.data import Curves, EvalPoints, Segments
from bss.laws.solver import float64

Number = Any
"""A scalar or an array, of NumPy or traced."""


class CurveLaw(NamedTuple):
    """Parameters of the law.

    L_0 and c_1 are in nats, T_0 and 1/c_K in intrinsic time (LR × steps), and B_phi in sequences.
    A_0 and A_1 are in nats per unit of ν and per unit of intrinsic time.
    """

    L_0: Number
    c_1: Number
    s: Number
    T_0: Number
    A_0: Number
    A_1: Number
    c_K: Number
    q: Number
    p: Number
    m: Number
    B_phi: Number


def law_losses(law: CurveLaw, curves: Curves) -> np.ndarray:
    """Return the losses in nats at the evaluation points of curves, [R, N], float64."""
    with jax.enable_x64(True):
        return np.asarray(_jitted(*float64((law, curves.segments, curves.points))))


def noise_share(law: CurveLaw, curves: Curves) -> np.ndarray:
    """Return the share of the noise in the losses at the evaluation points of curves, [R, N]."""
    without = law_losses(law._replace(A_0=0.0, A_1=0.0), curves)
    return 1 - without / law_losses(law, curves)


def curve_losses(law: CurveLaw, segments: Segments, points: EvalPoints) -> Number:
    """Return the law's losses in nats, [R, N], traced."""
    signal, noise, feedback = curve_terms(law, segments, points)
    return law.L_0 + law.c_1 * signal + law.A_0 * noise + law.A_1 * feedback


_jitted = jit(curve_losses)


def curve_terms(
    law: CurveLaw, segments: Segments, points: EvalPoints
) -> tuple[Number, Number, Number]:
    """Return the factors of c_1, A_0 and A_1, each [R, N].

    The integral is summed by parts over the jumps of the noise; the first jump is from 0.
    """
    added = segments.steps * segments.lr / jnp.sqrt(1 + law.B_phi / segments.batch)
    ends = jnp.cumsum(added, axis=-1)
    begins = ends - added
    index = points.segment.astype(jnp.int32)
    times = jnp.take_along_axis(begins, index, -1)
    times += points.fraction * jnp.take_along_axis(added, index, -1)
    # A learning rate of 0 has no logarithm.
    nu = jnp.maximum(segments.lr, 1e-12) ** law.p * segments.batch**-law.m
    width = jnp.where(added > 0, added, 1.0)
    summed = _grown(ends / law.T_0, 1 - law.s) - _grown(begins / law.T_0, 1 - law.s)
    mean_signal = summed * law.T_0 / width
    jumps = jnp.diff(jnp.stack([nu, nu * mean_signal], axis=-1), axis=-2, prepend=0.0)
    remembered = _remembered(law.c_K, law.q, times, begins, jumps)
    signal = (1 + times / law.T_0) ** -law.s
    return signal, remembered[..., 0], remembered[..., 1]


@jax.custom_jvp
def _remembered(c_K: Number, q: Number, times: Number, begins: Number, jumps: Number) -> Number:
    """Return what is remembered at times [R, N] of jumps [R, G, 2] at begins [R, G], [R, N, 2]."""
    left = jnp.maximum(times[..., :, None] - begins[..., None, :], 0.0)
    return _grown(c_K * left, 1 - q) / c_K @ jumps


@_remembered.defjvp
def _remembered_slopes(
    values: tuple[Number, ...], tangents: tuple[Number, ...]
) -> tuple[Number, Number]:
    """Share the [N, G] arrays between all derivatives, which are most of the cost of a fit."""
    c_K, q, times, begins, jumps = values
    in_c_K, in_q, in_times, in_begins, in_jumps = tangents
    lag = times[..., :, None] - begins[..., None, :]
    left = jnp.maximum(lag, 0.0)
    log = jnp.log1p(c_K * left)
    power = 1 - q
    grown = _grown(c_K * left, power)
    raised = 1 + power * grown
    kernel = jnp.where(lag > 0, raised / (1 + c_K * left), 0.0)
    near = _is_near_0(power)
    by_power = (log * raised - grown) / jnp.where(near, 1.0, power)
    # The series of the derivative of `_grown` about power 0.
    by_power = jnp.where(near, log**2 * (1 / 2 + power * log / 3), by_power)
    memory = grown / c_K
    by_c_K = (left * kernel - memory) / c_K @ jumps
    by_q = -by_power / c_K @ jumps
    slopes = memory @ in_jumps - kernel @ (in_begins[..., None] * jumps)
    slopes += (kernel @ jumps) * in_times[..., None] + by_c_K * in_c_K + by_q * in_q
    return memory @ jumps, slopes


def kernel_total(law: CurveLaw, lag: Number) -> Number:
    """Return ∫₀^lag (1 + c_K x)^−q dx, the share of a constant noise that is remembered."""
    return _grown(law.c_K * lag, 1 - law.q) / law.c_K


def _grown(x: Number, power: Number) -> Number:
    """Return ((1 + x)^power − 1)/power; log(1 + x) at power 0."""
    log = jnp.log1p(x)
    near = _is_near_0(power)
    safe = jnp.where(near, 1.0, power)
    return jnp.where(near, log * (1 + power * log / 2), jnp.expm1(safe * log) / safe)


def _is_near_0(power: Number) -> Number:
    """Return whether a power is so near 0 that two terms of its series are exact in float64."""
    return jnp.abs(power) < 1e-6  # its square is below 1e-12; the quotient is off by 1e-16/1e-6
