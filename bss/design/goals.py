"""What a design narrows: B_opt, a loss or an exponent, as linear functionals of the surface.

Where the expected loss f is least in (log B, log rate), a change δf of the surface moves the best
batch by -[H⁻¹ ∇δf]_B, with H the Hessian of f (implicit function theorem), and the least loss by
δf itself (envelope theorem); an exponent is the difference of two best batches. Derivatives are
central differences on a grid of steps of √2. The functional is taken at three places, so that it
holds where the optimum may lie and not only where it is thought to: at the optimum and √3 of its
standard deviations to both sides (Gauss and Hermite; derived here).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from bss.errors import InputError, check
from bss.units import parse_tokens, rounded_tokens

STEP = np.log(2) / 2
FARTHER = 4.0  # times outside the batches measured, up to which a best one is looked for
MARGIN = round(np.log(FARTHER) / STEP)  # points of the grid outside the batches measured
FLAT = 0.008  # nats per log²: the least curvature of a valley, half of the published
PLACES, SHARES = np.sqrt(3.0) * np.array([0, -1, 1]), np.array([4, 1, 1]) / 6
DIFFERENCE = np.array([-1, 0, 1]) / (2 * STEP)
WRITE = "B_opt, B_opt:N,D, loss:N,D, exponent, exponent:N or exponent:D, as B_opt:350M,10B"


class Space(NamedTuple):
    """What was measured: batches in tokens, and rates where they vary, from least to largest."""

    batches: tuple[float, float]
    rates: tuple[float, float] | None


class Runs(NamedTuple):
    """Points of (N, D, B in tokens, rate), [m] each; no rates where none vary."""

    params: np.ndarray
    tokens: np.ndarray
    batch_tokens: np.ndarray
    lr: np.ndarray | None

    def at(self, rows: np.ndarray | slice) -> "Runs":
        """Some of them."""
        lr = None if self.lr is None else self.lr[rows]
        return Runs(self.params[rows], self.tokens[rows], self.batch_tokens[rows], lr)


@dataclass(frozen=True)
class Goal:
    """What is to be known.

    Attributes:
        name: of what.
        cells: the (N, D) that it is of; an exponent is from the first to the second.
        over: the logarithm of what an exponent is over, between its cells.
        text: as it was asked, with its (N, D).
    """

    name: Literal["B_opt", "loss", "exponent"]
    cells: tuple[tuple[float, float], ...]
    over: float = 1.0
    text: str = ""

    @classmethod
    def parse(cls, text: str, measured: np.ndarray) -> "Goal":
        """A goal as it is written, of a fit whose (N, D) are [n, 2].

        Raises:
            InputError: it is written otherwise, or is of a size that does not vary.
        """
        name, _, where = text.partition(":")
        if name == "exponent":
            return cls._exponent(text, where, measured)
        if name not in ("B_opt", "loss") or (name == "loss" and not where):
            raise InputError(f"--goal {text}: no goal; write {WRITE}")
        if where:
            sizes = where.split(",")
            check(len(sizes) == 2, "--goal", text, f"N,D behind it: {WRITE}")
            N, D = (float(parse_tokens(size, field="--goal")) for size in sizes)
            check(N > 0 and D > 0, "--goal", text, "sizes above 0")
        else:
            N, D = measured[np.argmax(measured.prod(axis=1))]
        at = " and ".join(rounded_tokens(x, 4) for x in (N, D))
        return cls(name, ((float(N), float(D)),), text=f"{name} at {at} tokens")

    @classmethod
    def _exponent(cls, text: str, of: str, measured: np.ndarray) -> "Goal":
        """Of B_opt in D or N, the other size in the middle of those measured."""
        check(of in ("", "N", "D"), "--goal", text, WRITE)
        low, high = measured.min(axis=0), measured.max(axis=0)
        i = 0 if of == "N" or (not of and high[1] < 1.05 * low[1]) else 1
        if high[i] < 1.05 * low[i]:
            raise InputError(f"--goal {text}: the fit has one {'ND'[i]}; give B_opt or loss:N,D")
        middle = np.sqrt(low * high)
        ends = [tuple(np.where(np.arange(2) == i, end, middle).tolist()) for end in (low, high)]
        over = float(np.log(high[i] / low[i]))
        return cls("exponent", tuple(ends), over, f"exponent of B_opt in {'ND'[i]}")

    def grid(self, space: Space) -> tuple[Runs, tuple[int, int]]:
        """The points by which the optimum is found, cell by cell, and the grid's shape."""
        low, high = np.log(space.batches)
        batches = _steps(low - np.log(FARTHER), high + np.log(FARTHER))
        slow, fast = np.log(space.rates or (1.0, 1.0))
        rates = None if space.rates is None else _steps(slow - 2 * STEP, fast + STEP)
        shape = len(batches), 1 if rates is None else len(rates)
        points = shape[0] * shape[1]
        N, D = (np.repeat(size, points) for size in zip(*self.cells, strict=True))
        b, lr = np.meshgrid(batches, [0.0] if rates is None else rates, indexing="ij")
        every = len(self.cells)
        lr = None if rates is None else np.tile(np.exp(lr.ravel()), every)
        return Runs(N, D, np.tile(np.exp(b.ravel()), every), lr), shape

    def linear(
        self, batches: np.ndarray, mean: np.ndarray, covariance: np.ndarray, shape: tuple[int, int]
    ) -> tuple[float, np.ndarray]:
        """The goal, and its functionals at the places [R, G]; of batches the logarithm.

        Args:
            batches: [G] of the grid, in tokens.
            mean, covariance: [G], [G, G] of the grid in nats.
            shape: of the grid of one cell.
        """
        points, value, rows = shape[0] * shape[1], 0.0, []
        for i, sign in enumerate((-1, 1) if self.name == "exponent" else (1,)):
            part = slice(i * points, (i + 1) * points)
            low = float(np.log(batches[part][0]))
            valley = _Valley.of(mean[part].reshape(shape), low)
            at, moved = valley.rows(covariance[part, part], loss=self.name == "loss")
            value += sign * at / self.over
            rows.append(sign * moved / self.over)
        return value, np.concatenate(rows, axis=1)


def _steps(low: float, high: float) -> np.ndarray:
    return low + STEP * np.arange(max(int(np.ceil((high - low) / STEP)), 4) + 1)


class _Valley(NamedTuple):
    """A surface of one cell [batches, rates], its least point inside, and its Hessian there."""

    mean: np.ndarray
    low: float
    least: tuple[int, int]
    hessian: np.ndarray

    @classmethod
    def of(cls, mean: np.ndarray, low: float) -> "_Valley":
        """Found on the grid; a curvature below `FLAT` counts as that."""
        i = int(np.clip(mean.min(axis=1).argmin(), 1, len(mean) - 2))
        j = _best_rate(mean, i)
        f = mean[i - 1 : i + 2, max(j - 1, 0) : j + 2]
        if f.shape[1] == 1:
            bends = np.array([[f[0, 0] - 2 * f[1, 0] + f[2, 0]]])
        else:
            across = (f[2, 2] - f[2, 0] - f[0, 2] + f[0, 0]) / 4
            ends = [f[0, 1] - 2 * f[1, 1] + f[2, 1], f[1, 0] - 2 * f[1, 1] + f[1, 2]]
            bends = np.array([[ends[0], across], [across, ends[1]]])
        sizes, axes = np.linalg.eigh(bends / STEP**2)
        return cls(mean, low, (i, j), (axes * np.maximum(sizes, FLAT)) @ axes.T)

    def rows(self, covariance: np.ndarray, *, loss: bool) -> tuple[float, np.ndarray]:
        """log B_opt, or the least loss, and the functionals [R, points] at all places."""
        i, _ = self.least
        first, downhill = self._moved(i), self.mean.ravel()
        shift = float(np.clip(first @ downhill, -STEP, STEP))
        spread = float(np.sqrt(max(first @ covariance @ first, 0.0)))
        indices = np.round(i + PLACES * spread / STEP).astype(int)
        inside = np.clip(indices, min(MARGIN, i), max(len(self.mean) - 1 - MARGIN, i)).tolist()
        if loss:
            at = [np.ravel_multi_index((k, _best_rate(self.mean, k)), self.mean.shape)
                  for k in inside]  # fmt: skip
            return float(downhill.min()), np.eye(len(downhill))[at]
        return self.low + STEP * i + shift, np.array([self._moved(k) for k in inside])

    def _moved(self, i: int) -> np.ndarray:
        """[points], by which a change of the surface moves the best batch if it is the i-th."""
        j, count = _best_rate(self.mean, i), len(self.hessian)
        slopes = np.zeros((count, *self.mean.shape))
        slopes[0, i - 1 : i + 2, j] = DIFFERENCE
        if count == 2:
            slopes[1, i, j - 1 : j + 2] = DIFFERENCE
        return -np.linalg.solve(self.hessian, slopes.reshape(count, -1))[0]


def _best_rate(mean: np.ndarray, i: int) -> int:
    """The best rate of the i-th batch that has one on both sides."""
    last = mean.shape[1] - 1
    return int(np.clip(mean[i].argmin(), min(1, last), max(last - 1, 0)))
