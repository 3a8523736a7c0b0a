"""Errors that cluster by run: an offset per run plus independent noise (derived here).

Losses of one run at several targets share the run's luck, so row-based intervals are far too
narrow (planted 90% intervals covered 35-70%). Here a residual is offset(run) + noise. The two
variances are moment estimates from the residuals of a fit, with its residual degrees of freedom. A
parametric bootstrap samples from these variances. The sampled variances follow their own scaled
inverse chi-square, which widens intervals from few runs as Student's t does.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bss.values import Nonnegative, Positive


@dataclass(frozen=True)
class RunEffects:
    """Standard deviations in the residuals' unit, and their degrees of freedom."""

    offset: Nonnegative
    noise: Nonnegative
    offset_dof: Positive
    noise_dof: Positive


def rms(values: ArrayLike) -> float:
    """Return the root mean square; NaN ones do not count."""
    return float(np.sqrt(np.nanmean(np.square(values))))


def robust_scale(values: np.ndarray) -> float:
    """Return the standard deviation about 0 from the median size, which outliers do not move."""
    return 1.4826 * float(np.median(np.abs(values)))  # of a normal distribution


def symmetric_root(covariance: np.ndarray) -> np.ndarray:
    """Return the symmetric square root [m, m] of a covariance [m, m].

    It is unique, so draws with it are the same on all machines. Eigenvectors alone are another
    root, with signs that differ between versions of LAPACK. Eigenvalues below 0 are rounding and
    count as 0.
    """
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T


def draw_noise(
    deviation: float, dof: float, shape: tuple[int, int], generator: "np.random.Generator"
) -> np.ndarray:
    """Return independent errors [R, N], each row with a standard deviation sampled for it.

    Args:
        deviation: measured standard deviation, with that many degrees of freedom `dof`.
        shape: R and N.
        generator: random numbers.
    """
    scale = deviation * np.sqrt(dof / generator.chisquare(dof, (shape[0], 1)))
    return scale * generator.standard_normal(shape)


def run_effects(residuals: np.ndarray, jacobian: np.ndarray, runs: np.ndarray) -> RunEffects:
    """Return variance components of a fit by equating sums of squares to their means.

    With P = I − J(JᵀJ)⁻¹Jᵀ the residuals are P(Zu + e). Their sums of squares between and within
    runs have expectations linear in the two variances, with traces as coefficients.

    Args:
        residuals: [N], at the minimum.
        jacobian: [N, P]; columns of fixed parameters are left out or zero.
        runs: [N], labels of the runs.
    """
    Z = _members(runs)
    basis, singular, _ = np.linalg.svd(jacobian, full_matrices=False)
    # Up to 1e-9 is rounding of a derivative of 0, at joints of the three-stage law; 8e-9 is the
    # smallest that counts in the committed fits.
    basis = basis[:, singular > 3e-9 * max(singular.max(initial=0.0), 1e-300)]
    left_over = np.eye(len(residuals)) - basis @ basis.T
    mean = Z @ np.diag(1 / Z.sum(axis=0)) @ Z.T
    within = np.eye(len(residuals)) - mean
    spread = left_over @ Z
    squares = np.array([residuals @ mean @ residuals, residuals @ within @ residuals])
    offset_share = np.array([np.sum(spread * (Q @ spread)) for Q in (mean, within)])
    dof = np.maximum([np.sum(left_over * (Q @ left_over)) for Q in (mean, within)], 1.0)
    if np.allclose(within, 0):
        total = squares.sum() / dof[0]
        return RunEffects(float(np.sqrt(total)), 0.0, float(dof[0]), 1.0)
    design = np.stack([offset_share, dof], axis=1)
    offset, noise = np.linalg.lstsq(design, squares, rcond=None)[0]
    if offset <= 0 or noise <= 0:
        pooled = squares.sum() / dof.sum()
        offset, noise = (0.0, pooled) if offset <= 0 else (squares[0] / offset_share[0], 0.0)
    return RunEffects(float(np.sqrt(offset)), float(np.sqrt(noise)), float(dof[0]), float(dof[1]))


def _members(runs: np.ndarray) -> np.ndarray:
    """Return [N, runs], 1 if a row is of a run, for labels [N]."""
    return (np.asarray(runs)[:, None] == np.unique(runs)).astype(float)


def draw_errors(
    effects: RunEffects, runs: np.ndarray, count: int, generator: "np.random.Generator"
) -> np.ndarray:
    """Return errors [count, N] of that many repetitions of a design with labels of runs [N]."""
    Z = _members(runs)
    offset = draw_noise(effects.offset, effects.offset_dof, (count, Z.shape[1]), generator)
    if not effects.noise:  # as where each run has one row, which is then drawn once
        return offset @ Z.T
    return offset @ Z.T + draw_noise(effects.noise, effects.noise_dof, (count, len(Z)), generator)


def redraw(
    effects: RunEffects,
    used: np.ndarray,
    runs: np.ndarray,
    count: int,
    generator: "np.random.Generator",
) -> np.ndarray:
    """Return errors [count, ...] of repetitions of a design, 0 where a residual is not used.

    Args:
        effects: the variances.
        used: [...], which residuals are of measurements.
        runs: [...], labels.
        count: number of repetitions.
        generator: random numbers.
    """
    errors = np.zeros((count, *used.shape))
    errors[:, used] = draw_errors(effects, runs[used], count, generator)
    return errors
