"""The joint optimum of learning rate and batch, by water-filling on a grid.

On the intrinsic clock both data and noise see the ratio r = b/η alone (as in arXiv 2609.40148):

    minimise e(T) + ∫₀ᵀ K(u) [e(T − u) + σ²] / r(u) du  with  ∫₀ᵀ r du = D,  r ≥ B_min/η_max,

with u the time left, is solved by r ∝ sqrt(K [e + σ²]), clipped. Any rate and batch of that ratio
reach the same loss with the same data; they differ in steps, ∫ du/η, fewest where the rate is
never lowered before the batch is at its bound (derived here).
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import root_scalar

from bss.errors import InputError
from bss.theory.optimal import Budget
from bss.theory.search import minimum

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_PANELS = 40
GRID = 60


@dataclass(frozen=True)
class JointOptimum:
    """The optimal ratio of batch to rate.

    Attributes:
        budget: what it was made for; `lr` is η_max.
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
    """One rate and batch schedule of the optimal ratio: rates [N], batches [N], its steps."""

    rates: np.ndarray
    batches: np.ndarray
    steps: float


def water_fill(
    weight: np.ndarray, widths: np.ndarray, total: float, low: float, high: float = np.inf
) -> np.ndarray:
    """The r [N] in [low, high] that minimises Σ widths·weight/r with Σ widths·r = total.

    It is C·sqrt(weight) clipped to the bounds; weight and widths [N] and low are positive.

    Raises:
        InputError: no r within the bounds spends the total.
    """
    length = float(widths.sum())
    if not low * length <= total <= high * length:
        raise InputError(
            f"data: {total:g} cannot be spent within the bounds of the batch, which take "
            f"{low * length:g} to {high * length:g}; change the budget or the bounds"
        )
    shape = np.sqrt(weight)

    def filled(log_multiplier: float) -> np.ndarray:
        return np.clip(np.exp(log_multiplier) * shape, low, high)

    def excess(log_multiplier: float) -> float:
        return float(widths @ filled(log_multiplier)) / total - 1

    bottom = np.log(low / shape.max())
    top = np.log(min(high, total / widths.min()) / shape.min())
    if excess(bottom) >= 0 or excess(top) <= 0:  # all at a bound, to rounding
        return filled(bottom if excess(bottom) >= 0 else top)
    return filled(root_scalar(excess, bracket=(bottom, top), xtol=1e-14).root)


def joint_optimum(budget: Budget, *, feedback: bool = True) -> JointOptimum:
    """The best horizon and ratio for a budget; the budget's max_batch binds no ratio.

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
    """The member in which the batch takes a share of the ratio's growth and the rate the rest.

    A share of 0 is a constant batch, of 1 a constant rate.
    """
    growth = best.ratio * best.budget.lr / best.budget.min_batch
    return _member(best, best.budget.min_batch * growth**share)


def fewest_steps(best: JointOptimum) -> Member:
    """The member with the fewest steps: the batch grows up to its bound, then the rate falls."""
    return _member(best, np.minimum(best.ratio * best.budget.lr, best.budget.max_batch))


def unroll(best: JointOptimum, one: Member) -> tuple[np.ndarray, np.ndarray]:
    """A member step by step, as `bss.theory.varying` takes it: rates [K] and batches [K].

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
