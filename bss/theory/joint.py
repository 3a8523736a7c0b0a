"""The joint optimum of learning rate and batch, by water-filling on a grid.

In intrinsic time both data and noise depend on the ratio r = b/η alone (as in arXiv 2609.40148):

    minimise e(T) + ∫₀ᵀ K(u) [e(T − u) + σ²] / r(u) du  with  ∫₀ᵀ r du = D,  r ≥ B_min/η_max,

with u the time left, is solved by r ∝ sqrt(K [e + σ²]), clipped. All LRs and batch sizes with that
ratio reach the same loss with the same data. They differ in steps, ∫ du/η, which are fewest if the
LR is lowered only after the batch size reaches its bound (derived here).

The exact risk of such schedules, which change at every step, comes from the second moments of
`bss.theory.regression`, in O(M) per step by a scan.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import root_scalar

from bss.errors import InputError
from bss.theory.optimal import Budget
from bss.theory.regression import Task, check_rate
from bss.theory.search import minimum

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_PANELS = 40
GRID = 60


@dataclass(frozen=True)
class JointOptimum:
    """The optimal ratio of batch to rate.

    Attributes:
        budget: The budget that is spent; `lr` is η_max.
        horizon: T*, in intrinsic time.
        left: [N], the time left at the grid's points, ascending.
        widths: [N], the grid's quadrature weights.
        ratio: [N], b/η.
        risk: the law's functional.
    """

    budget: Budget
    horizon: float
    left: np.ndarray
    widths: np.ndarray
    ratio: np.ndarray
    risk: float


@dataclass(frozen=True)
class Member:
    """An LR and batch schedule of the optimal ratio: LRs [N], batch sizes [N], its steps."""

    rates: np.ndarray
    batches: np.ndarray
    steps: float


def water_fill(weight: np.ndarray, widths: np.ndarray, total: float, low: float) -> np.ndarray:
    """Return the r [N] of `low` or more that minimises Σ widths·weight/r with Σ widths·r = total.

    It is the maximum of C·sqrt(weight) and `low`; weight and widths [N] and low are positive.

    Raises:
        InputError: the total is less than `low` takes.
    """
    least = low * float(widths.sum())
    if not total >= least:
        raise InputError(
            f"data: {total:g} cannot be spent, as the smallest batch takes {least:g}; raise the "
            "budget or lower the bound"
        )
    shape = np.sqrt(weight)

    def filled(log_multiplier: float) -> np.ndarray:
        return np.maximum(np.exp(log_multiplier) * shape, low)

    def excess(log_multiplier: float) -> float:
        return float(widths @ filled(log_multiplier)) / total - 1

    bottom = np.log(low / shape.max())
    top = np.log(total / widths.min() / shape.min())
    if excess(bottom) >= 0 or excess(top) <= 0:  # all at a bound, to rounding
        return filled(bottom if excess(bottom) >= 0 else top)
    return filled(root_scalar(excess, bracket=(bottom, top), xtol=1e-14).root)


def joint_optimum(budget: Budget, *, feedback: bool = True) -> JointOptimum:
    """Return the best horizon and ratio for a budget; the budget's max_batch binds no ratio.

    With `feedback` the noise is weighed by e + σ², as the law does; else by σ² alone, as in
    `bss.theory.optimal`. The budget's lr is the largest rate.
    """
    longest = budget.data * budget.lr / budget.min_batch
    grid = np.linspace(-14, 14, GRID)

    def risk(logit: float) -> float:
        return _for_horizon(budget, longest / (1 + np.exp(-logit)), feedback).risk

    place, _ = minimum(risk, grid, np.array([risk(logit) for logit in grid]))
    return _for_horizon(budget, longest / (1 + np.exp(-place)), feedback)


def member(best: JointOptimum, share: float) -> Member:
    """Return the member whose batch size takes a share of the ratio's growth, its LR the rest.

    Share 0 fixes the batch size, share 1 the LR.
    """
    growth = best.ratio * best.budget.lr / best.budget.min_batch
    return _member(best, best.budget.min_batch * growth**share)


def fewest_steps(best: JointOptimum) -> Member:
    """Return the member with the fewest steps: the batch grows to its bound, then the LR falls."""
    return _member(best, np.minimum(best.ratio * best.budget.lr, best.budget.max_batch))


def unroll(best: JointOptimum, one: Member) -> tuple[np.ndarray, np.ndarray]:
    """Return a member step by step, as `varying_risks` takes it: LRs [K] and batch sizes [K].

    Batches stay real numbers; the last step may reach beyond the horizon.
    """
    log_rates, log_batches = np.log(one.rates), np.log(one.batches)
    left, places, rates = best.horizon, [], []
    while left > 0:
        places.append(left)
        rates.append(np.exp(np.interp(left, best.left, log_rates)))
        left -= rates[-1]
    batches = np.exp(np.interp(places, best.left, log_batches))
    # exp(log(batch)) may fall below the smallest.
    return np.array(rates), np.maximum(batches, best.budget.min_batch)


def varying_risks(task: Task, rates: np.ndarray, batches: np.ndarray) -> np.ndarray:
    """Excess risk, [K + 1] float64, before the first step and after each, from zero.

    LRs [K] are 0 or more, batch sizes [K] are samples per step.

    Raises:
        InputError: If the arrays do not match, or an LR is not stable at its batch size.
    """
    rates, batches = np.asarray(rates, np.float64), np.asarray(batches, np.float64)
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


def _member(best: JointOptimum, batches: np.ndarray) -> Member:
    rates = batches / best.ratio
    return Member(rates, batches, float(best.widths @ (1 / rates)))


def _for_horizon(budget: Budget, horizon: float, feedback: bool) -> JointOptimum:
    left, widths = _both_ends(horizon)
    felt = (1 + horizon - left) ** -budget.source if feedback else 0.0
    weight = (1 + left) ** (-2 * budget.power) * (felt + budget.noise)
    ratio = water_fill(weight, widths, budget.data, budget.min_batch / budget.lr)
    risk = float((1 + horizon) ** -budget.source + widths @ (weight / ratio))
    return JointOptimum(budget, horizon, left, widths, ratio, risk)


def _both_ends(horizon: float) -> tuple[np.ndarray, np.ndarray]:
    """Gauss points and weights on [0, horizon], on panels that grow from both ends."""
    half = np.geomspace(1, 1 + horizon / 2, _PANELS) - 1
    edges = np.concatenate([half, horizon - half[-2::-1]])
    middle, reach = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    points = middle[:, None] + reach[:, None] * _POINTS
    return points.ravel(), (reach[:, None] * _WEIGHTS).ravel()


@jax.jit
def _scan(eigenvalues, start, noise, rates, batches):
    def step(moments, settings):
        rate, batch = settings
        twice_risk = eigenvalues @ moments
        kicked = rate**2 / batch * eigenvalues * (eigenvalues * moments + twice_risk + noise)
        return (1 - rate * eigenvalues) ** 2 * moments + kicked, twice_risk / 2

    moments, risks = jax.lax.scan(step, start, (rates, batches))
    return jnp.append(risks, eigenvalues @ moments / 2)
