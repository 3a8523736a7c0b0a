"""Eigenvalues and eigenvectors of a diagonal matrix minus a matrix of rank one.

The secular equation is solved for all eigenvalues at once, each as a distance from the nearest
pole, so that eigenvalues many orders of magnitude apart all keep their relative accuracy. The
iteration is that of LAPACK's dlaed4: both sums of the equation are interpolated by one pole each
(R.-C. Li, "Solving secular equations stably and efficiently", 1993), in a bracket.
"""

from dataclasses import dataclass

import numpy as np

_ITERATIONS = 60
_ROUNDING = 4e-16
_BLOCK = 64


@dataclass(frozen=True)
class Diagonalisation:
    """Q diag(values) Qᵀ = diag(d) − w wᵀ, with orthonormal columns Q.

    Attributes:
        values: [M], ascending.
        vectors: [M, M], the eigenvectors as columns.
        overlap: [M], Qᵀ w.
    """

    values: np.ndarray
    vectors: np.ndarray
    overlap: np.ndarray


def diagonalise(d: np.ndarray, w: np.ndarray) -> Diagonalisation:
    """Diagonalises diag(d) − w wᵀ in O(M²).

    Args:
        d: [M], positive, in any order.
        w: [M], positive, with Σ w²/d < 1: the matrix is positive definite.
    """
    order = np.argsort(d)
    poles, weights = _separate(d[order]), w[order] ** 2
    origins, offsets = _solve(poles, weights)
    distance = (poles - origins[:, None]) - offsets[:, None]  # [eigenvalue, pole]
    raw = w[order] / distance
    norms = np.sqrt(np.sum(raw**2, axis=1))
    vectors = np.empty_like(raw)
    vectors[order] = (raw / norms[:, None]).T
    # At an eigenvalue the secular equation reads Σ w²/distance = 1.
    return Diagonalisation(origins + offsets, vectors, 1 / norms)


def _separate(poles: np.ndarray) -> np.ndarray:
    """Moves equal poles apart by a few roundings, which keeps every eigenvalue accurate."""
    poles = poles.copy()
    for i in np.flatnonzero(np.diff(poles) <= 4 * np.spacing(poles[1:])):
        poles[i + 1] = poles[i] + 8 * np.spacing(poles[i])
    return poles


def _solve(poles: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The roots of 1 − Σ weights/(poles − x), as origins and offsets from them, block by block.

    Between two poles the function falls from +∞ to −∞; below the first it falls from 1.
    """
    # A block of rows against all poles stays in the cache.
    blocks = np.array_split(np.arange(len(poles)), -(-len(poles) // _BLOCK))
    solved = [_solve_block(rows, poles, weights) for rows in blocks]
    origins, offsets = zip(*solved, strict=True)
    return np.concatenate(origins), np.concatenate(offsets)


def _solve_block(
    rows: np.ndarray, poles: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    left = np.where(rows > 0, poles[rows - 1], 0.0)
    right = poles[rows]
    half = (right - left) / 2
    f, _, _, _ = _secular(left, half, poles, weights)
    origins = np.where(f > 0, right, left)
    low, high = np.where(f > 0, -half, 0.0), np.where(f > 0, 0.0, half)
    # To begin with, all but the two nearest poles count as constant.
    weights_left = np.where(rows > 0, weights[rows - 1], 0.0)
    slopes = -weights_left / half**2, -weights[rows] / half**2
    guess = (low + high) + _interpolate(f, *slopes, -half, half)
    offsets = _bracketed(guess, low, high)
    active = np.arange(len(rows))
    for _ in range(_ITERATIONS):
        origin, x = origins[active], offsets[active]
        f, slope_left, slope_right, size = _secular(origin, x, poles, weights)
        low[active] = np.where(f > 0, x, low[active])
        high[active] = np.where(f > 0, high[active], x)
        a, b = (left[active] - origin) - x, (right[active] - origin) - x
        guess = x + _interpolate(f, slope_left, slope_right, a, b)
        guess = _bracketed(guess, low[active], high[active])
        exact = np.abs(f) <= _ROUNDING * size
        offsets[active] = np.where(exact, x, guess)
        active = active[~exact & (np.abs(guess - x) > _ROUNDING * np.abs(x))]
        if not len(active):
            break
    return origins, offsets


def _bracketed(guess: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The guess where it lies within its bracket, else (or where it is no number) the middle."""
    return np.where((guess > low) & (guess < high), guess, (low + high) / 2)


def _secular(
    origins: np.ndarray, offsets: np.ndarray, poles: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The function at origins + offsets, its slopes from poles left and right, Σ|terms|."""
    inverse = 1 / ((poles - origins[:, None]) - offsets[:, None])
    total = inverse @ weights
    slope = np.square(inverse) @ weights
    np.minimum(inverse, 0.0, out=inverse)
    negative = inverse @ weights
    slope_left = np.square(inverse, out=inverse) @ weights
    return 1 - total, -slope_left, slope_left - slope, 1 + total - 2 * negative


def _interpolate(
    f: np.ndarray, slope_left: np.ndarray, slope_right: np.ndarray, a: np.ndarray, b: np.ndarray
) -> np.ndarray:
    """The step to the root of c + s/(a − x) + t/(b − x) that matches values and slopes."""
    with np.errstate(all="ignore"):  # what is no number is caught by the bracket
        slope = slope_left + slope_right
        constant = f - slope_left * a - slope_right * b
        linear = (a + b) * f - a * b * slope
        root = np.sqrt(np.maximum(linear**2 - 4 * a * b * f * constant, 0.0))
        upper, lower = (linear + root) / (2 * constant), 2 * a * b * f / (linear - root)
        return np.where(linear >= 0, upper, lower)
