"""Critical batch sizes of many curves and their exponents in N and D, refitted to resampled runs.

A run of one batch size and LR gives the log tokens to the target of every budget, with every weight
average. These numbers share the errors of the run. A run's deviations are its numbers minus their
mean over seeds. A resample replaces them by the deviations of a random run of the same batch size,
of any model and LR. The method is derived here; tests/experiments/test_critical_batch.py tests its
coverage on planted grids.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import norm

from bss.laws.critical.shape import CbsDefinition, fit_log_steps
from bss.laws.minimum import FEWEST
from bss.stats import LEVEL

CELL = ["size", "params", "seq_len"]
LEAST_DONORS = 4
OVERHEAD = 0.2


@dataclass(frozen=True)
class Estimated:
    """A number with its standard error."""

    value: float
    error: float

    def ends(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the ends of the interval at a level."""
        reach = float(norm.ppf((1 + level) / 2)) * self.error
        return self.value - reach, self.value + reach

    @property
    def p(self) -> float:
        """Two-sided p value of no effect."""
        return float(2 * norm.sf(abs(self.value) / self.error)) if self.error else float("nan")


def estimated(draws: ArrayLike) -> Estimated:
    """Return the first value, with the standard error of the others; quantiles resist strays."""
    values = np.asarray(draws, float)
    low, high = np.nanquantile(values[1:], [0.16, 0.84])
    return Estimated(float(values[0]), float(high - low) / 2)


@dataclass(frozen=True)
class Cell:
    """Log tokens to the targets of one model and sequence length.

    Attributes:
        size, params, seq_len: The model and its sequences.
        batches: Batch sizes in tokens, ascending.
        budgets: D in tokens, ascending.
        logs: By batch size, log tokens [LR, average, seed, D]; NaN if a target was missed.
    """

    size: str
    params: float
    seq_len: int
    batches: tuple[int, ...]
    budgets: tuple[int, ...]
    logs: tuple[np.ndarray, ...]


def cells_of(points: pd.DataFrame) -> list[Cell]:
    """Return the cells of a table of points with the columns of `analysis.measured`."""
    logs = np.log(points["tokens_to_target"]).where(points["reached"])
    table = points.assign(log_tokens=logs, tokens=points["batch"] * points["seq_len"])
    axes = ["peak_lr", "average", "seed", "budget_tokens"]
    found = []
    for (size, params, seq_len), some in table.groupby(CELL, sort=False):  # type: ignore[misc]
        arrays = {}
        for batch, here in some.groupby("tokens"):
            levels = [sorted(here[axis].unique()) for axis in axes]
            wide = here.set_index(axes)["log_tokens"]
            wide = wide.reindex(pd.MultiIndex.from_product(levels))
            arrays[round(float(str(batch)))] = wide.to_numpy(float).reshape(
                [len(x) for x in levels]
            )
        budgets = tuple(sorted(int(d) for d in some["budget_tokens"].unique()))
        at = (str(size), float(params), int(seq_len), (*arrays,), budgets, (*arrays.values(),))
        found.append(Cell(*at))
    return found


def resampled(cells: Sequence[Cell], resamples: int, seed: int = 0) -> list[np.ndarray]:
    """Return per cell the minimum of log tokens over settings [1 + R, batch, D]; first as measured.

    A setting counts if all its seeds reached the target. Without one the value is NaN.
    """
    generator, donors = np.random.default_rng(seed), deviations(cells)
    found = []
    for cell in cells:
        columns = []
        for batch, logs in zip(cell.batches, cell.logs, strict=True):
            mean, seeds = logs.mean(axis=2), logs.shape[2]
            drawn = np.zeros((1 + resamples, *mean.shape))
            pool = donors[batch, mean.shape[2]]
            if len(pool):
                which = generator.integers(len(pool), size=(resamples, len(logs), seeds))
                drawn[1:] = pool[which].mean(axis=2)
            values = np.where(np.isnan(mean), np.inf, mean + drawn).min(axis=(1, 2))
            columns.append(np.where(np.isinf(values), np.nan, values))
        found.append(np.stack(columns, axis=1))
    return found


def deviations(cells: Sequence[Cell]) -> dict[tuple[int, int], np.ndarray]:
    """Return the deviations of runs from their seeds' mean [run, average, D].

    They are scaled to the variance of one run. Runs that missed a target have none; a batch size
    with fewer than LEAST_DONORS has those of all batch sizes.

    Returns:
        By batch size and number of budgets, the smallest first.
    """
    runs: list[tuple[int, np.ndarray]] = []
    for cell in cells:
        for batch, logs in zip(cell.batches, cell.logs, strict=True):
            seeds = logs.shape[2]
            apart = (logs - logs.mean(axis=2, keepdims=True)) * np.sqrt(seeds / max(seeds - 1, 1))
            runs += [(batch, run) for lr in apart for run in np.moveaxis(lr, 1, 0)]
    found = {}
    for count in {len(cell.budgets) for cell in cells}:
        whole = [(b, run[:, :count]) for b, run in runs if np.isfinite(run[:, :count]).all()]
        whole = [(b, run) for b, run in whole if run.shape[1] == count]
        for batch in {batch for cell in cells for batch in cell.batches}:
            own = [run for b, run in whole if b == batch]
            found[batch, count] = np.array(
                own if len(own) >= LEAST_DONORS else [run for _, run in whole]
            )
    return found


def critical(cell: Cell, tokens: np.ndarray, smallest: int = 0) -> dict[str, np.ndarray]:
    """Return the critical batch size and b/a of a cell in tokens, by quantity [1 + R, D].

    Args:
        cell: The cell.
        tokens: Log tokens [1 + R, batch, D].
        smallest: Smallest batch size that counts, in tokens; the reference.
    """
    log_batch, columns = np.log(cell.batches), []
    for k in range(len(cell.budgets)):
        known = np.isfinite(tokens[0, :, k]) & (np.asarray(cell.batches) >= smallest)
        if known.sum() < FEWEST:
            columns.append(np.full(len(tokens), np.nan))
            continue
        steps = tokens[:, known, k] - log_batch[known]
        columns.append(fit_log_steps(log_batch[known], steps)[1])
    bend = np.stack(columns, axis=1)
    definition = CbsDefinition(OVERHEAD, "smallest")
    return {"cbs": definition.by_law(bend, max(cell.batches[0], smallest)), "b/a": bend}


@dataclass(frozen=True)
class Exponents:
    """Exponents p of N and q of D in a law of critical batch sizes over curves.

    Attributes:
        draws: log c, p, q [1 + R, 3].
        inverse: (XᵀX)⁻¹ of the design.
        spread: Residual standard deviation of log batch about the law.
        curves: Fitted curves.
    """

    draws: np.ndarray
    inverse: np.ndarray
    spread: float
    curves: int

    def of(self, n: float, d: float, less: float = 0.0) -> Estimated:
        """Return n·p + d·q − less; its error is the larger one of refits and residuals."""
        weights = np.array([0.0, n, d])
        found = estimated(self.draws @ weights - less)
        residual = self.spread * float(np.sqrt(weights @ self.inverse @ weights))
        return Estimated(found.value, max(found.error, residual))


def exponents(cells: Sequence[Cell], values: Sequence[np.ndarray]) -> Exponents:
    """Fit log batch = log c + p log N + q log D to all curves, [1 + R, D] per cell."""
    logs = np.concatenate([np.log(value) for value in values], axis=1)
    rows = [(1.0, np.log(cell.params), np.log(d)) for cell in cells for d in cell.budgets]
    known = np.isfinite(logs).all(axis=0)
    X, y = np.array(rows)[known], logs[:, known]
    inverse = np.linalg.inv(X.T @ X)
    draws = y @ X @ inverse
    rest = y[0] - X @ draws[0]
    spread = float(np.sqrt(rest @ rest / max(len(X) - X.shape[1], 1)))
    return Exponents(draws, inverse, spread, len(X))


def exponents_table(fits: Mapping[str, Exponents]) -> pd.DataFrame:
    """Return the exponents by quantity, with 95% intervals."""
    names = {"N": (1, 0), "D": (0, 1), "D - N": (-1, 1), "N + D": (1, 1)}
    rows = []
    for quantity, fit in fits.items():
        for name, weights in names.items():
            one = fit.of(*weights)
            low, high = one.ends()
            row = {"quantity": quantity, "exponent": name, "value": one.value, "low": low}
            rows.append(row | {"high": high, "error": one.error, "curves": fit.curves})
    return pd.DataFrame(rows)
