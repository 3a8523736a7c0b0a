"""What a law misses, told by the rows near by: a Gaussian process of its errors (kriging).

Models of one family differ by more than a power law of their size, and no form holds the shape of
a valley in full. Errors of a form are taken as normal, with covariances

    K = s²·(MODEL²·ρ(N) + CELL²·ρ(N, D) + SHAPE²·ρ(N, D, B, η)),   ρ = exp(-½ Σ (Δlog/length)²)

beside the scatter of single runs, which grows with their excess. Far from all rows the errors are
0 again and the law speaks alone. Parameters of the form are as uncertain as their slopes say
(universal kriging; Rasmussen and Williams, 2006, section 2.7). The amplitude s and the lengths in
B and η are chosen by left-out cells (constants derived here).
"""

from collections.abc import Sequence
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
UNSEEN = 0.03  # the same of a run that is not among the rows
CLIFF = 5.0  # times that excess, from which a row tells nothing
LARGE = 600  # rows, from which a factorization pays
SAME = 0.03  # the length in log N of what is the model's own: sizes 2% apart are nearly one


@dataclass(frozen=True)
class Departure:
    """Amplitude s, 0 for none, and the length in log B and log η."""

    amplitude: float
    length: float

    def covariance(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """[n, m] nats² of errors at logarithms [n, 3 or 4] and [m, 3 or 4]."""
        of_shape = np.concatenate([OF_SHAPE, np.full(one.shape[1] - 2, self.length)])
        alike = SHAPE**2 * _near(one / of_shape, other / of_shape)
        alike += CELL**2 * _near(one[:, :2] / OF_CELL, other[:, :2] / OF_CELL)
        alike += MODEL**2 * _near(one[:, :1] / SAME, other[:, :1] / SAME)
        return self.amplitude**2 * alike

    def along(
        self, size: np.ndarray, axes: list[np.ndarray], other: np.ndarray, told: np.ndarray
    ) -> np.ndarray:
        """[b] or [b, r] nats at one log N and log D [2], over a grid of log B and log η.

        That is `covariance(grid, other) @ told`, of others [n, 3 or 4] and told [n], by parts.
        """
        cell = _near(size[None] / OF_CELL, other[:, :2] / OF_CELL)[0]
        model = _near(size[None, :1] / SAME, other[:, :1] / SAME)[0]
        same = (CELL**2 * cell + MODEL**2 * model) @ told
        left = SHAPE**2 * _near(size[None] / OF_SHAPE, other[:, :2] / OF_SHAPE)[0] * told
        parts = [
            _near(x[:, None] / self.length, y[:, None] / self.length)
            for x, y in zip(axes, other[:, 2:].T, strict=True)
        ]
        shape = (parts[0] * left) @ parts[1].T if len(parts) > 1 else parts[0] @ left
        return self.amplitude**2 * (same + shape)


def _near(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """[n, m], exp(-½ |x - y|²) of [n, k] and [m, k]."""
    half = (one**2).sum(axis=1)[:, None] / 2 + (other**2).sum(axis=1) / 2
    return np.exp(one @ other.T - half)


def scatter(excess: np.ndarray, count: np.ndarray | float = 1.0) -> np.ndarray:
    """Nats by which the mean of `count` runs differs, at an excess over the best of its (N, D)."""
    far = np.maximum(excess, 0.0) / GROWS
    return RUN * np.sqrt((1 + far**2 + (far / CLIFF) ** 6) / count)


def unseen(excess: np.ndarray) -> np.ndarray:
    """Nats by which a run differs whose excess is only expected: a valley may lie elsewhere."""
    return RUN * np.hypot(1.0, np.maximum(excess, 0.0) / UNSEEN)


class Seen(NamedTuple):
    """Rows that were seen: logarithms [n, 3 or 4], and the precision [n, n] of what they miss."""

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
    covariance = departure.covariance(logs, logs)
    covariance[np.diag_indices(len(noise))] += noise**2
    return _inverse(covariance)


def _inverse(covariance: np.ndarray) -> np.ndarray:
    """Of a positive definite matrix."""
    if len(covariance) < LARGE:
        return np.linalg.inv(covariance)
    from scipy.linalg import get_lapack_funcs  # a fit is read without it

    lower = np.linalg.cholesky(covariance)
    (invert,) = get_lapack_funcs(("potri",), (lower,))
    inverse, _ = invert(lower, lower=1)
    return np.tril(inverse) + np.tril(inverse, -1).T


def left_out(
    precision: np.ndarray,
    missed: np.ndarray,
    turned: Sequence[np.ndarray],
    inner: Sequence[np.ndarray],
    out: np.ndarray,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """What the others expect rows `out` to miss K laws by, and its variances with a run's.

    By blocks of the precision of all rows, without inverting that of the rest.

    Args:
        precision: [n, n] of all rows.
        missed: [K, n] nats, measured less a law that was fitted to the others.
        turned: of each law, [n, P], the precision times its slopes.
        inner: of each law, [P, P], the precision of its parameters by all rows and before any.
        out: [n], True of the rows that are left out.

    Returns:
        [K, m], and [m] of each law.
    """
    left = _inverse(precision[np.ix_(out, out)])
    expected = -(np.where(out, 0.0, missed) @ precision[:, out]) @ left
    variances = []
    for here, known in zip((x[out] for x in turned), inner, strict=True):
        across = left @ here
        spread = np.linalg.inv(known - here.T @ across)
        variances.append(np.diag(left) + ((across @ spread) * across).sum(axis=1))
    return expected, variances
