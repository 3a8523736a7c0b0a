"""Eigenvalues and eigenvectors of a diagonal matrix minus a matrix of rank one.

The secular equation is solved for all eigenvalues at once, each as a distance from the nearest
pole. So eigenvalues of very different magnitude keep their relative accuracy. Times that distance
the equation has no pole in its bracket, in which SciPy finds its roots (Chandrupatla, 1997).
"""

import numpy as np
from scipy.optimize.elementwise import find_root

_BLOCK = 64


def diagonalise(d: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Diagonalises diag(d) − w wᵀ in O(M²).

    Args:
        d: [M], positive, in any order.
        w: [M], positive, with Σ w²/d < 1: the matrix is positive definite.

    Returns:
        Eigenvalues [M], ascending; the eigenvectors Q as orthonormal columns [M, M]; and Qᵀ w [M].
    """
    order = np.argsort(d)
    poles = _separate(d[order])
    weights = w[order] ** 2
    origins, offsets = _solve(poles, weights)
    distance = (poles - origins[:, None]) - offsets[:, None]  # [eigenvalue, pole]
    raw = w[order] / distance
    norms = np.sqrt(np.sum(raw**2, axis=1))
    vectors = np.empty_like(raw)
    vectors[order] = (raw / norms[:, None]).T
    # At an eigenvalue the secular equation reads Σ w²/distance = 1.
    return origins + offsets, vectors, 1 / norms


def _separate(poles: np.ndarray) -> np.ndarray:
    """Moves equal poles apart by a few roundings, which keeps every eigenvalue accurate."""
    poles = poles.copy()
    for i in np.flatnonzero(np.diff(poles) <= 4 * np.spacing(poles[1:])):
        poles[i + 1] = poles[i] + 8 * np.spacing(poles[i])
    return poles


def _solve(poles: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the roots of 1 − Σ weights/(poles − x), as origins and offsets from them, block by
    block.

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
    half = (poles[rows] - left) / 2
    above = 1 - (1 / ((poles - left[:, None]) - half[:, None])) @ weights > 0
    nearest = np.where(above, rows, rows - 1)  # -1 is no pole, the origin 0
    origins = np.where(above, poles[rows], left)
    bracket = np.where(above, -half, 0.0), np.where(above, 0.0, half)

    def without_pole(x: np.ndarray, nearest: np.ndarray, origin: np.ndarray) -> np.ndarray:
        """Return the function times the offset x, which has no pole at the origin."""
        own = np.arange(len(poles)) == nearest[:, None]
        distance = np.where(own, np.inf, (poles - origin[:, None]) - x[:, None])
        has_pole = nearest >= 0
        rest = np.where(has_pole, x, 1.0) * (1 - (1 / distance) @ weights)
        return rest + np.where(has_pole, weights[nearest], 0.0)

    return origins, find_root(without_pole, bracket, args=(nearest, origins)).x
