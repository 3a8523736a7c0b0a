"""A perfect model of the synthetic language, from its definition: the lowest possible loss."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bss.data.synthetic import (
    SyntheticLanguage,
    Tables,
    at,
    blank,
    check_integer,
    levels,
    remember,
    tables,
)

_ENTROPY = 7 << 61
_ENTROPY_BLOCK = 1024


@jax.jit
def truth(tables: Tables, sequences_nxT1) -> tuple[jax.Array, jax.Array]:
    """Return the true log-probabilities of the targets and the conditional entropies.

    On a held-out set, minus the mean log-probability is the loss of a perfect model on this set.
    Compare a model's loss with it; it differs from L_0 by the sampling of the set.

    Returns:
        float32 (n, T) log-probabilities of the targets, and (n, T) conditional entropies, in nats.
    """
    weights = tables.weights.astype(jnp.float32)
    logs = jnp.log(weights)

    def step(memory_nxRxD, pair):
        token_n, target_n = pair
        memory_nxRxD = remember(tables, memory_nxRxD, token_n)
        levels_nxV = levels(tables, memory_nxRxD)
        weights_nxV, logs_nxV = weights[levels_nxV], logs[levels_nxV]
        total_n = weights_nxV.sum(1)
        entropy_n = jnp.log(total_n) - (weights_nxV * logs_nxV).sum(1) / total_n
        target_log_n = jnp.take_along_axis(logs_nxV, target_n[:, None], axis=1)[:, 0]
        return memory_nxRxD, (target_log_n - jnp.log(total_n), entropy_n)

    pairs = (sequences_nxT1[:, :-1].T, sequences_nxT1[:, 1:].T)
    _, (log_TxN, entropy_TxN) = jax.lax.scan(step, blank(tables, len(sequences_nxT1)), pairs)
    return log_TxN.T, entropy_TxN.T


class Entropy(NamedTuple):
    """L_0 and the standard error of its Monte Carlo mean, in nats."""

    nats: float
    standard_error: float


def entropy(language: SyntheticLanguage, *, sequences: int = 65_536) -> Entropy:
    """Return L_0, the mean conditional entropy of targets 1…T given their prefix, in nats per
    token.

    It is a Monte Carlo mean over prefixes of the exact entropy after each. The standard error is
    0.0008 nats by default for the default language at V = 256, T = 128 (25 s on one CPU core). The
    number of sequences, 1 or more, is rounded up to whole blocks of 1024. Their range of positions
    is neither trained nor evaluated on.
    """
    check_integer("sequences", sequences, 1)
    law = tables(language)
    means = []
    for start in range(0, sequences, _ENTROPY_BLOCK):
        places_n = np.uint64(_ENTROPY + start) + np.arange(_ENTROPY_BLOCK, dtype=np.uint64)
        _, entropy_nxT = truth(law, at(language, places_n))
        means.append(np.asarray(entropy_nxT, np.float64).mean(1))
    means = np.concatenate(means)
    return Entropy(float(means.mean()), float(means.std(ddof=1) / math.sqrt(len(means))))
