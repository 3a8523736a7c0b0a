"""The batch schedule of the lowest predicted loss under a fitted law of loss curves.

Candidates are fixed batch sizes, late switches, and a free optimum in a few stages, all at one LR
schedule. Every prediction is of a whole plan (derived here).

The free optimum has any batch size in each cell of a grid. It is found by gradient descent on the
law (derived here), for any time variable and LR schedule. With the time variable and noise of SGD
it is B ∝ sqrt(K(T − u)[A_0 + A_1 e(u)]) (arXiv 2602.14208). The token budget is fixed, because each
cell has a fixed number of tokens.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from bss.jitting import jit
from bss.laws import CurveFit
from bss.laws.functional.data import plan_path, stack
from bss.laws.functional.law import CurveLaw, EvalPoints, Segments, curve_losses, law_losses
from bss.laws.functional.values import check_identified, schedule_losses
from bss.laws.solver import float64
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import WarmupStableDecay

SWITCHES = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)  # shares of the tokens
CHUNK = 32  # schedules that are predicted together, so that one shape is compiled


@dataclass(frozen=True)
class FunctionalBest:
    """A schedule with the lowest predicted loss for a budget, at the LR schedule of the basis."""

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """Return the schedule. Without an LR schedule in the basis it is `assumed_rate`.

        Raises:
            InputError: If the fit does not identify how fast noise decays.
        """
        fit = basis.fitted(CurveFit)
        check_identified(fit, batch_changes=True)
        ladder = limits.within(basis.measured).ladder()
        rate = basis.rate or assumed_rate(fit, tokens)
        ideal = np.log(free_batches(fit, tokens, rate, ladder))
        places = (GRID[1:] + GRID[:-1]) / 2 * tokens
        followed = BatchSchedule.follow(
            lambda count: math.exp(np.interp(count, places, ideal)),
            tokens,
            limits.stages,
            allowed=ladder,
        )
        schedules = [followed, *map(BatchSchedule.constant, ladder)]
        if limits.stages > 1:
            schedules += [
                BatchSchedule.late_switch(first, last, round(share * tokens))
                for first, last in itertools.combinations(ladder[:: max(1, len(ladder) // 6)], 2)
                for share in SWITCHES
            ]
        scores = _scores(fit, schedules, tokens, rate)
        return schedules[scores.index(min(scores))]


def assumed_rate(fit: CurveFit, tokens: int) -> WarmupStableDecay:
    """Return the default LR schedule: constant, at the largest peak LR measured."""
    return WarmupStableDecay(fit.rates[1], tokens)


def expected_losses(
    fit: CurveFit,
    schedule: BatchSchedule,
    tokens: int,
    rate: WarmupStableDecay,
    constants: Sequence[int],
) -> dict[str, float]:
    """Return the predicted final loss of a schedule, and of the best fixed batch size, in nats.

    Args:
        fit: Fitted law of loss curves.
        schedule: Of any policy.
        tokens: Token budget.
        rate: LR schedule of all runs.
        constants: Fixed batch sizes to compare, in sequences.

    Returns:
        predicted_loss of the schedule; constant_batch, the fixed batch size with the lowest
        predicted loss; and constant_loss, its loss.

    Raises:
        InputError: If the fit does not identify the effect of a change of batch size or LR.
    """

    def loss_of(one: BatchSchedule) -> float:
        return float(schedule_losses(fit, one, tokens, rate)[0])

    own = loss_of(schedule)
    fixed = [loss_of(BatchSchedule.constant(batch)) for batch in constants]
    least = min(fixed)
    batch = constants[fixed.index(least)]
    return {"predicted_loss": own, "constant_batch": batch, "constant_loss": least}


def _scores(
    fit: CurveFit, schedules: Sequence[BatchSchedule], tokens: int, rate: WarmupStableDecay
) -> list[float]:
    """Return the log excess loss predicted of each schedule, plus a little for its steps."""
    paths = [plan_path(schedule, tokens, fit.seq_len, rate) for schedule in schedules]
    losses: list[float] = []
    for begin in range(0, len(paths), CHUNK):
        part = [*paths[begin : begin + CHUNK], *paths[:1] * CHUNK][:CHUNK]
        losses += law_losses(fit.law, stack(part, fit.seq_len))[:, 0].tolist()
    steps = [round(float(path.steps.sum())) for path in paths]
    return [
        math.log(loss - float(fit.law.L_0)) + TIE * math.log(count)
        for loss, count in zip(losses, steps, strict=False)
    ]


TIE = 1e-3  # halving the steps is worth 0.07% of the excess loss
GRID = np.unique(np.concatenate([np.linspace(0, 0.9, 19), 1 - np.geomspace(0.1, 2e-3, 14), [1.0]]))


def free_batches(
    fit: CurveFit, tokens: int, rate: WarmupStableDecay, bounds: Sequence[float]
) -> np.ndarray:
    """Return the best batch size in each cell of `GRID` (shares of the budget), in sequences.

    Args:
        fit: Fitted law of loss curves.
        tokens: Token budget.
        rate: LR schedule.
        bounds: Batch sizes; the smallest and the largest are the bounds.
    """
    size = np.diff(GRID) * tokens / fit.seq_len
    lr = np.asarray(rate((GRID[1:] + GRID[:-1]) / 2 * tokens), float)
    low = math.log(min(bounds))
    high = math.log(max(bounds))
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


@jit
def _objective(
    log_batch: jax.Array, law: CurveLaw, size: jax.Array, lr: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the log of the excess loss, plus a little for the steps, and its gradient."""

    def value(log_batch: jax.Array) -> jax.Array:
        batch = jnp.exp(log_batch)
        steps = size / batch
        segments = Segments(steps[None], lr[None], batch[None])
        last = jnp.full((1, 1), len(size) - 1.0)
        loss = curve_losses(law, segments, EvalPoints(last, jnp.ones((1, 1))))[0, 0]
        return jnp.log(loss - law.L_0) + TIE * jnp.log(steps.sum())

    return jax.value_and_grad(value)(log_batch)
