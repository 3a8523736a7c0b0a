"""Where the best batch lies, without a law of it: a lopsided valley through the measured batches.

Losses, or tokens to a target, are c + h·φ(log B/B*), with φ one of some lopsided forms that are
least at B* (derived here). B* and the forms lie on a grid, c and h are integrated out, and what is
left is the probability of every B*: its middle is the best batch, its width the interval, and what
lies beyond the batches measured says that the best one is not among them. A form is trusted to a
part of the rise only, so that far batches do not decide; one batch of each valley may be an
outlier; valleys that scatter alike share their scatter.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import log_ndtr

from bss.points.batch_means import BatchMeans
from bss.points.lopsided import lopsided

ValleyStatus = Literal["identified", "end", "flat"]

SLOPES = (0.15, 0.27, 0.48, 0.85, 1.5, 2.7)
RATIOS = (1 / 3, 1 / 1.7, 1.0, 1.7, 3.0)
WIDTHS = (0.5, 2.0, 8.0)
STEPS_AT_MOST = 1.0  # no batch needs more steps than a smaller one, so that tokens rise as B^1
BEYOND = math.log(10.0)  # how far from the batches measured a best one is looked for
GRID = 161
MISFIT = 0.1  # of the rise above the least, by which a valley's form may be wrong
FAR_TOKENS, FAR_NATS = 1.5, 0.5  # rises from which it may be wrong by more
WALL = 3.0  # rise of tokens, over the least, beyond which no form is asked to follow
FORM = 0.06  # by which the least of a valley of another form may be off, in log batch
FORM_OF_TOKENS = 0.02  # whose walls are known better
OUTLIERS = 0.003  # of rows
OUTLYING = 12.0  # times the scatter
SCATTERS = np.geomspace(1 / 30, 30, 21)  # times the typical one
SPREAD = 0.7  # of the logarithm of tokens' scatter before anything is seen
FEWEST = 3  # batches of a valley
FEWEST_TO_DOUBT = 5  # batches of which one may be an outlier
USUAL = "what is usual"
OPEN = 0.03  # probability beyond an end from which that end is open


@dataclass(frozen=True)
class Valley:
    """What the batches say of the best one.

    Attributes:
        log_batch, weight: [G], the grid of log B* and the probability of each.
        ends: the smallest and the largest batch measured.
        least: the batch measured with the least mean value.
        value: the least of the valley among the batches measured.
        depth: the valley's rise from its least to the lower of its two ends, as `value`.
        scatter: standard deviation of one value about the valley, near its least.
        source: of the scatter: "seeds", "residuals", or "what is usual" with too few of both.
        curve: [G], mean height of the valley above its own least, as `value`.
        outlier: [n], probability that a row is one.
        missed: [n], value less what the valley through the others says; NaN of a bound.
        level: of the interval.
    """

    log_batch: np.ndarray
    weight: np.ndarray
    ends: tuple[float, float]
    least: float
    value: float
    depth: float
    scatter: float
    source: str
    curve: np.ndarray
    outlier: np.ndarray
    missed: np.ndarray
    level: float

    def quantile(self, share: float) -> float:
        """The batch below which so much of the probability lies."""
        total = np.cumsum(self.weight)
        return float(np.exp(np.interp(share, total - self.weight / 2, self.log_batch)))

    @property
    def batch(self) -> float:
        """The best batch: its median."""
        return self.quantile(0.5)

    @property
    def interval(self) -> tuple[float, float]:
        """Its interval."""
        return self.quantile((1 - self.level) / 2), self.quantile((1 + self.level) / 2)

    @property
    def below(self) -> float:
        """Probability that it lies below the smallest batch measured."""
        return float(self.weight[self.log_batch <= math.log(self.ends[0]) + 1e-9].sum())

    @property
    def above(self) -> float:
        """Probability that it lies above the largest."""
        return float(self.weight[self.log_batch >= math.log(self.ends[1]) - 1e-9].sum())

    @property
    def status(self) -> ValleyStatus:
        """Whether it lies inside, at an end, or anywhere."""
        low = self.below > OPEN or self.least == self.ends[0]
        high = self.above > OPEN or self.least == self.ends[1]
        if self.depth < self.scatter or (low and high):
            return "end" if low != high and max(self.below, self.above) > 0.5 else "flat"
        return "end" if low or high else "identified"

    @property
    def spread(self) -> float:
        """Standard deviation of the best batch's logarithm."""
        mean = self.weight @ self.log_batch
        return float(np.sqrt(self.weight @ (self.log_batch - mean) ** 2))

    def alike(self, rise: float) -> tuple[float, float]:
        """The batches whose value is no more than this above the least, on the grid searched."""
        near = np.exp(self.log_batch[self.curve <= rise])
        return float(near[0]), float(near[-1])


def valleys(
    cells: Sequence[BatchMeans], level: float = 0.90, spread: float = SPREAD
) -> list[Valley]:
    """The valley of each cell; cells share their scatter, in units of what is typical of each.

    Args:
        cells: each with `FEWEST` distinct batches or more that were measured.
        level: of the intervals.
        spread: of the logarithm of a scatter about the typical one before anything is seen.
    """
    grids = [_Cell(cell) for cell in cells]
    prior = -0.5 * (np.log(SCATTERS) / spread) ** 2
    # Every cell is judged by the scatter that all of them show.
    total = prior + np.sum([cell.evidence for cell in grids], axis=0)
    shared = np.exp(total - total.max())
    shared /= shared.sum()
    return [cell.valley(shared, level) for cell in grids]


def heights(x: np.ndarray, tokens: bool = False) -> np.ndarray:
    """φ [G, forms, n] of every form, at logarithms of B/B* [G, n]; 0 and least at 0.

    Those of `lopsided`, and parabolas whose curvature is another on
    each side and that straighten far out, x²/(1 + |x|/w).
    """
    upward = sorted({min(u, STEPS_AT_MOST) for u in SLOPES} if tokens else SLOPES)
    u, v = np.array(list(itertools.product(upward, SLOPES))).T[..., None]
    ratio, width = np.array(list(itertools.product(RATIOS, WIDTHS))).T[..., None]
    at = np.clip(x, -20.0, 20.0)[:, None]
    curved = lopsided(at, u, v)
    bent = np.where(at > 0, ratio, 1 / ratio) * at**2 / (1 + np.abs(at) / width)
    return np.concatenate([curved, bent], axis=1)


class _Cell:
    """One cell on the grid: log probabilities [scatter, outlier or none, B*·u·v]."""

    def __init__(self, cell: BatchMeans) -> None:
        known = ~cell.bound
        self.x, self.unit = np.log(cell.batch), float(cell.value[known].min())
        self.z = np.exp(cell.value - self.unit) if cell.tokens else cell.value - self.unit
        if cell.tokens:  # of a wall as high only that it is, as of a run that missed the target
            most = max(1 + WALL, float(np.sort(self.z[known])[FEWEST - 1]))
            cell = replace(cell, bound=cell.bound | (self.z > most))
            self.z, known = np.minimum(self.z, most), ~cell.bound
        self.cell, self.known = cell, known
        self.grid = np.linspace(self.x[known].min() - BEYOND, self.x[known].max() + BEYOND, GRID)
        offset = self.x - self.grid[:, None]
        self.phi = heights(offset, cell.tokens).reshape(-1, len(self.x))
        self.own = cell.typical * cell.relative * (self.z if cell.tokens else 1.0)
        self.own = self.own / np.sqrt(cell.count)
        above = np.maximum(self.z - self.z[known].min(), 0)
        self.rise = MISFIT * above * (1 + above / (FAR_TOKENS if cell.tokens else FAR_NATS))
        self.log, self.fits = self._weighed()
        most = self.log.max(axis=(1, 2), keepdims=True)
        self.log -= most
        total = np.exp(self.log).sum(axis=(1, 2), keepdims=True)
        self.log -= np.log(total)
        self.evidence = (most + np.log(total / len(self.phi))).ravel()

    def _weighed(self) -> tuple[np.ndarray, np.ndarray]:
        cell, known = self.cell, self.known
        z, phi, own, rise = self.z[known], self.phi[:, known], self.own[known], self.rise[known]
        # One of few batches is told from the others by no one.
        doubts = OUTLIERS ** cell.count[known] if len(z) >= FEWEST_TO_DOUBT else np.zeros(0)
        prior = np.log(np.append(1 - doubts.sum(), doubts))
        # Flat in the height between the ends, so that a deeper valley is not likelier.
        height = np.log(np.maximum(np.ptp(phi, axis=1), 1e-12))
        log = np.empty((len(SCATTERS), len(prior), len(phi)))
        fits = np.empty((len(SCATTERS), len(prior), len(phi), 2), np.float32)
        for s, scatter in enumerate(SCATTERS):
            size = scatter * cell.typical
            repeated = -cell.freedom * math.log(size) - 0.5 * cell.squares / size**2
            variance = np.tile((scatter * own) ** 2 + rise**2, (len(prior), 1))
            if len(doubts):
                variance[1:] += np.diag((OUTLYING * scatter * own) ** 2)
            logs, c, h = _integrated(variance, z, phi)
            log[s] = logs + height + prior[:, None] + repeated + self._bounds(scatter, c, h)
            fits[s, ..., 0], fits[s, ..., 1] = c, h
        return log, fits

    def _bounds(self, scatter: float, c: np.ndarray, h: np.ndarray) -> np.ndarray:
        """Log probability that runs which missed the target would have needed more."""
        logs = np.zeros(c.shape)
        for i in np.flatnonzero(self.cell.bound):
            sd = math.hypot(scatter * self.own[i], self.rise[i])
            logs += log_ndtr((c + np.maximum(h, 0) * self.phi[:, i] - self.z[i]) / sd)
        return logs

    def valley(self, shared: np.ndarray, level: float) -> Valley:
        """The valley, where the scatter has these probabilities [scatter]."""
        weight = np.exp(self.log) * shared[:, None, None]
        cell, batch = self.cell, self.cell.batch
        form = FORM_OF_TOKENS if cell.tokens else FORM
        by_batch = _blurred(weight.sum(axis=(0, 1)).reshape(GRID, -1).sum(axis=1), self.grid, form)
        outlier = np.zeros(len(self.x))
        if weight.shape[1] > 1:
            outlier[self.known] = weight.sum(axis=(0, 2))[1:]
        heights = self._heights(weight)
        curve, at_rows = heights[:GRID], heights[GRID:]
        scatter = float(np.exp(shared @ np.log(SCATTERS))) * self.cell.typical
        # A bound above the least says as much of an end as a measurement.
        telling = batch[self.known | (cell.value > self.unit + scatter)]
        ends = float(telling.min()), float(telling.max())
        inside = np.interp(np.log(ends), self.grid, curve)
        within = (self.grid >= np.log(ends[0]) - 0.05) & (self.grid <= np.log(ends[1]) + 0.05)
        return Valley(
            log_batch=self.grid,
            weight=by_batch,
            ends=ends,
            least=float(batch[self.known][np.argmin(cell.value[self.known])]),
            value=float(curve[within].min()) + self.unit,
            depth=float(inside.min() - curve.min()),
            scatter=scatter,
            source=self._source(),
            curve=curve - curve.min(),
            outlier=outlier,
            missed=np.where(self.known, cell.value - self.unit - at_rows, np.nan),
            level=level,
        )

    def _source(self) -> str:
        if self.cell.freedom:
            return "seeds"
        return "residuals" if self.known.sum() >= FEWEST_TO_DOUBT else USUAL

    def _heights(self, weight: np.ndarray) -> np.ndarray:
        """The mean valley [G + n] on the grid and at the batches, less the unit."""
        by_theta = weight.reshape(-1, weight.shape[-1])
        flat = self.fits.reshape(*by_theta.shape, 2)
        best = np.argsort(by_theta.sum(axis=0))[::-1][:400]
        share = by_theta[:, best]
        total = share.sum()
        c = (share * flat[:, best, 0]).sum(axis=0) / share.sum(axis=0)
        h = np.maximum((share * flat[:, best, 1]).sum(axis=0) / share.sum(axis=0), 0)
        part = share.sum(axis=0) / total
        star, form = np.divmod(best[:, None], len(self.phi) // GRID)
        apart = self.grid - self.grid[0]
        apart = np.concatenate([-apart[:0:-1], apart])[None]
        on_grid = heights(apart, self.cell.tokens)[0, form, GRID - 1 - star + np.arange(GRID)]
        phi = np.concatenate([on_grid, self.phi[best]], axis=1)
        values = c[:, None] + h[:, None] * phi
        if self.cell.tokens:
            values = np.log(np.maximum(values, 1e-3))
        return part @ values


def _blurred(weight: np.ndarray, grid: np.ndarray, form: float) -> np.ndarray:
    """Probabilities [G] of a batch that may be off by so much."""
    kernel = np.exp(-0.5 * (np.subtract.outer(grid, grid) / form) ** 2)
    return kernel @ weight / (kernel @ weight).sum()


def _integrated(
    variance: np.ndarray, z: np.ndarray, phi: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log probability [J, T] of values [k] of variances [J, k] under φ [T, k], over c and h > 0.

    Both also as fitted, [J, T].
    """
    weight, phi = 1 / variance, phi.T
    whole = weight.sum(axis=1, keepdims=True)
    mean = (weight @ z)[:, None] / whole
    value, level = z - mean, weight @ phi / whole
    across = (weight * value) @ phi
    squares = np.maximum(weight @ phi**2 - level**2 * whole, 1e-300)
    h = across / squares
    rest = np.maximum((weight * value**2).sum(axis=1, keepdims=True) - h * across, 0)
    logs = -0.5 * rest - 0.5 * np.log(squares) + log_ndtr(h * np.sqrt(squares))
    logs -= 0.5 * (np.log(variance).sum(axis=1, keepdims=True) + np.log(whole))
    return logs, mean - h * level, h
