"""Steps that are skipped: those that are not finite, and those with an outlying gradient norm.

The log of the gradient norm has a running mean and variance, in the state of the run. A step is
outlying if its log norm is more than k standard deviations above the mean (derived here). For the
mean and the variance it counts as one at that limit. So a lasting change of the norm is accepted
after a while.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

WINDOW = 100
"""Steps over which mean and variance are averaged."""
UNJUDGED = 20
"""Steps at the beginning that are not judged, as the scatter of a few is not known."""
LEAST_SCATTER = 0.05
"""Of the log norm: 5% of the norm. Norms that hardly differ would make every step outlying."""
MOST_SKIPPED = 100
"""Steps in a row that are skipped before the run has diverged: nothing is learned any more."""


class SpikeStats(NamedTuple):
    """Running statistics of the log gradient norm; float32 scalars.

    Attributes:
        mean: its mean.
        variance: its variance.
        count: steps so far, without those that were not finite.
    """

    mean: jax.Array
    variance: jax.Array
    count: jax.Array


def no_steps() -> SpikeStats:
    """Return the statistics before the first step."""
    return SpikeStats(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))


def judge(
    stats: SpikeStats, norm: jax.Array, finite: jax.Array, scatters: float
) -> tuple[jax.Array, SpikeStats]:
    """Return whether a step is skipped, and the statistics after it.

    Args:
        stats: the statistics before the step.
        norm: its gradient norm.
        finite: whether its loss, gradient and update are finite.
        scatters: k.
    """
    log_norm = jnp.log(jnp.where(finite, jnp.maximum(norm, jnp.finfo(jnp.float32).tiny), 1.0))
    scatter = jnp.maximum(jnp.sqrt(stats.variance), LEAST_SCATTER)
    limit = stats.mean + scatters * scatter
    outlying = (stats.count >= UNJUDGED) & (log_norm > limit)
    rate = 1 / jnp.minimum(stats.count + 1, WINDOW)
    delta = jnp.where(outlying, limit, log_norm) - stats.mean
    after = SpikeStats(
        stats.mean + rate * delta,
        (1 - rate) * (stats.variance + rate * delta**2),
        stats.count + 1,
    )
    kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, stats)
    return outlying | ~finite, kept
