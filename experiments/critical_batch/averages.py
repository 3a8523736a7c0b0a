"""Answers on weight averages: by how much they change the tokens to a target."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from bss.stats import effect_of
from experiments.critical_batch.cells import Cell, by_params, cells_of, lowest_tokens
from experiments.critical_batch.measuring import (
    BASE,
    BUDGETS,
    HALF_LIVES,
    NONE,
    curves,
    known_of,
    measured,
)
from experiments.findings import Measured, measurements
from experiments.tables import Tables


def average_answers(tables: Tables) -> dict[str, Measured]:
    """Return the answers on weight averages, and write the tokens to the targets by half-life.

    Numbers with and without an average are of the same seeds, and are paired by them.
    """
    runs = curves(tables, BASE)
    table = measured(runs, BUDGETS, (*HALF_LIVES, NONE))
    [cell] = cells_of(table)
    names = sorted({*table["average"]})
    rows = []
    for average in (*HALF_LIVES, NONE):
        tokens = lowest_tokens(cell, [names.index(average)])
        for i, batch in enumerate(cell.batches):
            for k, budget in enumerate(cell.budgets):
                row = {"average": average, "batch_tokens": batch, "budget_tokens": budget}
                rows.append(row | {"tokens_to_target": np.exp(tokens[i, k])})
    tables.write("averages.csv", pd.DataFrame(rows))
    with_average = [names.index(average) for average in HALF_LIVES]
    without = [names.index(NONE)]
    apart = lowest_tokens(cell, with_average) - lowest_tokens(cell, without)
    last = int(np.flatnonzero(np.isfinite(apart).all(axis=0))[-1])  # D that all runs reached
    gains = np.stack(
        [
            best_of_seed(cell, with_average, seed) - best_of_seed(cell, without, seed)
            for seed in range(cell.logs[0].shape[2])
        ]
    )[:, :, last]
    known = known_of(tables, runs, BASE, f"D {cell.budgets[last] / 1e6:g}M")
    numbers = {"averages": gains.mean(axis=1), "averages_batch": gains[:, -1] - gains[:, 0]}
    return measurements(numbers, known, "averages.csv")


def average_sizes(tables: Tables, runs: pd.DataFrame, part: str) -> dict[str, Measured]:
    """Return the gain of weight averages over model sizes, one number for each size.

    Args:
        tables: The results directory.
        runs: Loss curves of all sizes.
        part: One of their parts, whose config has what all share.
    """
    table = measured(runs, BUDGETS[:1], (*HALF_LIVES, NONE))
    names = sorted({*table["average"]})
    with_average = [names.index(average) for average in HALF_LIVES]
    gains = {
        cell.size: lowest_tokens(cell, with_average) - lowest_tokens(cell, [names.index(NONE)])
        for cell in by_params(table)
    }
    seeds = int(runs["seed"].nunique())
    effect = effect_of([float(np.nanmean(gain)) for gain in gains.values()])
    effect = replace(effect, seeds=seeds, test=f"paired t over {len(gains)} model sizes")
    known = known_of(tables, runs, part, f"D {BUDGETS[0] / 1e6:g}M")
    return {"averages_sizes": Measured(effect, known, "points.csv")}


def best_of_seed(cell: Cell, averages: Sequence[int], seed: int) -> np.ndarray:
    """Return a seed's log tokens [batch, D] at the setting with the lowest mean over seeds."""
    found = []
    for logs in cell.logs:
        some = logs[:, [*averages]]
        mean = np.where(np.isnan(some.mean(axis=2)), np.inf, some.mean(axis=2))
        best = mean.reshape(-1, mean.shape[-1]).argmin(axis=0)
        own = some[:, :, seed].reshape(-1, mean.shape[-1])
        found.append(own[best, np.arange(len(best))])
    return np.stack(found)
