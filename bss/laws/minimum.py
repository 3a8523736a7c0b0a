"""The minimum of measured values over batches: an asymmetric parabola in log B, with an interval.

A prior shrinks the cubic term to 0. The parabola does not fit far above the minimum, so values far
above the minimum get smaller weights. The standard deviation of a value combines the noise SD of a
run and a fraction of the rise above the minimum (derived here).
"""

from typing import Any, NamedTuple

import numpy as np

from bss.laws.base import BestBatch, Options, bounded, tails

FEWEST = 3  # batches of a minimum
MISFIT = 0.3  # of the rise above the least, by which a parabola may be off
ASYMMETRY = 0.2  # of the curvature, by which it may change over a factor of e (standard deviation)
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
    """[...], where y [..., n] at evenly spaced x [n] is lowest, by a parabola through three."""
    at = y.argmin(axis=-1)
    inner = np.clip(at, 1, len(x) - 2)[..., None] + np.array([-1, 0, 1])
    left, middle, right = np.moveaxis(np.take_along_axis(y, inner, -1), -1, 0)
    bend = left - 2 * middle + right
    shift = np.where(bend > 0, (left - right) / np.maximum(2 * bend, 1e-300), 0.0)
    found = x[inner[..., 1]] + np.clip(shift, -1, 1) * (x[1] - x[0])
    return np.where((at == 0) | (at == len(x) - 1), x[at], found)


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
    level: float = 0.90,
) -> Minimum:
    """The batch of the smallest value, and that value.

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
    own = np.ones(len(batch)) if relative is None else relative
    batches, at = np.unique(batch[known], return_inverse=True)
    sizes = np.log(batches)
    none = BestBatch(None, level=level, method="measured")
    if len(sizes) < FEWEST:
        return Minimum(none.unknown("too_few_batches", f"{len(sizes)} batches measured"))
    labels = np.zeros(len(at)) if seed is None else seed[known]
    means, scatter, freedom = batch_means(at, value[known], own[known], labels, typical)
    variance = scatter**2 / np.bincount(at, own[known] ** -2.0)
    bend, inverse, centre = _bowl(sizes, means, variance)
    x, resamples = sizes - centre, Options().resamples
    generator = np.random.default_rng(0)
    normal = generator.multivariate_normal(np.zeros(4), inverse, resamples)
    wider = np.sqrt(freedom / generator.chisquare(freedom, resamples)) if freedom else 1.0
    draws = np.exp(_vertex(bend + normal * np.reshape(wider, (-1, 1)), x) + centre)
    found = float(np.exp(_vertex(bend[None], x)[0] + centre))
    # A bound above the least says as much of an end as a measurement.
    telling = np.append(sizes, np.log(batch[~known & (value > means.min() + scatter)]))
    ends = float(np.exp(telling.min())), float(np.exp(telling.max()))
    at_best = np.vander([np.clip(np.log(found) - centre, x[0], x[-1])], 4)[0]
    error, value_at = float(np.sqrt(at_best @ inverse @ at_best)), float(at_best @ bend)
    higher = sizes[(means - value_at) / np.hypot(np.sqrt(variance), error) > SURE]
    higher = np.append(higher, telling[len(sizes) :])
    # The least lies between the nearest batches on each side that surely need more.
    low = np.exp(higher[higher < centre].max(initial=-np.inf))
    high = np.exp(higher[higher > centre].min(initial=np.inf))
    draws, inside, found = np.clip(draws, low, high), found, float(np.clip(found, low, high))
    least_of, most_of = np.quantile(draws, tails(level)).tolist()
    # Beyond the end a parabola is no measurement: if the batch at an end has the least value and
    # the next one surely needs more, the end itself is the bound.
    if centre == sizes[0] and high == np.exp(sizes[1]):
        most_of = found = float(batches[0])
    if centre == sizes[-1] and low == np.exp(sizes[-2]):
        least_of = found = float(batches[-1])
    best = BestBatch(found, min(least_of, found), max(most_of, found), level, method="measured")
    if not 0 < low < inside:  # no smaller batch surely needs more, or the bowl says otherwise
        draws[::2] = 0.0
    if not np.isfinite(high):
        draws[1::2] = np.inf
    return Minimum(bounded(best, draws, ends, unit=unit, least=least), value_at, error, scatter)


def _bowl(
    sizes: np.ndarray, means: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Coefficients [4] of the cubic, their covariance, and the log batch about which they are."""
    rise = MISFIT * (means - means.min())
    centre = float(sizes[means.argmin()])
    root = 1 / np.sqrt(variance + rise**2)
    square = np.linalg.lstsq(np.vander(sizes - centre, 3) * root[:, None], means * root)[0][0]
    design = np.vander(sizes - centre, 4)
    precision = (design * root[:, None] ** 2).T @ design
    precision[0, 0] += 1 / max(ASYMMETRY * square, 1e-6) ** 2
    inverse = np.linalg.inv(precision)
    return inverse @ (design * root[:, None] ** 2).T @ means, inverse, centre


def from_others(
    batch: np.ndarray, value: np.ndarray, typical: float, relative: np.ndarray, seed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how far each value [n] is from the bowl through the others, and times the expected.

    If its batch has other runs it is compared with their mean. Both are 0 if there are too few
    others. The arguments are those of `measured_minimum`.
    """
    x, off, times = np.log(batch), np.zeros(len(batch)), np.zeros(len(batch))
    if len(batch) < 2:  # nothing is left to compare with
        return off, times
    for i in range(len(batch)):
        rest = np.arange(len(batch)) != i
        sizes, at = np.unique(x[rest], return_inverse=True)
        own, same = relative[rest], sizes == x[i]
        means, scatter, freedom = batch_means(at, value[rest], own, seed[rest], typical)
        guess, error = np.nan, 0.0
        if freedom > FEWEST + 1 and same.any():
            guess = means[same][0]
        elif not freedom and not same.any() and len(sizes) > FEWEST:
            bend, inverse, centre = _bowl(sizes, means, scatter**2 / np.bincount(at, own**-2.0))
            row = np.vander([x[i] - centre], 4)[0]
            guess = row @ bend
            error = np.hypot(np.sqrt(row @ inverse @ row), MISFIT * (guess - means.min()))
        if np.isfinite(guess):
            off[i] = value[i] - guess
            times[i] = abs(off[i]) / np.hypot(scatter * relative[i], error)
    return off, times


def _vertex(bend: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the minima [R] of cubics [R, 4]; beyond the lower end if a cubic bends down."""
    cube, square, slope = bend[:, 0], bend[:, 1], bend[:, 2]
    root = np.sqrt(np.maximum(square**2 - 3 * cube * slope, 0.0))
    inside = -slope / np.maximum(square + np.where(root > 0, root, square), 1e-12)
    span = np.ptp(x) + 1.0
    low, high = ((bend @ np.vander([end], 4)[0]) for end in (x[0], x[-1]))
    outside = np.where(low < high, x[0] - span, x[-1] + span)
    return np.clip(np.where(square > 0, inside, outside), x[0] - span, x[-1] + span)


def batch_means(
    batch: np.ndarray, value: np.ndarray, relative: np.ndarray, seed: np.ndarray, typical: float
) -> tuple[np.ndarray, float, int]:
    """Means of each batch, the standard deviation of a run, and its degrees of freedom.

    Args:
        batch: [n], integer labels from 0 on.
        value, relative, seed: [n], as of `measured_minimum`.
        typical: what a standard deviation usually is, which counts as one degree of freedom.
    """
    from bss.points.measuring import paired_seeds  # loads pandas, which advice does not need

    of = paired_seeds(batch, seed)
    design = np.concatenate([np.eye(batch.max() + 1)[batch], np.eye(of.max() + 1)[of]], axis=1)
    scaled, weighed = design / relative[:, None], value / relative
    effects = np.linalg.lstsq(scaled, weighed, rcond=None)[0]
    shift = design[:, batch.max() + 1 :].mean(axis=0) @ effects[batch.max() + 1 :]
    freedom = len(value) - int(batch.max()) - 1 - int(of.max())
    squares = float(np.sum((weighed - scaled @ effects) ** 2))
    scatter = np.sqrt((squares + typical**2) / (freedom + 1))
    return effects[: batch.max() + 1] + shift, float(scatter), freedom + 1 if freedom else 0
