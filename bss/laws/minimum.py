"""The minimum of measured values over batches: an asymmetric parabola in log B, with an interval.

A prior shrinks the cubic term to 0. The parabola does not fit far above the minimum, so values far
above the minimum get smaller weights. The standard deviation of a value combines the noise SD of a
run and a fraction of the rise above the minimum (derived here).
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bss.laws.base import BestBatch, Options, bounded, tails
from bss.laws.resampling import symmetric_root

FEWEST = 3  # batches of a minimum
MISFIT = 0.3  # of the rise above the least, by which a parabola may be off
ASYMMETRY = 0.2  # of the curvature, by which it may change over a factor of e (standard deviation)
# Cubic over square coefficient of tokens to a loss below which small batch sizes never come, half
# of -(1 + 2α)/3 at α = 1/2, the third over the second derivative of log B - log(1 - B_min/B)/α.
STEEP = -1 / 3
SURE = 3.6  # standard errors by which some batch on each side must need more
FORM_SD = 0.06  # of log B_opt, for the form of a law: without it 90% intervals hold 74% on planted
# curves of laws that are not the package's (benchmarks/laws)


class Minimum(NamedTuple):
    """The minimum of measured values.

    Attributes:
        batch: of the minimum.
        value: the smallest value; NaN with too few batches.
        error: its standard error.
        scatter: noise SD of one run.
    """

    batch: BestBatch
    value: float = np.nan
    error: float = np.nan
    scatter: float = np.nan


def asymmetric_bowl(x: Any, u: Any, v: Any, xp: Any = np) -> Any:
    """φ(x) = (v·e^(ux) + u·e^(-vx))/(u + v) - 1: least, 0, at 0, with a slope for each side.

    Derived here; of any shapes that broadcast, in NumPy or JAX.
    """
    return (v * xp.exp(u * x) + u * xp.exp(-v * x)) / (u + v) - 1


def parabola_vertex(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return where y [..., n] at evenly spaced x [n] is lowest, by a parabola through three.

    Returns:
        [...], in the unit of x; an end of x if the lowest value is there.
    """
    lowest = y.argmin(axis=-1)
    middle_index = np.clip(lowest, 1, len(x) - 2)
    three = middle_index[..., None] + np.array([-1, 0, 1])
    left, middle, right = np.moveaxis(np.take_along_axis(y, three, -1), -1, 0)
    bend = left - 2 * middle + right
    not_zero = 1e-300  # only a bend above 0 is used
    shift = np.where(bend > 0, (left - right) / np.maximum(2 * bend, not_zero), 0.0)
    found = x[middle_index] + np.clip(shift, -1, 1) * (x[1] - x[0])
    at_end = (lowest == 0) | (lowest == len(x) - 1)
    return np.where(at_end, x[lowest], found)


def measured_minimum(
    batch: np.ndarray,
    value: np.ndarray,
    *,
    typical: float,
    relative: np.ndarray | None = None,
    censored: np.ndarray | None = None,
    seed: np.ndarray | None = None,
    unit: str = "sequences",
    least: float = 1.0,
    level: float = Options.level,
) -> Minimum:
    """Return the batch of the smallest value, and that value.

    Args:
        batch: [n], of single runs, in any order.
        value: [n], losses in nats or log tokens; runs of one batch differ.
        typical: standard deviation of a value, if the runs do not measure it.
        relative: [n], its standard deviation divided by the typical one; 1 without.
        censored: [n], whether a value is only a lower bound, as of a run that missed its target.
        seed: [n], a label; what runs of one seed share is taken out, if `paired_seeds` can.
        unit: of the batches, for people.
        least: the smallest batch there is, one sequence.
        level: of the interval.
    """
    known = np.ones(len(batch), bool) if censored is None else ~censored
    relative = np.ones(len(batch)) if relative is None else relative
    seed = np.zeros(len(batch)) if seed is None else seed
    batches, label = np.unique(batch[known], return_inverse=True)
    best = BestBatch(None, level=level, method="measured")
    if len(batches) < FEWEST:
        return Minimum(best.unknown("too_few_batches", f"{len(batches)} batches measured"))
    sizes = np.log(batches)
    means, variance, scatter, freedom = batch_means(
        label, value[known], relative[known], seed[known], typical
    )
    # A bound above the least says as much of an end as a measurement.
    bounds = np.log(batch[~known & (value > means.min() + scatter)])
    centre = sizes[means.argmin()]
    # Smaller batch sizes missed the target, and at most one shows how steep their side is.
    steep = bool((bounds < centre).any() and np.sum(sizes < centre) == 1)
    cubic = _Cubic.fit(sizes, means, variance, steep=steep)
    vertex = float(np.exp(cubic.vertex(sizes)))
    draws = np.exp(cubic.vertex_draws(sizes, freedom, Options().resamples))
    value_at, error = cubic.at(np.clip(np.log(vertex), sizes[0], sizes[-1]))
    needs_more = (means - value_at) / np.hypot(np.sqrt(variance), error) > SURE
    higher = np.append(sizes[needs_more], bounds)
    # The least lies between the nearest batches on each side that surely need more.
    low = float(np.exp(higher[higher < cubic.centre].max(initial=-np.inf)))
    high = float(np.exp(higher[higher > cubic.centre].min(initial=np.inf)))
    draws = np.clip(draws, low, high)
    found = float(np.clip(vertex, low, high))
    least_of, most_of = np.quantile(draws, tails(level)).tolist()
    # Beyond the end a parabola is no measurement: if the batch at an end has the least value and
    # the next one surely needs more, the end itself is the bound.
    if cubic.centre == sizes[0] and high == np.exp(sizes[1]):
        most_of = found = float(batches[0])
    if cubic.centre == sizes[-1] and low == np.exp(sizes[-2]):
        least_of = found = float(batches[-1])
    tried = np.append(sizes, bounds)
    best = bounded(
        replace(best, value=found, low=min(least_of, found), high=max(most_of, found)),
        draws,
        (float(np.exp(tried.min())), float(np.exp(tried.max()))),
        below=not 0 < low < vertex,  # no smaller batch surely needs more, or the cubic is lower
        above=not np.isfinite(high),
        unit=unit,
        least=least,
    )
    return Minimum(best, value_at, error, scatter)


class _Cubic(NamedTuple):
    """A cubic in log B about the batch with the smallest mean, whose cubic term is shrunk.

    Attributes:
        coefficients: [4], the highest power first.
        covariance: [4, 4].
        centre: log of the batch with the smallest mean.
    """

    coefficients: np.ndarray
    covariance: np.ndarray
    centre: float

    @classmethod
    def fit(
        cls, sizes: np.ndarray, means: np.ndarray, variance: np.ndarray, *, steep: bool = False
    ) -> "_Cubic":
        """Fit means [n] with their variances at log batches [n].

        The cubic term is shrunk to 0. With `steep` it is shrunk to a steeper side of small
        batches: STEEP times the curvature, with a standard deviation of the same size.
        """
        misfit = MISFIT * (means - means.min())
        centre = float(sizes[means.argmin()])
        root = 1 / np.sqrt(variance + misfit**2)
        parabola = np.vander(sizes - centre, 3)  # three terms
        curvature = np.linalg.lstsq(parabola * root[:, None], means * root)[0][0]
        design = np.vander(sizes - centre, 4)  # four terms: the cubic one has a prior
        weighted = (design * root[:, None] ** 2).T
        precision = weighted @ design
        flat = 1e-6  # a curvature of 0 or less leaves no asymmetry
        deviation = max((-STEEP if steep else ASYMMETRY) * curvature, flat)
        precision[0, 0] += 1 / deviation**2
        covariance = np.linalg.inv(precision)
        moments = weighted @ means
        moments[0] -= steep / deviation  # its expected value is minus its deviation
        return cls(covariance @ moments, covariance, centre)

    def at(self, size: float) -> tuple[float, float]:
        """Return the value at a log batch, and its standard error."""
        powers = np.vander([size - self.centre], len(self.coefficients))[0]
        return float(powers @ self.coefficients), float(np.sqrt(powers @ self.covariance @ powers))

    def vertex(self, sizes: np.ndarray) -> float:
        """Return the log batch of the minimum, at most a factor beyond log batches [n]."""
        return float(_vertices(self.coefficients[None], sizes - self.centre)[0] + self.centre)

    def vertex_draws(self, sizes: np.ndarray, freedom: int, count: int) -> np.ndarray:
        """Return draws [count] of `vertex`, wider with few degrees of freedom, as Student's t."""
        generator = np.random.default_rng(0)
        normal = generator.standard_normal((count, len(self.coefficients)))
        changes = normal @ symmetric_root(self.covariance)
        if freedom:
            changes *= np.sqrt(freedom / generator.chisquare(freedom, count))[:, None]
        return _vertices(self.coefficients + changes, sizes - self.centre) + self.centre


def excess_noise(
    batch: np.ndarray, value: np.ndarray, relative: np.ndarray, seed: np.ndarray, typical: float
) -> float:
    """Return the standard deviation of values without repetitions, over the typical one.

    It is the factor at which the residuals of the cubic have the expected size, and at least 1
    (the estimator of Paule and Mandel, J. Res. NBS 87, 377, 1982). Values more than 1 above the
    least, e times the fewest tokens, have no part in it, as a cubic does not describe them. The
    factor is 1 if repetitions measure the noise, or if there are too few batches. The arguments
    are as in `measured_minimum`.
    """
    batches, label = np.unique(batch, return_inverse=True)
    means, variance, _, freedom = batch_means(label, value, relative, seed, typical)
    near = means - means.min() <= 1
    spare = np.count_nonzero(near) - FEWEST
    if freedom or spare < 1:
        return 1.0
    sizes = np.log(batches[near])
    variance = variance[near]
    means = means[near]
    misfit = MISFIT * (means - means.min())
    low = 1.0
    high = 1e3  # no noise is a thousand times the typical one
    for _ in range(20):  # halvings of the logarithm, to 5 digits
        factor = np.sqrt(low * high)
        cubic = _Cubic.fit(sizes, means, factor**2 * variance)
        off = means - [cubic.at(size)[0] for size in sizes]
        if np.sum(off**2 / (factor**2 * variance + misfit**2)) > spare:
            low = factor
        else:
            high = factor
    return float(low)


def from_others(
    batch: np.ndarray, value: np.ndarray, typical: float, relative: np.ndarray, seed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how far each value [n] is from the cubic through the others, and times the expected.

    If its batch has other runs it is compared with their mean. Both are 0 if there are too few
    others. The arguments are those of `measured_minimum`.
    """
    x = np.log(batch)
    off = np.zeros(len(batch))
    times = np.zeros(len(batch))
    if len(batch) < 2:  # nothing is left to compare with
        return off, times
    for i in range(len(batch)):
        rest = np.arange(len(batch)) != i
        sizes, label = np.unique(x[rest], return_inverse=True)
        same = sizes == x[i]
        means, variance, scatter, freedom = batch_means(
            label, value[rest], relative[rest], seed[rest], typical
        )
        guess = np.nan
        error = 0.0
        if freedom > FEWEST + 1 and same.any():
            guess = means[same][0]
        elif not freedom and not same.any() and len(sizes) > FEWEST:
            guess, sampling = _Cubic.fit(sizes, means, variance).at(x[i])
            error = np.hypot(sampling, MISFIT * (guess - means.min()))
        if np.isfinite(guess):
            off[i] = value[i] - guess
            times[i] = abs(off[i]) / np.hypot(scatter * relative[i], error)
    return off, times


def _vertices(cubics: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the minima [R] of cubics [R, 4], at most `span` beyond x [n].

    A cubic that bends down at 0 has its minimum beyond the lower end.
    """
    cube, square, slope, _ = cubics.T
    # The derivative 3·cube·x² + 2·square·x + slope is 0 at -slope/(square + root), also at cube 0.
    root = np.sqrt(np.maximum(square**2 - 3 * cube * slope, 0.0))
    not_zero = 1e-12  # only a square above 0 is used
    inside = -slope / np.maximum(square + np.where(root > 0, root, square), not_zero)
    span = np.ptp(x) + 1.0
    first, last = np.vander(x[[0, -1]], cubics.shape[1]) @ cubics.T
    outside = np.where(first < last, x[0] - span, x[-1] + span)
    return np.clip(np.where(square > 0, inside, outside), x[0] - span, x[-1] + span)


def batch_means(
    batch: np.ndarray, value: np.ndarray, relative: np.ndarray, seed: np.ndarray, typical: float
) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Return means of each batch with their variances, and the noise of a run.

    The noise is its standard deviation and the degrees of freedom.

    Args:
        batch: [n], integer labels from 0 on.
        value, relative, seed: [n], as of `measured_minimum`.
        typical: what a standard deviation usually is, which counts as one degree of freedom.
    """
    from bss.points.measuring import paired_seeds  # loads pandas, which advice does not need

    pair = paired_seeds(batch, seed)
    count = int(batch.max()) + 1
    design = np.concatenate([np.eye(count)[batch], np.eye(pair.max() + 1)[pair]], axis=1)
    scaled = design / relative[:, None]
    weighted = value / relative
    effects = np.linalg.lstsq(scaled, weighted, rcond=None)[0]
    shift = design[:, count:].mean(axis=0) @ effects[count:]
    freedom = len(value) - count - int(pair.max())
    squares = float(np.sum((weighted - scaled @ effects) ** 2))
    scatter = float(np.sqrt((squares + typical**2) / (freedom + 1)))
    variance = scatter**2 / np.bincount(batch, relative**-2.0)
    return effects[:count] + shift, variance, scatter, freedom + 1 if freedom else 0
