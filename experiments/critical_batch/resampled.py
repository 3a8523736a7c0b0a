"""Critical batch sizes of many curves, measured and from resampled runs.

A run of one batch size and LR gives the log tokens to the target of every budget, with every weight
average. These numbers share the errors of the run, and runs of one seed share an effect over batch
sizes. A resample draws two parts. For each seed of a model it draws the effect of a random seed of
a random model at all batch sizes together. For each run it draws the remainder of a random run of
the same batch size (derived here).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bss.laws.critical.law import CbsDefinition, fit_log_steps
from bss.laws.minimum import FEWEST
from bss.stats import Effect
from experiments.critical_batch.cells import Cell

RESAMPLES = 1000
LEAST_DONORS = 4
OVERHEAD = 0.2


def estimated(draws: ArrayLike, freedom: int, seeds: int) -> Effect:
    """Return the first value, with the standard error of the others; quantiles resist strays.

    Args:
        draws: The estimate, then the estimates of the resamples.
        freedom: Seeds less models that gave the deviations.
        seeds: Seeds of each model.
    """
    values = np.asarray(draws, float)
    low, high = np.nanquantile(values[1:], [0.16, 0.84])
    error = float(high - low) / 2
    test = f"resampled seeds, t with {freedom} degrees of freedom"
    return Effect(value=float(values[0]), error=error, freedom=freedom, seeds=seeds, test=test)


def resampled(
    cells: Sequence[Cell], resamples: int, seed: int = 0, donors: Sequence[Cell] = ()
) -> list[np.ndarray]:
    """Return per cell the minimum of log tokens over settings [1 + R, batch, D]; first as measured.

    A setting counts if all its seeds reached the target. Without one the value is NaN.

    Args:
        cells: The cells.
        resamples: Their number R.
        seed: Of the random numbers.
        donors: Cells whose seeds' effects are drawn; by default the cells themselves.
    """
    generator = np.random.default_rng(seed)
    pools = deviations(cells)
    effects = seed_effects(donors or cells)
    found = []
    for cell in cells:
        shifts = _drawn_effects(cell, effects, resamples, generator)
        columns = []
        for i, (batch, logs) in enumerate(zip(cell.batches, cell.logs, strict=True)):
            mean = logs.mean(axis=2)
            drawn = np.zeros((1 + resamples, *mean.shape))
            pool = pools[batch, mean.shape[2]]
            if len(pool):
                shape = (resamples, len(logs), logs.shape[2])
                drawn[1:] = pool[generator.integers(len(pool), size=shape)].mean(axis=2)
            drawn[1:] += shifts[:, None, i]
            values = np.where(np.isnan(mean), np.inf, mean + drawn).min(axis=(1, 2))
            columns.append(np.where(np.isinf(values), np.nan, values))
        found.append(np.stack(columns, axis=1))
    return found


@dataclass(frozen=True)
class SeedEffect:
    """By how much one seed of a model differs from the mean over seeds, as one seed varies.

    Attributes:
        log_batch: Log batch sizes in tokens [batch].
        budgets: D in tokens [D].
        apart: Log tokens [batch, average, D].
    """

    log_batch: np.ndarray
    budgets: np.ndarray
    apart: np.ndarray

    def at(self, cell: Cell) -> np.ndarray:
        """Return the effect at the batch sizes, averages and budgets of a cell."""
        nearest = np.abs(self.budgets[:, None] - np.asarray(cell.budgets)).argmin(axis=0)
        averages = cell.logs[0].shape[1]
        apart = self.apart[:, :, nearest]
        if apart.shape[1] != averages:
            apart = np.repeat(apart.mean(axis=1, keepdims=True), averages, axis=1)
        flat = apart.reshape(len(apart), -1)
        wanted = np.log(cell.batches)
        columns = [np.interp(wanted, self.log_batch, column) for column in flat.T]
        return np.stack(columns, axis=1).reshape(len(wanted), averages, len(nearest))


def seed_effects(cells: Sequence[Cell]) -> list[SeedEffect]:
    """Return the effects of all seeds of cells: deviations from the mean, averaged over LRs.

    They are scaled to the variance of one seed. A run that missed a target takes the mean of the
    others at its batch size.
    """
    found = []
    for cell in cells:
        by_batch = []
        for logs in cell.logs:
            seeds = logs.shape[2]
            scale = np.sqrt(seeds / max(seeds - 1, 1))
            apart = (logs - logs.mean(axis=2, keepdims=True)) * scale
            by_batch.append(_mean_of_known(apart, axis=0))  # [average, seed, D]
        stacked = np.stack(by_batch)
        rest = _mean_of_known(stacked, axis=(1, 3))[:, None, :, None]
        filled = np.where(np.isnan(stacked), rest, stacked)
        known = np.isfinite(filled).all(axis=(1, 2, 3))
        if known.sum() > 1 and filled.shape[2] > 1:
            log_batch = np.log(np.asarray(cell.batches, float)[known])
            for effect in np.moveaxis(filled[known], 2, 0):
                found.append(SeedEffect(log_batch, np.asarray(cell.budgets), effect))
    return found


def _mean_of_known(values: np.ndarray, axis: int | tuple[int, ...]) -> np.ndarray:
    """Return the mean of finite values along axes; NaN without one."""
    known = np.isfinite(values)
    count = known.sum(axis=axis)
    total = np.where(known, values, 0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _drawn_effects(
    cell: Cell, effects: Sequence[SeedEffect], resamples: int, generator: np.random.Generator
) -> np.ndarray:
    """Return the mean effect of as many drawn seeds as a cell has, [R, batch, average, D]."""
    shape = (len(cell.batches), cell.logs[0].shape[1], len(cell.budgets))
    if not effects:
        return np.zeros((resamples, *shape))
    pool = np.stack([one.at(cell) for one in effects])
    which = generator.integers(len(pool), size=(resamples, cell.logs[0].shape[2]))
    return pool[which].mean(axis=1)


def freedom_of(cells: Sequence[Cell]) -> int:
    """Return the degrees of freedom of the seeds' effects: seeds less models."""
    return sum(cell.logs[0].shape[2] - 1 for cell in cells)


def deviations(cells: Sequence[Cell]) -> dict[tuple[int, int], np.ndarray]:
    """Return what the seeds' effects leave of each run's deviation [run, average, D].

    They are scaled to the variance of one run. Runs that missed a target have none; a batch size
    with fewer than LEAST_DONORS has those of all batch sizes.

    Returns:
        By batch size and number of budgets, the smallest first.
    """
    runs: list[tuple[int, np.ndarray]] = []
    for cell in cells:
        for batch, logs in zip(cell.batches, cell.logs, strict=True):
            rates = logs.shape[0]
            seeds = logs.shape[2]
            apart = (logs - logs.mean(axis=2, keepdims=True)) * np.sqrt(seeds / max(seeds - 1, 1))
            apart = (apart - _mean_of_known(apart, axis=0)) * np.sqrt(rates / max(rates - 1, 1))
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
    log_batch = np.log(cell.batches)
    columns = []
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


def critical_values(cells: Sequence[Cell]) -> list[dict[str, np.ndarray]]:
    """Return per cell what `critical` returns of the measured and of the resampled tokens."""
    draws = resampled(cells, RESAMPLES)
    return [critical(cell, tokens) for cell, tokens in zip(cells, draws, strict=True)]


def critical_sizes(
    cells: Sequence[Cell], values: Sequence[Mapping[str, np.ndarray]]
) -> pd.DataFrame:
    """Return the critical batch size and B_crit = b/a of every curve in tokens.

    The columns `cbs_low` and `cbs_high` are 95% ends of the resampled runs.
    """
    rows = []
    for cell, value in zip(cells, values, strict=True):
        low, high = np.nanquantile(value["cbs"][1:], [0.025, 0.975], axis=0)
        for k, budget in enumerate(cell.budgets):
            row = {"size": cell.size, "params": cell.params, "tokens": budget}
            row |= {"cbs": value["cbs"][0, k], "cbs_low": low[k], "cbs_high": high[k]}
            rows.append(row | {"B_crit": value["b/a"][0, k]})
    return pd.DataFrame(rows)
