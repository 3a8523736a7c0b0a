"""Power-law kernel regression under one-pass SGD: exact second moments, without sampling.

The setting of Li et al. (arXiv 2509.19189), §2: Gaussian features of covariance λ_j = j^−β,
target |θ*_j|² = j^−1 λ_j^(s−1), labels with Gaussian noise. The second moments of the error close
among themselves (derived here):

    m'_j = (1 − ηλ_j)² m_j + (η²/B) [λ_j² m_j + λ_j (Σ_i λ_i m_i + σ²)],  m_j = E(v_j − θ*_j)²

One step is a fixed symmetric matrix, diagonal plus rank one, so that a stage of constant LR and
batch is one diagonalisation and a power: 2^40 steps cost what 2^10 do.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import root_scalar
from scipy.special import zeta

from bss.errors import InputError, check
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve
from bss.theory.secular import diagonalise

MOST_MODES = 2**14  # whose eigenvectors take 2 GB


@dataclass(frozen=True)
class Task:
    """A regression task; a value out of its range is an InputError.

    Attributes:
        source: s > 0; the smaller, the harder the target.
        capacity: β > 1, the decay of the spectrum.
        modes: M, how many are learnt: the width.
        noise: σ², variance of the labels' noise.
    """

    source: float
    capacity: float
    modes: int = 128
    noise: float = 1.0

    def __post_init__(self) -> None:
        check_exponents(self.source, self.capacity)
        most = f"a number from 1 to {MOST_MODES}"
        check(1 <= self.modes <= MOST_MODES, "modes", self.modes, most)
        check(0 <= self.noise < math.inf, "noise", self.noise, "a variance of 0 or more")
        if not self.eigenvalues[-1] > 1e-150:
            raise InputError(
                f"modes: {self.modes} modes of capacity {self.capacity} have eigenvalues below "
                "1e-150; lower modes or capacity"
            )

    @cached_property
    def eigenvalues(self) -> np.ndarray:
        """λ, [M], descending from 1."""
        return np.arange(1, self.modes + 1, dtype=np.float64) ** -self.capacity

    @cached_property
    def target(self) -> np.ndarray:
        """|θ*|², [M]: the second moments of a model that starts at zero."""
        return self.eigenvalues ** (self.source - 1) / np.arange(1, self.modes + 1)

    @property
    def approximation(self) -> float:
        """½ Σ_{j>M} λ_j |θ*_j|², ≂ M^−sβ: what a model of M modes cannot learn (derived here).

        It adds to the excess risk. To the modes that are learnt, Gaussian features beyond them
        are label noise of twice this variance.
        """
        return 0.5 * float(zeta(1 + self.source * self.capacity, self.modes + 1))


def check_exponents(source: float, capacity: float) -> None:
    """Refuses capacity ≤ 1 (the features would have infinite variance) and source ≤ 0."""
    check(0 < source < math.inf, "source", source, "a source exponent s above 0")
    check(1 < capacity < math.inf, "capacity", capacity, "a capacity exponent β above 1")


@dataclass(frozen=True)
class Stage:
    """Steps of one learning rate and one batch; `steps` may be fractional, to search over it."""

    rate: float
    batch: float
    steps: float


def stages(schedule: BatchSchedule, data: int, rate: float) -> tuple[Stage, ...]:
    """Return a batch schedule keyed by samples, resolved over `data` samples into stages.

    Switches fall where `bss.schedules.plan` puts them; samples that fill no batch are left over.
    """
    plan = resolve(schedule, data, seq_len=1)
    return tuple(Stage(rate, segment.batch, segment.steps) for segment in plan.segments)


def stable_rate(task: Task, batch: float) -> float:
    """Return the learning rate below which the second moments stay bounded at this batch.

    It solves (η/B) Σ_j λ_j / (2 − η(1 + 1/B) λ_j) = 1: the generator is positive definite below
    it (derived here).
    """
    eigenvalues = task.eigenvalues

    def excess(rate: float) -> float:
        return rate / batch * np.sum(eigenvalues / (2 - rate * (1 + 1 / batch) * eigenvalues)) - 1

    highest = 2 / (1 + 1 / batch) * (1 - 1e-12)
    if excess(highest) <= 0:  # so large a batch that the bound is that of gradient descent
        return highest
    return float(root_scalar(excess, bracket=(0.0, highest), xtol=1e-15).root)


def check_rate(task: Task, rate: float, batch: float) -> None:
    """Raise InputError, with the bound, if an LR is not stable."""
    check(batch >= 1, "batch", batch, "a batch of at least 1")
    bound = stable_rate(task, batch)
    if not 0 < rate < bound:
        raise InputError(
            f"lr: {rate:.6g} is not stable at batch {batch:g}; "
            f"write an LR above 0 and below {bound:.6g}"
        )


@dataclass(frozen=True)
class Propagator:
    """SGD with one LR and batch size, diagonalised: it moves second moments through a stage.

    Attributes:
        values, vectors: eigenvalues [M] and eigenvectors [M, M], as columns, of I − (one step).
        log_decay: [M], log of the factor by which each eigenvector shrinks in a step.
        forcing: [M], the label noise that enters in a step, along the eigenvectors.
        readout: [M], excess risk per unit of each eigenvector.
    """

    values: np.ndarray
    vectors: np.ndarray
    log_decay: np.ndarray
    forcing: np.ndarray
    readout: np.ndarray


def propagator(task: Task, rate: float, batch: float) -> Propagator:
    """Diagonalise a step of SGD, in O(M²); InputError if the LR is not stable."""
    check_rate(task, rate, batch)
    eigenvalues = task.eigenvalues
    coupling = rate**2 / batch
    diagonal = eigenvalues * (2 * rate - (rate**2 + coupling) * eigenvalues)
    values, vectors, overlap = diagonalise(diagonal, math.sqrt(coupling) * eigenvalues)
    forcing = math.sqrt(coupling) * task.noise * overlap
    readout = overlap / (2 * math.sqrt(coupling))
    return Propagator(values, vectors, np.log1p(-values), forcing, readout)


def coordinates(step: Propagator, moments: np.ndarray) -> np.ndarray:
    """Second moments [..., M] along the eigenvectors [..., M]."""
    return moments @ step.vectors


def evolve(step: Propagator, start: np.ndarray, steps: np.ndarray | float) -> np.ndarray:
    """Coordinates [..., M] after steps [...], each from its start [..., M] or from one for all."""
    exponent = np.asarray(steps, np.float64)[..., None] * step.log_decay
    return np.exp(exponent) * start - np.expm1(exponent) / step.values * step.forcing


def advance(step: Propagator, moments: np.ndarray, steps: np.ndarray | float) -> np.ndarray:
    """Second moments [..., M] after `steps` more steps; shapes as in `evolve`."""
    return evolve(step, coordinates(step, moments), steps) @ step.vectors.T


def final_risk(task: Task, run: Sequence[Stage]) -> float:
    """Excess risk ½ Σ_j λ_j m_j at the end of the stages, from a model that starts at zero.

    Examples:
        >>> task = Task(source=0.3, capacity=4, modes=128)
        >>> round(final_risk(task, [Stage(0.1, 1, 2**20)]), 6)
        0.040505
    """
    return float(risk_curve(task, run, [math.fsum(stage.steps for stage in run)])[0])


def risk_curve(task: Task, run: Sequence[Stage], at: Sequence[float] | np.ndarray) -> np.ndarray:
    """Excess risk [N], float64, after `at` [N] steps of the stages, in any order.

    Raises:
        InputError: If an LR is not stable, or a count lies outside the run.
    """
    counts = np.asarray(at, np.float64)
    total = math.fsum(stage.steps for stage in run)
    if counts.size and not (counts.min() >= 0 and counts.max() <= total):
        raise InputError(f"steps: counts must lie between 0 and the {total:g} steps of the run")
    risks = np.empty(counts.shape)
    kinds = dict.fromkeys((stage.rate, stage.batch) for stage in run)
    propagators = {kind: propagator(task, *kind) for kind in kinds}
    moments = task.target
    begin = 0.0
    for i, stage in enumerate(run):
        step = propagators[stage.rate, stage.batch]
        end = begin + stage.steps
        start = coordinates(step, moments)
        inside = (counts >= begin) & ((counts < end) | (i == len(run) - 1))
        risks[inside] = evolve(step, start, counts[inside] - begin) @ step.readout
        moments = evolve(step, start, stage.steps) @ step.vectors.T
        begin = end
    return risks
