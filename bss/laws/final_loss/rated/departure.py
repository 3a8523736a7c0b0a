"""What a law misses, told by the rows near by: a Gaussian process of its errors (kriging).

Models of one family differ by more than a power law of their size, and no form holds the shape of
a valley in full. Errors of a form are taken as normal, with covariances

    K = s²·(MODEL²·[one N] + CELL²·ρ(N, D) + SHAPE²·ρ(N, D, B, η)),   ρ = exp(-½ Σ (Δlog/length)²)

beside the scatter of single runs, which grows with their excess. Far from all rows the errors are
0 again and the law speaks alone. Parameters of the form are as uncertain as their slopes say
(universal kriging; Rasmussen and Williams, 2006, section 2.7). The amplitude s and the lengths in
B and η are chosen by left-out cells (constants derived here).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

MODEL, CELL, SHAPE = 0.006, 0.006, 0.02
"""Standard deviations in nats: of a model, of a (N, D), and of the shape over B and η."""
OF_CELL = np.array([1.0, 2.0])
OF_SHAPE = np.array([2.0, 2.0])
"""Lengths in log N and log D."""
LENGTHS = (0.7, 1.5)
AMPLITUDES = (0.25, 0.5, 1.0, 2.0)
RUN, GROWS = 0.005, 0.06
"""Nats: of one run about its law near the best, and the excess at which it is 1.4 times that."""
SAME = 0.03  # log N of one model


@dataclass(frozen=True)
class Departure:
    """Amplitude s, 0 for none, and the length in log B and log η."""

    amplitude: float
    length: float

    def covariance(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """[n, m] nats² of errors at logarithms [n, 4] and [m, 4]."""
        n, d, b, e = ((one[:, None, i] - other[None, :, i]) for i in range(4))
        near = (n / OF_CELL[0]) ** 2 + (d / OF_CELL[1]) ** 2
        alike = (n / OF_SHAPE[0]) ** 2 + (d / OF_SHAPE[1]) ** 2
        alike += (b**2 + e**2) / self.length**2
        both = CELL**2 * np.exp(-near / 2) + SHAPE**2 * np.exp(-alike / 2)
        return self.amplitude**2 * (MODEL**2 * (np.abs(n) < SAME) + both)


def scatter(excess: np.ndarray, count: np.ndarray | float = 1.0) -> np.ndarray:
    """Nats by which the mean of `count` runs differs, at an excess over the best of its (N, D)."""
    grown = 1 + (np.maximum(excess, 0.0) / GROWS) ** 2
    return RUN * np.sqrt(grown / count)


class Seen(NamedTuple):
    """Rows that were seen: their logarithms [n, 4], and the precision [n, n] of what they miss."""

    departure: Departure
    logs: np.ndarray
    precision: np.ndarray

    def across(self, logs: np.ndarray) -> np.ndarray:
        """[m, n], by which the rows' errors tell those of others."""
        return self.departure.covariance(logs, self.logs) @ self.precision

    def left(self, logs: np.ndarray, across: np.ndarray) -> np.ndarray:
        """[m, m] nats², what the rows leave open at others."""
        known = across @ self.departure.covariance(self.logs, logs)
        return self.departure.covariance(logs, logs) - known

    def spread(self, slopes: np.ndarray, prior: np.ndarray) -> np.ndarray:
        """[P, P], covariance of a form's parameters, by slopes [n, P] and prior precisions [P]."""
        return np.linalg.inv(slopes.T @ self.precision @ slopes + np.diag(prior))


def precision_of(departure: Departure, logs: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """[n, n], the inverse of the covariance of errors and scatter at rows."""
    from scipy.linalg import solve_triangular

    covariance = departure.covariance(logs, logs)
    covariance[np.diag_indices(len(noise))] += noise**2
    lower = np.linalg.cholesky(covariance)
    inverse = solve_triangular(lower, np.eye(len(noise)), lower=True)
    return inverse.T @ inverse


def left_out(
    precision: np.ndarray,
    missed: np.ndarray,
    slopes: np.ndarray,
    prior: np.ndarray,
    out: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """What the others expect rows `out` [n] to miss the law by, and its variance with a run's.

    By blocks of the precision of all rows, without inverting that of the rest.

    Args:
        precision: [n, n] of all rows.
        missed: [n] nats, measured less a law that was fitted to the others.
        slopes: [n, P].
        prior: [P], precisions of the parameters.
        out: [n], True of the rows that are left out.
    """
    block = precision[np.ix_(out, out)]
    expected = -np.linalg.solve(block, precision[out] @ np.where(out, 0.0, missed))
    turned = precision @ slopes
    inner = slopes.T @ turned + np.diag(prior)
    block = block - turned[out] @ np.linalg.solve(inner, turned[out].T)
    return expected, np.diag(np.linalg.inv(block))
