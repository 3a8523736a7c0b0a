"""The functional scaling law: the loss of any rate and batch schedule, in intrinsic time.

Li et al. (arXiv 2509.19189): with t = Σ η the noise enters through γ = η/B alone,

    risk ≂ M^{−sβ} + e(t) + ∫₀ᵗ K(t − z) [e(z) + σ²] γ(z) dz,
    e(t) = (1 + t)^−s,  K(t) = (1 + t)^−(2 − 1/β)

in its limit of infinite width, and with the sums over M modes that these stand for at finite
width. The law is of first order in γ: the noise that noise makes is left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bss.errors import InputError
from bss.theory.kernels import Exponentials, convolve, power_kernel, resolve_function
from bss.theory.regression import Stage, Task, check_exponents

TOLERANCE = 1e-10


@dataclass(frozen=True)
class RiskLaw:
    """A member of the law: risk = scale · [signal + ∫ kernel · (signal + noise) · γ].

    Attributes:
        signal: e(t), times of any shape to values of that shape.
        kernel: K(t), the forgetting of noise.
        noise: σ².
        scale: ½ at finite width, where the law is an equation; 1 in the limit, where it is ≂.
        longest: the intrinsic time up to which the kernel holds.
    """

    signal: Callable[[np.ndarray], np.ndarray]
    kernel: Exponentials
    noise: float
    scale: float
    longest: float


def limit_law(source: float, capacity: float, noise: float, longest: float) -> RiskLaw:
    """The law at infinite width, up to constants (Li et al.), for s > 0, β > 1 and noise σ².

    `longest` is the intrinsic time up to which it will be asked.
    """
    check_exponents(source, capacity)

    kernel = power_kernel(2 - 1 / capacity, longest)
    return RiskLaw(lambda t: (1 + t) ** -source, kernel, noise, 1.0, longest)


def finite_law(task: Task) -> RiskLaw:
    """The law of M modes: e = Σ λ|θ*|² e^{−2λt}, K = Σ λ² e^{−2λt}, as an excess risk.

    What the modes cannot learn, `task.approximation`, is not in it.
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
    """The drive of stages of constant rate and batch."""
    ends = np.cumsum([stage.rate * stage.steps for stage in run])
    values = np.array([stage.rate / stage.batch for stage in run])

    def gamma(t: np.ndarray) -> np.ndarray:
        return values[np.minimum(np.searchsorted(ends, t, side="right"), len(values) - 1)]

    return Drive(gamma, tuple(ends[:-1]))


def law_curve(
    law: RiskLaw, drive: Drive, at: Sequence[float] | np.ndarray, *, tolerance: float = TOLERANCE
) -> np.ndarray:
    """The law's excess risk, [N] float64, at intrinsic times `at` [N] of 0 or more, in any order.

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
        raise InputError(f"intrinsic time: asked outside 0 to {law.longest:g}, where the law holds")
    edges = np.unique(np.concatenate([[0.0], [e for e in drive.edges if 0 < e < last], times]))

    panels = resolve_function(
        lambda z: drive.gamma(z) * (law.signal(z) + law.noise), edges, tolerance
    )
    return law.scale * (law.signal(times) + convolve(law.kernel, panels, times))
