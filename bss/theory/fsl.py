"""The functional scaling law: the loss of any rate and batch schedule, in intrinsic time.

Li et al. (arXiv 2509.19189): with t = Σ η the noise enters through γ = η/B alone,

    risk ≂ M^{−sβ} + e(t) + ∫₀ᵗ K(t − z) [e(z) + σ²] γ(z) dz,
    e(t) = (1 + t)^−s,  K(t) = (1 + t)^−(2 − 1/β)

in its limit of infinite width, and with sums over M modes at finite width. The law is of first
order in γ: the noise that noise makes is left out.

Its kernels are sums of exponentials, Σ_j w_j e^{−x_j t}, and each needs one number of state. So a
convolution at n times costs O(n J), for times of any spacing (derived here).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bss.errors import InputError
from bss.theory.regression import Stage, Task, check_exponents

TOLERANCE = 1e-10
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
    """A kernel Σ_j weights_j e^{−rates_j t}, with weights [J] and rates_j [J], all positive."""

    weights: np.ndarray
    rates: np.ndarray

    def __call__(self, t: np.ndarray | float) -> np.ndarray:
        """Return the sum at times of any shape."""
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
class RiskLaw:
    """A member of the law: risk = scale · [signal + ∫ kernel · (signal + noise) · γ].

    Attributes:
        signal: e(t), times of any shape to values of that shape.
        kernel: K(t), the forgetting of noise.
        noise: σ².
        scale: ½ at finite width, for which the law is an equation; 1 in the limit, for which it is
            ≂.
        longest: the intrinsic time up to which the kernel holds.
    """

    signal: Callable[[np.ndarray], np.ndarray]
    kernel: Exponentials
    noise: float
    scale: float
    longest: float


def limit_law(source: float, capacity: float, noise: float, longest: float) -> RiskLaw:
    """Return the law at infinite width, up to factors (Li et al.), for s > 0, β > 1 and noise σ².

    `longest` is the largest intrinsic time at which it is evaluated.
    """
    check_exponents(source, capacity)

    kernel = power_kernel(2 - 1 / capacity, longest)
    return RiskLaw(lambda t: (1 + t) ** -source, kernel, noise, 1.0, longest)


def finite_law(task: Task) -> RiskLaw:
    """Return the law of M modes: e = Σ λ|θ*|² e^{−2λt}, K = Σ λ² e^{−2λt}, as an excess risk.

    It does not contain `task.approximation`, the part that the modes cannot learn.
    """
    rates = 2 * task.eigenvalues
    signal = Exponentials(task.eigenvalues * task.target, rates)
    return RiskLaw(signal, Exponentials(task.eigenvalues**2, rates), task.noise, 0.5, np.inf)


@dataclass(frozen=True)
class Drive:
    """γ = η/B as a function of intrinsic time.

    Attributes:
        gamma: times of any shape to positive values of that shape.
        edges: times at which it jumps, ascending; others are searched for, at a cost.
    """

    gamma: Callable[[np.ndarray], np.ndarray]
    edges: tuple[float, ...] = ()


def drive_of(run: Sequence[Stage]) -> Drive:
    """Return the drive of stages with fixed LR and batch size."""
    ends = np.cumsum([stage.rate * stage.steps for stage in run])
    values = np.array([stage.rate / stage.batch for stage in run])

    def gamma(t: np.ndarray) -> np.ndarray:
        return values[np.minimum(np.searchsorted(ends, t, side="right"), len(values) - 1)]

    return Drive(gamma, tuple(ends[:-1]))


def law_curve(
    law: RiskLaw, drive: Drive, at: Sequence[float] | np.ndarray, *, tolerance: float = TOLERANCE
) -> np.ndarray:
    """Return the law's excess risk, [N] float64, at intrinsic times `at` [N] of 0 or more, in any
    order.

    The tolerance is the relative error to which γ · (e + σ²) is resolved, and so of the noise. The
    cost is O(N + panels) times the law's exponentials, where the panels grow as the logarithm of
    time, and of 1/tolerance.

    Raises:
        InputError: a time is negative, no number or beyond the law's.
    """
    times = np.asarray(at, np.float64)
    if not times.size:
        return times
    last = float(times.max())
    if not (times.min() >= 0 and last <= law.longest):
        raise InputError(f"intrinsic time: outside 0 to {law.longest:g}, where the law holds")
    edges = np.unique(np.concatenate([[0.0], [e for e in drive.edges if 0 < e < last], times]))

    pieces = resolve_function(
        lambda z: drive.gamma(z) * (law.signal(z) + law.noise), edges, tolerance
    )
    return law.scale * (law.signal(times) + convolve(law.kernel, *pieces, times))


def resolve_function(
    function: Callable[[np.ndarray], np.ndarray], edges: np.ndarray, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Split intervals until the function's Legendre series on each has ended.

    At a kink or a jump, an interval is split until it is too short to matter.

    Args:
        function: times of any shape to positive values of that shape.
        edges: [P + 1], ascending: where to begin with; its points stay edges.
        tolerance: of the series' last two coefficients relative to the largest, and of the
            series at both ends of the interval.

    Returns:
        The edges [P + 1] of the intervals, and the values [P, NODES] at the Gauss points of each.
    """
    left = edges[:-1]
    right = edges[1:]
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
        left = np.append(left[split], middle)
        right = np.append(middle, right[split])
    starts = np.concatenate([begin for begin, _ in done])
    order = np.argsort(starts)
    values = np.concatenate([value for _, value in done])[order]
    return np.append(starts[order], edges[-1]), values


def convolve(
    kernel: Exponentials, edges: np.ndarray, values: np.ndarray, at: np.ndarray
) -> np.ndarray:
    """∫ kernel(t − z) f(z) dz from the first edge to times t, `at` [N]; [N] float64.

    The exponentials are integrated exactly against the polynomials, however short they are. The
    times come in any order, and each must be an edge of f's intervals, as `resolve_function` has
    them.
    """
    widths = np.diff(edges)
    memory = np.zeros(len(kernel.rates))
    results = np.zeros(len(edges))
    for begin in range(0, len(widths), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        added = _moments(kernel.rates, widths[part], values[part])
        decay = np.exp(-widths[part, None] * kernel.rates)
        for i in range(len(added)):
            memory = decay[i] * memory + added[i]
            results[begin + i + 1] = kernel.weights @ memory
    return results[np.searchsorted(edges, at)]


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
        after = before - (2 * k + 1) / z * now
        before = now
        now = after
        fast += coefficients[:, k + 1, None] * now
    return widths[:, None] * np.where(decays < 10, slow, fast)
