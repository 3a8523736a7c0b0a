"""A Gaussian process of the residuals of a form (kriging), with fixed length scales.

Models of one family differ by more than a power law of their size. No form has the exact shape of
loss over batch size and learning rate. Residuals of a form are normal with covariances

    K = MODEL²·ρ(N) + SHAPE²·ρ(N, D, B, η),   ρ = exp(-½ Σ (Δlog/length)²),

plus the noise of single runs, which grows with their excess loss. Far from all rows the residuals
return to 0. The parameters of the form are as uncertain as their slopes imply (universal kriging;
Rasmussen and Williams, 2006, section 2.7). Amplitudes and lengths are derived here:
we tried amplitudes from half to twice these values, and lengths from 0.7 to 2.5. No choice has
smaller left-out errors on published and planted tables together.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MODEL = 0.006  # nats, SD of one model (sizes 3% apart)
SHAPE = 0.02  # nats, SD of the shape
SAME_BUDGET = 0.03  # in log N or D: one size; tokens of whole steps differ a little between batches
LENGTHS = np.array([2.0, 2.0, 1.0, 1.0])  # in log N, D, B and η: sizes change a shape slowly
RUN_NOISE = 0.005  # nats, of one run near the best; published runs scatter by .003 to .006
NOISE_GROWS = 0.06  # nats of excess loss at which the noise is 1.4 times that
CLIFF = 0.3  # nats of excess loss from which a row has almost no weight


class ResidualGP(NamedTuple):
    """The process given residuals at rows.

    Attributes:
        logs: [n, 3 or 4], logarithms of N, D, B and the learning rate of the rows.
        precision: [n, n], inverse of the covariance of residuals and noise.
    """

    logs: np.ndarray
    precision: np.ndarray

    @classmethod
    def of(cls, logs: np.ndarray, noise: np.ndarray) -> "ResidualGP":
        """Return the process of rows [n, 3 or 4] with standard deviations of noise [n]."""
        total = covariance(logs, logs)
        total[np.diag_indices(len(noise))] += noise**2
        return cls(logs, inverse(total))

    def posterior(self, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the gain [m, n] and the covariance [m, m] at points [m, 3 or 4].

        The gain times the residuals of the rows is the expected residual at the points.
        """
        prior = covariance(logs, self.logs)
        gain = prior @ self.precision
        return gain, covariance(logs, logs) - gain @ prior.T

    def spread(self, slopes: np.ndarray, prior: np.ndarray) -> np.ndarray:
        """Return [P, P], covariance of a form's parameters, by slopes [n, P] and priors [P]."""
        return np.linalg.inv(slopes.T @ self.precision @ slopes + np.diag(prior))


def covariance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return [n, m] nats², of residuals at logarithms [n, 3 or 4] and [m, 3 or 4]."""
    lengths = LENGTHS[: one.shape[1]]
    model = _correlation(one[:, :1] / SAME_BUDGET, other[:, :1] / SAME_BUDGET)
    return MODEL**2 * model + SHAPE**2 * _correlation(one / lengths, other / lengths)


def residuals_on_grid(
    size: np.ndarray, axes: list[np.ndarray], other: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Return [b] or [b, r] nats at one log N and log D [2], over a grid of log B and log η.

    That is `covariance(grid, other) @ weights`, of others [n, 3 or 4] and weights [n], by parts.
    """
    model = _correlation(size[None, :1] / SAME_BUDGET, other[:, :1] / SAME_BUDGET)[0]
    sizes = _correlation(size[None] / LENGTHS[:2], other[:, :2] / LENGTHS[:2])[0]
    parts = [
        _correlation(x[:, None] / length, y[:, None] / length)
        for x, y, length in zip(axes, other[:, 2:].T, LENGTHS[2:], strict=False)
    ]
    left = parts[0] * (SHAPE**2 * sizes * weights)
    shape = left @ parts[1].T if len(parts) > 1 else left.sum(axis=1)
    return MODEL**2 * (model @ weights) + shape


def _correlation(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """[n, m], exp(-½ |x - y|²) of [n, k] and [m, k]."""
    half = (one**2).sum(axis=1)[:, None] / 2 + (other**2).sum(axis=1) / 2
    return np.exp(one @ other.T - half)


def noise_sd(
    excess: np.ndarray, count: np.ndarray | float = 1.0, cliff: np.ndarray | float = CLIFF
) -> np.ndarray:
    """Return the noise of the mean of `count` runs, in nats.

    Args:
        excess: above the lowest loss of the (N, D), in nats.
        count: runs that are averaged.
        cliff: excess from which a row has almost no weight, in nats.
    """
    above = np.maximum(excess, 0.0)
    # The 6th power is small below the cliff and rules above it (derived here).
    variance = 1 + (above / NOISE_GROWS) ** 2 + (above / cliff) ** 6
    return RUN_NOISE * np.sqrt(variance / count)


def inverse(matrix: np.ndarray) -> np.ndarray:
    """Return the inverse of a positive definite matrix, by its Cholesky factor."""
    try:
        from scipy.linalg import get_lapack_funcs
    except ModuleNotFoundError:  # the light install; LAPACK's potri takes half the time
        found = np.linalg.inv(matrix)
        return (found + found.T) / 2
    potrf, potri = get_lapack_funcs(("potrf", "potri"), (matrix,))
    upper = np.triu(potri(potrf(matrix)[0])[0])
    return upper + np.triu(upper, 1).T


def left_out(
    gp: ResidualGP,
    residuals: np.ndarray,
    slopes: np.ndarray,
    prior: np.ndarray,
    folds: Sequence[np.ndarray],
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return residuals that other rows predict for each fold, and variances with the noise.

    By blocks of the precision of all rows, without another inverse.

    Args:
        gp: of all rows.
        residuals: [folds, n] nats, of a form fitted to the rows outside of each fold.
        slopes: [n, P], of that form by its parameters.
        prior: [P], precision of the parameters before any row.
        folds: of each, [n], True where a row is left out.
    """
    turned = gp.precision @ slopes
    known = slopes.T @ turned + np.diag(prior)
    found = []
    for out, missed in zip(folds, residuals, strict=True):
        block = inverse(gp.precision[np.ix_(out, out)])
        mean = -block @ (gp.precision[out] @ np.where(out, 0.0, missed))
        across = block @ turned[out]
        spread = np.linalg.inv(known - turned[out].T @ across)
        found.append((mean, np.diag(block) + ((across @ spread) * across).sum(axis=1)))
    return found
