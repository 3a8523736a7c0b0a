"""Log tokens to the targets of one model, by batch size, LR, average, seed and token budget."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

KEYS = ["size", "params", "seq_len"]


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
    """Return the cells of a table of points with the columns of `measuring.measured`."""
    logs = np.log(points["tokens_to_target"]).where(points["reached"])
    table = points.assign(log_tokens=logs, tokens=points["batch"] * points["seq_len"])
    axes = ["peak_lr", "average", "seed", "budget_tokens"]
    found = []
    for (size, params, seq_len), some in table.groupby(KEYS, sort=False):  # type: ignore[misc]
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


def by_params(table: pd.DataFrame) -> list[Cell]:
    """Return the cells of a table of points, the smallest model first."""
    return sorted(cells_of(table), key=lambda cell: cell.params)


def lowest_tokens(cell: Cell, averages: Sequence[int]) -> np.ndarray:
    """Return the lowest mean log tokens over LRs and some averages, [batch, D]."""
    lowest = []
    for logs in cell.logs:
        mean = logs.mean(axis=2)[:, [*averages]]
        value = np.where(np.isnan(mean), np.inf, mean).min(axis=(0, 1))
        lowest.append(np.where(np.isinf(value), np.nan, value))
    return np.stack(lowest)


def missed_batches(cell: Cell, smallest: int = 0) -> list[list[int]]:
    """Return per budget the batch sizes in tokens at which no setting reached the target."""
    tokens = lowest_tokens(cell, range(cell.logs[0].shape[1]))
    return [
        [
            b
            for b, value in zip(cell.batches, column, strict=True)
            if b >= smallest and value != value
        ]
        for column in tokens.T
    ]
