"""S(B) = a + b/B^α to one target loss: its fit, its critical batch sizes, their intervals.

McCandlish et al. (arXiv 1812.06162) have α = 1: a is S_min, b is E_min and b/a is B_crit. Zhang et
al. (arXiv 2410.21676) call critical the largest batch whose steps exceed linear scaling from a
reference batch by no more than a fraction r: S(B)·B ≤ (1 + r)·S(B_ref)·B_ref, for α = 1 at most
(1 + r)·B_ref + r·b/a. Fits are in log space with equal weights, as theirs.

With κ = (b/a)^(1/α), log S = const + log(1 + (κ/B)^α). For α = 1 that leaves one shape parameter,
of which every critical batch is an increasing function, so intervals come from its profile
likelihood with the F threshold of n − 2 degrees of freedom: exact in the linear case, wide for few
points, and open on a side where the batches do not bracket the bend. What has no such profile
(α free, the interpolation) takes a parametric bootstrap whose noise variance is itself drawn
(derived here).
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy import optimize, stats

from bss.errors import check
from bss.laws.critical.curves import StepsCurve
from bss.laws.resampling import draw_noise
from bss.laws.solver import Solution, solve

DATA: tuple[str, ...] = ("log_batch", "log_steps", "weight")
REACH = np.log(1e6)
ALPHA_RANGE = (0.25, 4.0)
SMALLEST = "smallest"
# Steps are whole numbers, so that no fit is better than this relative error of a step count.
LEAST_NOISE = 1e-6


class Shapes(NamedTuple):
    """Fits of C curves, or R refits of each: arrays [C] or [C, R].

    Attributes:
        a: steps that no batch can undercut.
        kappa, alpha: where both terms of S are equal, (b/a)^(1/α), B_crit for α = 1; and α.
        noise: residual standard deviation of log S.
        converged: as the fitter has it.
    """

    a: np.ndarray
    kappa: np.ndarray
    alpha: np.ndarray
    noise: np.ndarray
    converged: np.ndarray

    @property
    def b(self) -> np.ndarray:
        """In steps·batch^α; E_min for α = 1."""
        return self.a * self.kappa**self.alpha


def residual(theta, data):
    """log S measured less fitted, weighted; theta is (log S at the centre, log κ, α)."""
    level, log_kappa, alpha = theta

    def bend(log_batch):
        return jnp.logaddexp(0.0, alpha * (log_kappa - log_batch))

    fitted = level + bend(data["log_batch"]) - bend(data["centre"])
    return data["weight"] * (data["log_steps"] - fitted)


def fit_shapes(curves: Sequence[StepsCurve], alpha: float | None = 1.0) -> Shapes:
    """Least squares in log space, equal weights; α held, or fitted where it is None."""
    data, bounds = _problems(curves, alpha)
    solution = solve(residual, _starts(data, bounds), *bounds, data)
    free = 2 + (alpha is None)
    counts = np.array([len(curve.batch) for curve in curves])
    noise = np.sqrt(2 * solution.cost / np.maximum(counts - free, 1))
    return _shapes(solution, data, np.maximum(noise, LEAST_NOISE))


def log_steps(shapes: Shapes, i: int, batch: np.ndarray) -> np.ndarray:
    """log S of curve i at each batch [n]."""
    bend = shapes.alpha[i] * (np.log(shapes.kappa[i]) - np.log(batch))
    return np.log(shapes.a[i]) + np.logaddexp(0.0, bend)


def refit_shapes(
    curves: Sequence[StepsCurve],
    fitted: Shapes,
    alpha: float | None = 1.0,
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[Shapes, list[np.ndarray]]:
    """Parametric bootstrap of all C curves at once, as `fit_shapes` fitted them with the same α.

    Returns:
        The refits [C, R], and per curve the drawn noise of log S [R, n].
    """
    generator = np.random.default_rng(seed)
    data, bounds = _problems(curves, alpha)
    drawn = []
    for curve, noise in zip(curves, fitted.noise, strict=True):
        dof = max(len(curve.batch) - 2 - (alpha is None), 1)
        drawn.append(draw_noise(noise, dof, (resamples, len(curve.batch)), generator))
    repeated = {key: np.repeat(value, resamples, axis=0) for key, value in data.items()}
    for i, (curve, noise) in enumerate(zip(curves, drawn, strict=True)):
        rows = slice(i * resamples, (i + 1) * resamples)
        repeated["log_steps"][rows, : len(curve.batch)] = log_steps(fitted, i, curve.batch) + noise
    log_kappa = np.log(fitted.kappa)
    level = np.log(fitted.a) + np.logaddexp(0.0, fitted.alpha * (log_kappa - data["centre"]))
    starts = np.stack([level, log_kappa, fitted.alpha], axis=1)[:, None]
    starts, lower, upper = (np.repeat(array, resamples, axis=0) for array in (starts, *bounds))
    solution = solve(residual, starts, lower, upper, repeated, iterations=25)
    flat = _shapes(solution, repeated, np.repeat(fitted.noise, resamples))
    return Shapes(*(array.reshape(len(curves), resamples) for array in flat)), drawn


@dataclass(frozen=True)
class CbsDefinition:
    """The largest batch within an overhead of linear scaling from a reference batch.

    Attributes:
        overhead: r, the fraction of steps above linear scaling.
        reference: B_ref: a batch, "smallest" (of each curve) or a share of its b/a as "10%".

    Raises:
        InputError: on construction, if one of them is out of range.
    """

    overhead: float = 0.2
    reference: float | str = 256.0

    def __post_init__(self) -> None:
        expected = "a positive fraction, 0.2 for 20%"
        check(0 < self.overhead < np.inf, "overhead", self.overhead, expected)
        expected = "a batch as 256, smallest, or a share of b/a as 10%"
        check(self._known(), "reference batch", self.reference, expected)

    def _known(self) -> bool:
        if isinstance(self.reference, str):
            return self.reference == SMALLEST or 0 < (self._share or 0) <= 1
        return 0 < self.reference < np.inf

    @classmethod
    def parse(cls, overhead: float, reference: float | str) -> "CbsDefinition":
        """Of a reference that may be a number as text."""
        with contextlib.suppress(ValueError):
            reference = float(reference)
        return cls(overhead, reference)

    @property
    def _share(self) -> float | None:
        text = str(self.reference)
        with contextlib.suppress(ValueError):
            return float(text[:-1]) / 100 if text.endswith("%") else None
        return None

    def __str__(self) -> str:
        name = self.reference if isinstance(self.reference, str) else f"{self.reference:g}"
        return f"{self.overhead:.0%} over {name}" + (" of b/a" if self._share else "")

    def at(self, kappa: np.ndarray | float, smallest: np.ndarray | float) -> np.ndarray:
        """B_ref of curves with these b/a and these smallest batches, in the shape of b/a."""
        kappa = np.asarray(kappa, float)
        if self.reference == SMALLEST:
            return np.broadcast_to(np.asarray(smallest, float), kappa.shape)
        if self._share:
            return self._share * kappa
        return np.full(kappa.shape, float(self.reference))


def critical_batch(kappa, alpha, overhead: float, reference) -> np.ndarray:
    """Largest batch whose steps exceed linear scaling from the reference B_ref by no more than r.

    The closed form for α = 1; else the upper root of B + κ^α·B^(1−α) = (1 + r)·(the same at
    B_ref), by bisection (derived here). κ, α and B_ref broadcast, in one unit of batches.

    Examples:
        >>> float(critical_batch(1000.0, 1.0, 0.2, 100))
        320.0
    """
    arrays = np.broadcast_arrays(*(np.asarray(x, float) for x in (kappa, alpha, reference)))
    kappa, alpha, reference = arrays
    if np.all(alpha == 1.0):
        return (1 + overhead) * reference + overhead * kappa

    def log_sequences(log_batch):
        return log_batch + np.logaddexp(0.0, alpha * (np.log(kappa) - log_batch))

    most = np.log1p(overhead) + log_sequences(np.log(reference))
    low, high = np.log(reference), most
    for _ in range(60):
        middle = (low + high) / 2
        below = log_sequences(middle) <= most
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.exp(low)


def measured_critical_batch(
    batch: np.ndarray, log_steps: np.ndarray, overhead: float, reference: float
) -> np.ndarray:
    """The critical batch without a law: log S interpolated linearly in log B.

    Args:
        batch: [n] ascending.
        log_steps: [..., n].
        overhead: r > 0.
        reference: above which; a batch within those measured.

    Returns:
        [...], the last batch that keeps within the overhead; infinite where the largest does, NaN
        where the reference is not within the batches.
    """
    if not batch[0] <= reference <= batch[-1]:
        return np.full(log_steps.shape[:-1], np.nan)
    log_batch, at = np.log(batch), np.log(reference)
    right = int(np.clip(np.searchsorted(log_batch, at), 1, len(batch) - 1))
    share = (at - log_batch[right - 1]) / (log_batch[right] - log_batch[right - 1])
    sequences = log_steps + log_batch
    start = sequences[..., right - 1] * (1 - share) + sequences[..., right] * share
    after = log_batch > at
    knots = np.concatenate([[at], log_batch[after]])
    excess = np.concatenate([start[..., None], sequences[..., after]], axis=-1)
    excess = excess - start[..., None] - np.log1p(overhead)
    last = len(knots) - 1 - np.argmax(excess[..., ::-1] <= 0, axis=-1)
    following = np.minimum(last + 1, len(knots) - 1)
    low, high = (np.take_along_axis(excess, i[..., None], -1)[..., 0] for i in (last, following))
    part = np.where(following > last, -low / np.where(high > low, high - low, 1.0), 0.0)
    crossing = np.exp(knots[last] + part * (knots[following] - knots[last]))
    return np.where(last == len(knots) - 1, np.inf, crossing)


def profile_interval(
    curve: StepsCurve, level: float = 0.95, alpha: float = 1.0
) -> tuple[float, float]:
    """Ends of the profile-likelihood interval of κ for an α held; 0 and inf where it is open.

    The points whose sum of squares is below the least one times 1 + F(1, n − 2)/(n − 2).
    """
    log_batch, log_S = np.log(curve.batch), np.log(curve.steps)

    def squares(log_kappa: float) -> float:
        rest = log_S - np.logaddexp(0.0, alpha * (log_kappa - log_batch))
        return float(np.sum((rest - rest.mean()) ** 2))

    dof = len(log_batch) - 2
    edges = log_batch[0] - REACH, log_batch[-1] + REACH
    grid = np.linspace(*edges, 400)
    best = int(np.argmin([squares(at) for at in grid]))
    grid = np.linspace(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)], 400)
    inside = min(grid, key=squares)
    least = max(squares(inside), dof * LEAST_NOISE**2)
    limit = least * (1 + float(stats.f.ppf(level, 1, dof)) / dof)
    ends = []
    for edge, opened in zip(edges, (0.0, np.inf), strict=True):
        if squares(edge) <= limit:
            ends.append(opened)
        else:
            root: Any = optimize.brentq(lambda at: squares(at) - limit, inside, edge, xtol=1e-10)
            ends.append(float(np.exp(root)))
    return ends[0], ends[1]


def _problems(curves: Sequence[StepsCurve], alpha: float | None):
    """Padded data of the curves, and the box of their parameters."""
    width = max(len(curve.batch) for curve in curves)
    columns = [(np.log(c.batch), np.log(c.steps), np.ones(len(c.batch))) for c in curves]
    padded = np.array([np.pad(x, ((0, 0), (0, width - len(x[0])))) for x in columns])
    data = dict(zip(DATA, padded.swapaxes(0, 1), strict=True))
    ends = np.array([[np.log(c.batch[0]), np.log(c.batch[-1])] for c in curves])
    data["centre"] = ends.mean(axis=1)
    low, high = ALPHA_RANGE if alpha is None else (alpha, alpha)
    ones = np.ones(len(curves))
    lower = np.stack([-100 * ones, ends[:, 0] - REACH, low * ones], axis=1)
    upper = np.stack([100 * ones, ends[:, 1] + REACH, high * ones], axis=1)
    return data, (lower, upper)


def _starts(data: dict[str, np.ndarray], bounds) -> np.ndarray:
    """[C, K, 3]: the bend at nine places within and beyond the batches."""
    level = np.sum(data["weight"] * data["log_steps"], axis=1) / data["weight"].sum(axis=1)
    lower, upper = bounds
    places = np.linspace(0.3, 0.7, 9)
    log_kappa = lower[:, 1:2] + places * (upper - lower)[:, 1:2]
    alpha = np.clip(1.0, lower[:, 2:], upper[:, 2:])
    return np.stack(np.broadcast_arrays(level[:, None], log_kappa, alpha), axis=-1)


def _shapes(solution: Solution, data: dict[str, np.ndarray], noise: np.ndarray) -> Shapes:
    level, log_kappa, alpha = solution.parameters.T
    log_a = level - np.logaddexp(0.0, alpha * (log_kappa - data["centre"]))
    return Shapes(np.exp(log_a), np.exp(log_kappa), alpha, noise, solution.converged)
