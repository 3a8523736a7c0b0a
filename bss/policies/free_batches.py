"""The batch schedule of the lowest predicted loss, with a free batch size in each cell of a grid.

It is found by gradient descent on the law (derived here), for any time variable and LR schedule.
With the time variable and noise of SGD it is B ∝ sqrt(K(T − u)[A_0 + A_1 e(u)]) (arXiv 2602.14208).
The token budget is fixed, because each cell has a fixed number of tokens.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from bss.laws import CurveFit
from bss.laws.functional.law import CurveLaw, EvalPoints, Segments, curve_losses
from bss.laws.solver import float64
from bss.schedules.rates import Rate

TIE = 1e-3  # halving the steps is worth 0.07% of the excess loss
GRID = np.unique(np.concatenate([np.linspace(0, 0.9, 19), 1 - np.geomspace(0.1, 2e-3, 14), [1.0]]))


def free_batches(fit: CurveFit, tokens: int, rate: Rate, bounds: Sequence[float]) -> np.ndarray:
    """Return the best batch size in each cell of `GRID` (shares of the budget), in sequences.

    Args:
        fit: Fitted law of loss curves.
        tokens: Token budget.
        rate: LR schedule.
        bounds: Batch sizes; the smallest and the largest are the bounds.
    """
    size = np.diff(GRID) * tokens / fit.seq_len
    lr = np.asarray(rate((GRID[1:] + GRID[:-1]) / 2 * tokens), float)
    low, high = math.log(min(bounds)), math.log(max(bounds))
    with jax.enable_x64(True):
        fixed = float64((fit.law, size, lr))

        def objective(log_batch: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = _objective(jnp.asarray(log_batch), *fixed)
            return float(value), np.asarray(slope)

        left = 1 - (GRID[1:] + GRID[:-1]) / 2
        starts = [np.full(len(size), low + x * (high - low)) for x in (0.1, 0.5, 0.9)]
        starts.append(np.clip(low - 0.5 * np.log(left), low, high))
        how = {"jac": True, "method": "L-BFGS-B", "bounds": [(low, high)] * len(size)}
        minima = [minimize(objective, x, **how) for x in starts]
    return np.exp(min(minima, key=lambda result: result.fun).x)


@jax.jit
def _objective(log_batch, law: CurveLaw, size, lr):
    """Return the log of the excess loss, plus a little for the steps, and its gradient."""

    def value(log_batch):
        batch = jnp.exp(log_batch)
        steps = size / batch
        segments = Segments(steps[None], lr[None], batch[None])
        last = jnp.full((1, 1), len(size) - 1.0)
        loss = curve_losses(law, segments, EvalPoints(last, jnp.ones((1, 1))))[0, 0]
        return jnp.log(loss - law.L_0) + TIE * jnp.log(steps.sum())

    return jax.value_and_grad(value)(log_batch)
