"""The exact recursion step by step, for rates and batches that change at every step.

The second moments of `bss.theory.regression`, in O(M) per step by a scan.
"""

import jax
import jax.numpy as jnp
import numpy as np

from bss.errors import InputError
from bss.theory.regression import Task, check_rate


def varying_risks(task: Task, rates: np.ndarray, batches: np.ndarray) -> np.ndarray:
    """Excess risk, [K + 1] float64, before the first step and after each, from zero.

    Rates [K] are 0 or more, batches [K] are samples per step.

    Raises:
        InputError: the arrays do not match, or a rate is not stable at its batch.
    """
    rates, batches = np.asarray(rates, np.float64), np.asarray(batches, np.float64)
    if rates.ndim != 1 or rates.shape != batches.shape:
        raise InputError(f"rates {rates.shape} and batches {batches.shape} must be [K] and [K]")
    if not np.all(rates >= 0):
        raise InputError("lr: a rate is negative or no number; write rates of 0 or more")
    # A rate that is stable at some batch is so at every larger one: few pairs need checking.
    order = np.lexsort((-rates, batches))
    fastest = np.maximum.accumulate(np.concatenate([[0.0], rates[order]]))
    for step in order[fastest[1:] > fastest[:-1]]:
        check_rate(task, float(rates[step]), float(batches[step]))
    with jax.enable_x64(True):
        arrays = (task.eigenvalues, task.target, task.noise, rates, batches)
        return np.asarray(_scan(*(jnp.asarray(np.asarray(a, np.float64)) for a in arrays)))


@jax.jit
def _scan(eigenvalues, start, noise, rates, batches):
    def step(moments, settings):
        rate, batch = settings
        twice_risk = eigenvalues @ moments
        kicked = rate**2 / batch * eigenvalues * (eigenvalues * moments + twice_risk + noise)
        return (1 - rate * eigenvalues) ** 2 * moments + kicked, twice_risk / 2

    moments, risks = jax.lax.scan(step, start, (rates, batches))
    return jnp.append(risks, eigenvalues @ moments / 2)
