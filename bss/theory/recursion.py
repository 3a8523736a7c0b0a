"""The exact risk of schedules whose LR or batch size changes at every step.

It comes from the second moments of `bss.theory.regression`, in O(M) per step by a scan.
"""

import jax
import jax.numpy as jnp
import numpy as np

from bss.errors import InputError
from bss.jitting import jit
from bss.theory.regression import Task, check_rate


def varying_risks(task: Task, rates: np.ndarray, batches: np.ndarray) -> np.ndarray:
    """Excess risk, [K + 1] float64, before the first step and after each, from zero.

    LRs [K] are 0 or more, batch sizes [K] are samples per step.

    Raises:
        InputError: If the arrays do not match, or an LR is not stable at its batch size.
    """
    rates = np.asarray(rates, np.float64)
    batches = np.asarray(batches, np.float64)
    if rates.ndim != 1 or rates.shape != batches.shape:
        raise InputError(f"lr: shape {rates.shape}, batch sizes {batches.shape}; give both as [K]")
    if not np.all(rates >= 0):
        raise InputError("lr: negative or not a number; write values of 0 or more")
    # An LR that is stable at a batch size is stable at all larger ones: few pairs need checks.
    order = np.lexsort((-rates, batches))
    fastest = np.maximum.accumulate(np.concatenate([[0.0], rates[order]]))
    for step in order[fastest[1:] > fastest[:-1]]:
        check_rate(task, float(rates[step]), float(batches[step]))
    with jax.enable_x64(True):
        arrays = (task.eigenvalues, task.target, task.noise, rates, batches)
        return np.asarray(_scan(*(jnp.asarray(np.asarray(a, np.float64)) for a in arrays)))


@jit
def _scan(
    eigenvalues: jax.Array,
    start: jax.Array,
    noise: jax.Array,
    rates: jax.Array,
    batches: jax.Array,
) -> jax.Array:
    def step(
        moments: jax.Array, settings: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        rate, batch = settings
        twice_risk = eigenvalues @ moments
        kicked = rate**2 / batch * eigenvalues * (eigenvalues * moments + twice_risk + noise)
        return (1 - rate * eigenvalues) ** 2 * moments + kicked, twice_risk / 2

    moments, risks = jax.lax.scan(step, start, (rates, batches))
    return jnp.append(risks, eigenvalues @ moments / 2)
