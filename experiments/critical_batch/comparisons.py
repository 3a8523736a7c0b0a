"""Critical batch sizes of two models or settings, one of them trained for the comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from bss.stats import MOST_CENSORED, Effect
from experiments.critical_batch.cells import Cell, cells_of, missed_batches
from experiments.critical_batch.fits import curve_table, fitted
from experiments.critical_batch.measuring import (
    BASE,
    SHORT,
    curves,
    known_of,
    listed,
    measured,
    minima,
)
from experiments.critical_batch.resampled import (
    RESAMPLES,
    critical,
    estimated,
    freedom_of,
    resampled,
)
from experiments.findings import Measured
from experiments.tables import Tables


@dataclass(frozen=True)
class Pair:
    """Two cells whose critical batch sizes are compared, by the value of a column.

    Attributes:
        column, first, second: What distinguishes the cells.
        conditions: In words.
        smallest: Smallest batch size that counts, in tokens.
    """

    column: str
    first: Any
    second: Any
    conditions: str
    smallest: int = 32


@dataclass(frozen=True)
class Compared:
    """A part that was trained for comparisons.

    Attributes:
        part: Its folder.
        pairs: Cells of this part, or of it and the base, by the key of their question.
        base: The part with which it is compared.
    """

    part: str
    pairs: Mapping[str, Pair]
    base: str = BASE

    @property
    def name(self) -> str:
        """The end of the names of its tables."""
        return self.part.removeprefix("c2-").removeprefix("c4-")

    @property
    def file(self) -> str:
        """The table of its critical batch sizes."""
        return f"curves_{self.name}.csv"


def points_of(tables: Tables, compared: Compared) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs and the points of a part and of its base."""
    both = [curves(tables, part) for part in (compared.base, compared.part)]
    runs = pd.concat(both, ignore_index=True)
    table = measured(runs, SHORT)
    return runs, table.assign(model=table["size"])


def write_fits(tables: Tables, compared: Compared, points: pd.DataFrame) -> None:
    """Write the critical batch sizes of the curves of a part and of its base."""
    fits = {f"D = {d}": fitted(some, "tokens") for d, some in points.groupby("budget_tokens")}
    tables.write(compared.file, curve_table(points, fits))
    tables.write(f"steps_{compared.name}.csv", minima(points))


def answers(
    tables: Tables,
    compared: Compared,
    runs: pd.DataFrame,
    points: pd.DataFrame,
    donors: Sequence[Cell],
) -> dict[str, Measured]:
    """Return log critical batch in tokens of each second cell minus the first.

    Args:
        tables: The results directory.
        compared: The part.
        runs: Loss curves of the part and its base, from `points_of`.
        points: Their points.
        donors: Cells whose seeds' effects are drawn.
    """
    found = {}
    for key, pair in compared.pairs.items():
        effect, told = _log_ratio(points, pair, donors)
        some = runs.loc[runs[pair.column].isin([pair.first, pair.second])]
        more = "; ".join([pair.conditions, *told])
        known = known_of(tables, some, compared.part, more)
        found[key] = Measured(effect, known, compared.file)
    return found


def _log_ratio(table: pd.DataFrame, pair: Pair, donors: Sequence[Cell]) -> tuple[Effect, list[str]]:
    """Return log critical batch of the second cell of a pair minus the first, mean over D.

    A curve whose target is missed at more than 20% of the batch sizes has no critical batch size.
    The effect is then of the other budgets and is not tested; the text names what is missing.
    """
    logs: list[np.ndarray] = []
    told: list[str] = []
    open_budgets: set[int] = set()
    for seed, value in enumerate((pair.first, pair.second)):
        [cell] = cells_of(table.loc[table[pair.column] == value])
        [tokens] = resampled([cell], RESAMPLES, seed=seed, donors=[*donors, cell])
        logs.append(np.log(critical(cell, tokens, pair.smallest)["cbs"]))
        for k, missed in enumerate(missed_batches(cell, pair.smallest)):
            if len(missed) > MOST_CENSORED * len(cell.batches):
                open_budgets.add(k)
                at = f"{value}, D {cell.budgets[k] / 1e6:g}M"
                told.append(f"{at}: a seed misses the target at {listed(missed)} tokens per step")
    ratios = logs[1] - logs[0]
    count = ratios.shape[1]
    closed = [k for k in range(count) if k not in open_budgets]
    seeds = int(table["seed"].nunique())
    effect = estimated(ratios[:, closed].mean(axis=1), freedom_of(donors), seeds)
    if open_budgets:
        effect = replace(effect, censored=len(open_budgets) / count, test="none: bounds")
        told.append(f"the effect is of D {listed(cell.budgets[k] / 1e6 for k in closed)}M alone")
    return effect, told
