"""Steps S(B) that deviate smoothly from S = a + b/B, and how probable it is that they do not.

log S = log(a + b/B) + d(log B) + noise. The deviation d is a Gaussian process with a Matérn
covariance of smoothness 5/2. Its standard deviation is 1 to 128 times the noise of a run, each
factor of 2 as probable as the others. A deviation of 0 has a probability of 1/2. The marginal
likelihood decides between them, with flat priors of log a and log b/a, linearized at the fit
(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, sections 2.7 and 5.4). The
noise is unknown: residuals and seeds measure it, and a usual one counts as one degree of freedom.
Priors are derived here.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from bss.laws.at_batch import USUAL
from bss.laws.critical.data import StepsCurve
from bss.laws.critical.law import Shape
from bss.laws.resampling import symmetric_root

LENGTH = 1.0  # of a deviation in log B: of 1, 1.5 and 2 the one that holds a sharp bend most often


@dataclass(frozen=True)
class SmoothCurves:
    """Smooth curves through the steps of one curve.

    Attributes:
        batch: [m] ascending, from the smallest to the largest batch measured.
        log_steps: [m], expected.
        draws: [R, m], of the curve without the noise of runs.
        by_law: probability that the steps follow S = a + b/B.
    """

    batch: np.ndarray
    log_steps: np.ndarray
    draws: np.ndarray
    by_law: float

    @classmethod
    def of(
        cls, curve: StepsCurve, shape: Shape, rounded: np.ndarray, generator: np.random.Generator
    ) -> "SmoothCurves":
        """Return curves drawn for steps that are changed by what rounding may hide.

        Args:
            curve: the measurements.
            shape: S = a + b/B fitted to them.
            rounded: [R, n], changes of log steps.
            generator: random numbers.
        """
        count = 50  # batch sizes: a straight line between two is off by less than any noise
        batch = np.union1d(np.geomspace(curve.batch[0], curve.batch[-1], count), curve.batch)
        residuals = np.log(curve.steps) - shape.log_steps(curve.batch)
        ratios = 2.0 ** np.arange(8)  # to 128 times the noise, more than any known bend
        plain = _Fitted.of(curve, shape, residuals, 0.0)
        others = [_Fitted.of(curve, shape, residuals, ratio) for ratio in ratios]
        logs = np.array([one.log_evidence for one in others])
        weights = special.softmax(logs)
        # The mean over ratios, as they share one half of the probability.
        odds = plain.log_evidence - special.logsumexp(logs) + np.log(len(logs))
        chosen = generator.choice(len(ratios), len(rounded), p=weights)
        draws = np.empty((len(rounded), len(batch)))
        expected = np.zeros(len(batch))
        for i, (ratio, one) in enumerate(zip(ratios, others, strict=True)):
            gain, root = _posterior(curve, shape, batch, ratio)
            expected += weights[i] * (gain @ residuals)
            here = np.flatnonzero(chosen == i)
            means = (residuals + rounded[here]) @ gain.T
            noise = np.sqrt(one.squares / generator.chisquare(one.freedom, len(here)))
            normal = generator.standard_normal((len(here), len(batch)))
            draws[here] = means + noise[:, None] * (normal @ root)
        by_law = shape.log_steps(batch)
        return cls(batch, by_law + expected, by_law + draws, float(special.expit(odds)))


class _Fitted(NamedTuple):
    """Evidence of a deviation, and the noise variance: `squares` over a chi-square of `freedom`."""

    log_evidence: float
    squares: float
    freedom: float

    @classmethod
    def of(cls, curve: StepsCurve, shape: Shape, residuals: np.ndarray, ratio: float) -> "_Fitted":
        """Fit residuals [n] with a and κ integrated out."""
        count = len(curve.batch)
        noisy = _covariance(ratio, curve.batch, curve.batch) + np.diag(1 / curve.seeds)
        root = np.linalg.cholesky(noisy)
        basis, triangle = np.linalg.qr(np.linalg.solve(root, _slopes(shape, curve.batch)))
        white = np.linalg.solve(root, residuals)
        white -= basis @ (basis.T @ white)
        repeats = float(curve.seeds.sum()) - count
        squares = float(white @ white) + USUAL**2
        if repeats:
            squares += repeats * curve.seed_noise**2
        freedom = repeats + count - len(triangle) + 1
        sizes = np.concatenate([np.diag(root), np.abs(np.diag(triangle))])
        # A slope of 0 is 0 at each ratio, and has no part in the comparison.
        log_size = np.log(np.maximum(sizes, 1e-12)).sum()
        return cls(-log_size - freedom / 2 * np.log(squares), squares, freedom)


def _covariance(ratio: float, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return [n, m] of deviations at batches [n] and [m], in variances of the noise."""
    apart = np.sqrt(5.0) / LENGTH * np.abs(np.log(one[:, None] / other))  # Matérn, 5/2
    return ratio**2 * (1 + apart + apart**2 / 3) * np.exp(-apart)  # Matérn, 5/2


def _slopes(shape: Shape, batch: np.ndarray) -> np.ndarray:
    """Return [n, 2], derivatives of log S by log a and log κ."""
    return np.stack([np.ones(len(batch)), special.expit(np.log(shape.kappa / batch))], axis=1)


def _posterior(
    curve: StepsCurve, shape: Shape, batch: np.ndarray, ratio: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the gain [m, n] and the root [m, m] of the covariance, in variances of the noise."""
    flat = 100.0  # standard deviations of the noise: what is known of log a and log κ before
    slopes = flat * _slopes(shape, curve.batch)
    fine = flat * _slopes(shape, batch)
    noisy = _covariance(ratio, curve.batch, curve.batch) + np.diag(1 / curve.seeds)
    across = _covariance(ratio, batch, curve.batch) + fine @ slopes.T
    gain = np.linalg.solve(noisy + slopes @ slopes.T, across.T).T
    prior = _covariance(ratio, batch, batch) + fine @ fine.T
    return gain, symmetric_root(prior - gain @ across.T)
