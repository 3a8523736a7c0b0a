"""Mini-batch SGD on power-law least squares: the exact risks of averaged iterates.

The model in which Zhang et al. (arXiv 2410.21676) explain why the critical batch size follows the
data. Features are Gaussian with covariance λ_i = i^−a (capacity a). The target is λ_i⟨v_i, w_0 −
w*⟩² = i^−b (source b), with noise of variance σ². The step size is constant and iterates are
averaged. The second moments of the error close among themselves, so that nothing is sampled
(derived here):

    A ← (1 − γλ)² A + (γ²/B) (λ² A + λ (Σ λA + σ²))                A_i = E⟨v_i, w_t − w*⟩²
    C ← (1 − γλ) C + A,  T ← T + 2C − A,  risk of the average = Σ λT / n²

The average is of the n iterates w_0 … w_(n−1), or of their last part, or exponential (Li & Gu, SGD
with exponential averaging).
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from bss.errors import check
from bss.jitting import jit

AVERAGES = ("start", "tail", "exponential")
PER_OCTAVE = 8
SMALLEST_RATE = 1e-3
WINDOWS = 8
Moments = tuple[jax.Array, jax.Array, jax.Array]


@dataclass(frozen=True)
class LeastSquares:
    """A task; a value out of its range is an InputError.

    Attributes:
        capacity: a > 1.
        source: b > 1.
        modes: Number of eigenvalues that are kept.
        noise: σ².
    """

    capacity: float
    source: float
    modes: int = 400
    noise: float = 1.0

    def __post_init__(self) -> None:
        for name, value in (("capacity", self.capacity), ("source", self.source)):
            check(1 < value < math.inf, name, value, "an exponent above 1")
        check(self.modes >= 1, "modes", self.modes, "a positive number of modes")
        check(0 <= self.noise < math.inf, "noise", self.noise, "a variance of 0 or more")

    @property
    def eigenvalues(self) -> np.ndarray:
        """[modes], λ."""
        return np.arange(1.0, self.modes + 1) ** -self.capacity

    @property
    def errors(self) -> np.ndarray:
        """[modes], ⟨v_i, w_0 − w*⟩²."""
        return np.arange(1.0, self.modes + 1) ** (self.capacity - self.source)

    @property
    def exponent(self) -> float:
        """Exponent of B*(D), averaging from the start."""
        a = self.capacity
        b = self.source
        return 1 - a / min(b, 2 * a + 1) if b > a else 0.0

    def largest_rate(self, batch: float) -> float:
        """Below 2/(λ_1 + (λ_1 + tr H)/B) the second moments stay bounded (derived here)."""
        values = self.eigenvalues
        return 2 / float(values[0] + (values[0] + values.sum()) / batch)


@dataclass(frozen=True)
class Procedure:
    """Settings of the measured risks and critical batch sizes; the exponent depends on them.

    A value out of its range is an InputError.

    Attributes:
        overhead: r, samples that a critical batch may take above D.
        rate_cap: largest step size tried, as a share of the limit of stability.
        rates: number of step sizes to try, log-spaced over three decades below it.
        average: "start", "tail" or "exponential".
        tail: share of the iterates that a tail's average takes.
        per_octave: batches tried per factor of 2.
    """

    overhead: float = 0.2
    rate_cap: float = 0.5
    rates: int = 48
    average: str = "start"
    tail: float = 0.5
    per_octave: int = 2

    def __post_init__(self) -> None:
        check(0 < self.overhead <= 1, "overhead", self.overhead, "a fraction up to 1, e.g. 0.2")
        check(0 < self.rate_cap < 1, "rate cap", self.rate_cap, "a share between 0 and 1")
        check(self.rates >= 3, "rates", self.rates, "at least 3 step sizes")
        check(self.per_octave >= 1, "per_octave", self.per_octave, "at least a batch per octave")
        known = f"one of {', '.join(AVERAGES)}"
        check(self.average in AVERAGES, "average", self.average, known)
        check(0 < self.tail <= 1, "tail", self.tail, "a share of at most 1")


def risk_curve(
    task: LeastSquares, batch: float, steps: int, procedure: Procedure | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Excess risk of the averaged iterate, each step count at its best step size.

    Args:
        task: the problem.
        batch: B ≥ 1, not necessarily whole.
        steps: the most that are taken.
        procedure: step sizes and average.

    Returns:
        Step counts [K], eight per octave, and risks [K].
    """
    procedure = procedure or Procedure()
    cap = procedure.rate_cap * task.largest_rate(batch)
    rates = cap * np.geomspace(SMALLEST_RATE, 1.0, procedure.rates)
    counts, risks = risks_at_rates(task, batch, steps, rates, procedure)
    return counts, _best(risks)


def risks_at_rates(
    task: LeastSquares, batch: float, steps: int, rates: np.ndarray, procedure: Procedure
) -> tuple[np.ndarray, np.ndarray]:
    """Step counts [K], and excess risks [K, G] of the averaged iterate at step sizes γ [G].

    Arguments as in `risk_curve`; of the procedure only the average counts.
    """
    octaves = math.log2(max(steps, 1))
    counts = np.unique(np.rint(2.0 ** np.arange(0, octaves + 1e-9, 1 / PER_OCTAVE)).astype(int))
    counts = np.unique(np.append(counts, max(steps, 1)))
    with jax.enable_x64(True):
        given = (task.eigenvalues[None], task.errors[None], rates[:, None], batch, task.noise)
        problem = [jnp.asarray(value, jnp.float64) for value in given]
        if procedure.average == "exponential":
            windows = np.geomspace(1.0, max(steps, 2) / 2, WINDOWS)
            return counts, _exponential_risks(problem, counts, windows)
        return counts, _averaged_risks(problem, counts, procedure)


def _best(risks: np.ndarray) -> np.ndarray:
    """Least risk [K] over step sizes [K, G], by a parabola in the logarithms."""
    logs = np.log(np.where(np.isfinite(risks), risks, 1e300))
    best = np.argmin(logs, axis=1)
    inner = np.clip(best, 1, logs.shape[1] - 2)
    rows = np.arange(len(logs))
    left = logs[rows, inner - 1]
    middle = logs[rows, inner]
    right = logs[rows, inner + 1]
    bend = left + right - 2 * middle
    dip = (right - left) ** 2 / (8 * np.where(bend > 0, bend, np.inf))
    least = np.where(best == inner, middle - dip, logs.min(axis=1))
    return np.exp(least)


def _averaged_risks(problem: list, counts: np.ndarray, procedure: Procedure) -> np.ndarray:
    spectrum, errors, rates, batch, noise = problem
    first = jnp.broadcast_to(errors, (rates.size, errors.size))
    state = (first, jnp.zeros_like(first), jnp.zeros_like(first))
    states = [(0, state)]
    risks = []
    for count in counts:
        state = _advance(state, int(count) - states[-1][0], spectrum, rates, batch, noise)
        start = (1 - procedure.tail) * count if procedure.average == "tail" else 0.0
        # The recorded count nearest to where the tail should begin.
        since, before = min(states, key=lambda entry: abs(entry[0] - start))
        risks.append(_tail_risk(state, before, int(count) - since, spectrum, rates))
        states.append((int(count), state))
        if procedure.average == "start":
            states = [states[0], states[-1]]
    return np.stack([np.asarray(risk) for risk in risks])


def _exponential_risks(problem: list, counts: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """Least over averaging windows in steps, tried like step sizes."""
    spectrum, errors, rates, batch, noise = problem
    first = jnp.broadcast_to(errors, (rates.size, errors.size))
    decay = jnp.asarray(np.exp(-1 / windows))[:, None, None]
    moments = jnp.broadcast_to(first, (windows.size, *first.shape))
    state = (first, moments, moments)
    risks = []
    for steps in np.diff(counts, prepend=0):
        state = _advance_exponential(state, int(steps), spectrum, rates, batch, noise, decay)
        risks.append(np.asarray((spectrum[None] * state[2]).sum(-1).min(axis=0)))
    return np.stack(risks)


def _moved(
    A: jax.Array, spectrum: jax.Array, rates: jax.Array, batch: jax.Array, noise: jax.Array
) -> jax.Array:
    """Return the second moments after one step."""
    keep = 1 - rates * spectrum
    risk = (spectrum * A).sum(-1, keepdims=True)
    return keep**2 * A + rates**2 / batch * spectrum * (spectrum * A + risk + noise)


@jit
def _advance(
    state: Moments,
    steps: int,
    spectrum: jax.Array,
    rates: jax.Array,
    batch: jax.Array,
    noise: jax.Array,
) -> Moments:
    """Return A, C, T [G, modes] after `steps` more steps."""
    keep = 1 - rates * spectrum

    def step(_: int, state: Moments) -> Moments:
        A, C, T = state
        C = keep * C + A
        return _moved(A, spectrum, rates, batch, noise), C, T + 2 * C - A

    return jax.lax.fori_loop(0, steps, step, state)


@jit
def _advance_exponential(
    state: Moments,
    steps: int,
    spectrum: jax.Array,
    rates: jax.Array,
    batch: jax.Array,
    noise: jax.Array,
    decay: jax.Array,
) -> Moments:
    """A [G, modes], E ξw and E ξ² [W, G, modes] of ξ ← τξ + (1 − τ)w after more steps."""
    keep = 1 - rates * spectrum

    def step(_: int, state: Moments) -> Moments:
        A, cross, square = state
        A = _moved(A, spectrum, rates, batch, noise)
        ahead = keep[None] * cross
        square = decay**2 * square + 2 * decay * (1 - decay) * ahead + (1 - decay) ** 2 * A[None]
        return A, decay * ahead + (1 - decay) * A[None], square

    return jax.lax.fori_loop(0, steps, step, state)


@jit
def _tail_risk(
    state: Moments, before: Moments, count: int, spectrum: jax.Array, rates: jax.Array
) -> jax.Array:
    """Risk of the average of the last `count` iterates, from the moments then and before.

    Σ over both in the tail = all − all before − 2·(before × tail); the last is a geometric sum
    (derived here).
    """
    contraction = rates * spectrum
    # Past 1 the factor is negative, and near 0 its power differs from 1 by less than rounding.
    small = -jnp.expm1(count * jnp.log1p(-jnp.minimum(contraction, 0.5)))
    large = 1 - jnp.abs(1 - contraction) ** count * jnp.where(
        contraction > 1, 1 - 2 * (count % 2), 1
    )
    ratio = jnp.where(contraction < 0.5, small, large) / contraction
    cross = before[1] * (1 - contraction) * ratio
    return (spectrum * (state[2] - before[2] - 2 * cross)).sum(-1) / count**2
