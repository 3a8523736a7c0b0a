"""Convolutions with sums of exponentials: power-law memory at the cost of a recursion.

A kernel Σ_j w_j e^{−x_j t} is carried through time by one number per exponential, so that its
convolution at n times costs O(n J), for times of any spacing. Derived here.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

NODES = 12
_STEP = 0.3  # of the trapezoid rule in log x, whose error is e^{−π²/step}: below 1e-13
_CHUNK = 256
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(NODES)
_ORDERS = np.arange(NODES)
# Just within a panel's ends, where Gauss points do not look.
_ENDS = np.array([-1 + 1e-7, 1 - 1e-7])
_AT_ENDS = np.polynomial.legendre.legvander(_ENDS, NODES - 1).T
# Values at the Gauss points into Legendre coefficients.
_VALUES = np.polynomial.legendre.legvander(_POINTS, NODES - 1) * _WEIGHTS[:, None]
_PROJECT = _VALUES.T * (_ORDERS[:, None] + 0.5)


@dataclass(frozen=True)
class Exponentials:
    """Σ_j weights_j e^{−rates_j t}, weights and rates [J], all positive."""

    weights: np.ndarray
    rates: np.ndarray

    def __call__(self, t: np.ndarray | float) -> np.ndarray:
        """The sum at times of any shape."""
        return np.exp(-np.asarray(t, np.float64)[..., None] * self.rates) @ self.weights


def power_kernel(exponent: float, longest: float) -> Exponentials:
    """(1 + t)^−exponent on [0, longest], to a relative 1e-12, for an exponent q of 0.5 at least.

    (1 + t)^−q = ∫ e^{qu} exp(−e^u (1 + t)) du / Γ(q), by the trapezoid rule.
    """
    low = -math.log(1 + longest) - 30 / exponent
    log_rates = np.arange(low, math.log(45), _STEP)
    rates = np.exp(log_rates)
    weights = _STEP / math.gamma(exponent) * np.exp(exponent * log_rates - rates)
    return Exponentials(weights, rates)


@dataclass(frozen=True)
class Panels:
    """A function as a polynomial on each of P adjoining intervals.

    Attributes:
        edges: [P + 1], ascending.
        values: [P, NODES], at the Gauss points of each.
    """

    edges: np.ndarray
    values: np.ndarray


def resolve_function(
    function: Callable[[np.ndarray], np.ndarray], edges: np.ndarray, tolerance: float
) -> Panels:
    """Splits intervals until the function's Legendre series on each has ended.

    At a kink or a jump, an interval is split until it is too short to matter.

    Args:
        function: times of any shape to positive values of that shape.
        edges: [P + 1], ascending: where to begin with; its points stay edges.
        tolerance: of the series' last two coefficients relative to the largest, and of the
            series at both ends of the interval.
    """
    left, right = edges[:-1], edges[1:]
    done: list[tuple[np.ndarray, np.ndarray]] = []
    while len(left):
        half = (right - left) / 2
        values = function(left[:, None] + half[:, None] * (1 + _POINTS))
        coefficients = values @ _PROJECT.T
        missed = function(left[:, None] + half[:, None] * (1 + _ENDS)) - coefficients @ _AT_ENDS
        errors = np.concatenate([coefficients[:, -2:], missed / NODES], axis=1)
        settled = np.abs(errors).max(axis=1) <= tolerance * np.abs(coefficients).max(axis=1)
        settled |= half <= np.maximum(tolerance, 4 * np.spacing(right))
        done.append((left[settled], values[settled]))
        split = ~settled
        middle = left[split] + half[split]
        left, right = np.append(left[split], middle), np.append(middle, right[split])
    starts = np.concatenate([begin for begin, _ in done])
    order = np.argsort(starts)
    values = np.concatenate([value for _, value in done])[order]
    return Panels(np.append(starts[order], edges[-1]), values)


def convolve(kernel: Exponentials, panels: Panels, at: Sequence[float] | np.ndarray) -> np.ndarray:
    """∫ kernel(t − z) f(z) dz from the first edge to times t, `at` [N]; [N] float64.

    The exponentials are integrated exactly against the polynomials, however short they are. The
    times come in any order, and each must be an edge of f's panels.
    """
    widths = np.diff(panels.edges)
    memory = np.zeros(len(kernel.rates))
    results = np.zeros(len(panels.edges))
    for begin in range(0, len(widths), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        added = _moments(kernel.rates, widths[part], panels.values[part])
        decay = np.exp(-widths[part, None] * kernel.rates)
        for i in range(len(added)):
            memory = decay[i] * memory + added[i]
            results[begin + i + 1] = kernel.weights @ memory
    return results[np.searchsorted(panels.edges, np.asarray(at, np.float64))]


def _moments(rates: np.ndarray, widths: np.ndarray, values: np.ndarray) -> np.ndarray:
    """∫ e^{−rate (end − z)} f(z) dz over each panel, [P, J]."""
    decays = widths[:, None] * rates  # [P, J]
    # Gauss quadrature is exact while the exponential is smooth on the scale of the panel ...
    smooth = np.exp(-np.minimum(decays, 10.0)[:, :, None] / 2 * (1 - _POINTS))
    slow = np.einsum("pjn,pn->pj", smooth, values * _WEIGHTS / 2)
    # ... and beyond, its moments are modified spherical Bessel functions, by their recurrence.
    z = np.maximum(decays, 10.0) / 2
    coefficients = values @ _PROJECT.T
    before = -np.expm1(-2 * z) / (2 * z)
    now = (1 + np.exp(-2 * z)) / (2 * z) - before / z
    fast = coefficients[:, :1] * before + coefficients[:, 1:2] * now
    for k in range(1, NODES - 1):
        before, now = now, before - (2 * k + 1) / z * now
        fast += coefficients[:, k + 1, None] * now
    return widths[:, None] * np.where(decays < 10, slow, fast)
