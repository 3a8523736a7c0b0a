"""Public tables, and which of their rows are fitted and which are scored.

The splits are frozen: a score of today compares with one of tomorrow. No row is in both parts.

| kind | scored | fitted |
|---|---|---|
| next size | the largest model; of one run a model, the largest with 8 runs | all others |
| next budget | budgets within 1.5 times of the largest; the same | all others |
| one cell | one (N, D) of the largest model, for each of them | all other (N, D) |
| far batch | 8 to 64 times the largest fitted batch size, at the same N and D | see `far_batch` |
| unseen LR | every third LR of the table | the other LRs |
| next batch | of points of E(S): the largest batch size of each model | its others |
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws import check_losses
from bss.tables import read_points

PUBLISHED = Path(__file__).parents[2] / "results/published"
LARGEST = 1.5  # factor to the largest budget, up to which budgets are held back together
LEAST = 8  # rows that are scored
FAR = 8.0  # times the largest fitted batch size, from which batch sizes are scored
SPAN = 64.0  # largest batch size over the largest fitted one, if that leaves FEWEST
FEWEST = 3  # batch sizes of a cell that are fitted
WIDE = 32.0  # largest over smallest batch size of a cell whose far batches are held back
SAME = 0.03  # of log tokens: runs of whole steps end at slightly different tokens


class Source(NamedTuple):
    """A public table of final losses.

    Attributes:
        file: in results/published, or in the directory that --tables names.
        licensed: whether results/published has it.
        columns: its names of our columns.
        seq_len: tokens per sequence, if the table has no such column.
        settings: columns that are left out: they follow from the size of the model.
    """

    file: str
    licensed: bool
    columns: tuple[tuple[str, str], ...] = ()
    seq_len: int | None = None
    settings: tuple[str, ...] = ()


TABLES = {
    "steplaw": Source("steplaw_rates.csv", True, (("peak_lr", "lr"),), 2048),
    "steplaw tuned": Source("steplaw_dense_best.csv", True),
    "openeurollm": Source("openeurollm.csv", False, settings=("beta2",)),
    "nqs": Source("nqs_lm1b.csv", False, settings=("nqs_loss", "chin_loss", "split", "type")),
}
POINTS = "mlperf"
"""Points of E(S): steps to a target loss, by model and batch size."""


class Split(NamedTuple):
    """Rows of a table: [n], True where a row is fitted, or scored."""

    table: str
    kind: str
    fitted: np.ndarray
    scored: np.ndarray


def losses_of(name: str, folder: Path | None) -> pd.DataFrame | None:
    """Return a checked table of final losses; None without the directory that has it."""
    source = TABLES[name]
    home = PUBLISHED if source.licensed else folder
    if home is None:
        return None
    path = home / source.file
    if not path.is_file():
        raise InputError(f"--tables {home}: no {source.file}; give the directory that has it")
    frame = pd.read_csv(path, comment="#").rename(columns=dict(source.columns))
    frame = frame.drop(columns=[*source.settings])
    if source.seq_len:
        frame = frame.assign(seq_len=source.seq_len)
    return check_losses(frame)


def points_of_es() -> pd.DataFrame:
    """Return the points of E(S) of models with four batch sizes or more."""
    frame = read_points(PUBLISHED / "mlperf_rcp.csv")
    # One row of 175B is ten times too large in the source.
    usual = frame.groupby(["model", "batch"])["steps"].transform("median")
    frame = frame.loc[frame["steps"] < 5 * usual]
    many = frame.groupby("model")["batch"].transform("nunique") > FEWEST
    return frame.loc[many].reset_index(drop=True)


def cell_of(table: pd.DataFrame) -> np.ndarray:
    """Return [n], which (N, D) a row is of; budgets within 3% are one."""
    order = np.lexsort([table["tokens"], table["params"]])
    rows = table.iloc[order]
    new = (rows["params"].diff() != 0) | (np.log(rows["tokens"]).diff().abs() > SAME)
    cell = np.empty(len(table), int)
    cell[order] = new.cumsum() - 1
    return cell


def splits_of(name: str, table: pd.DataFrame) -> Iterator[Split]:
    """Yield the splits of a table of final losses."""
    cell = cell_of(table)
    largest = _largest(table["params"].to_numpy(), 1.0)
    budgets = _largest(table["tokens"].to_numpy(), LARGEST)
    yield Split(name, "next size", ~largest, largest)
    yield Split(name, "next budget", ~budgets, budgets)
    if "lr" in table and (table.groupby([cell, "batch"])["lr"].nunique() > 1).any():
        for i in np.unique(cell[largest]):
            yield Split(name, "one cell", cell != i, cell == i)
        unseen = table["lr"].isin(np.sort(table["lr"].unique())[1::3]).to_numpy()
        yield Split(name, "unseen LR", ~unseen, unseen)
    yield from far_batch(name, table, cell)


def _largest(sizes: np.ndarray, factor: float) -> np.ndarray:
    """Return [n], the rows of the largest sizes: within a factor, and at least `LEAST` rows."""
    return sizes >= min(sizes.max() / factor, np.sort(sizes)[-LEAST])


def far_batch(name: str, table: pd.DataFrame, cell: np.ndarray) -> Iterator[Split]:
    """Yield two splits: the first, third, ... cell without its large batch sizes, then the others.

    Every cell of at least `FEWEST` + 2 batch sizes over a factor of `WIDE` or more takes part.
    Those in between fitted and scored ones are in neither part.
    """
    batch = table["batch_tokens"].to_numpy()
    wide = []
    for i in range(cell.max() + 1):
        sizes = np.unique(batch[cell == i])
        if len(sizes) >= FEWEST + 2 and sizes[-1] >= WIDE * sizes[0]:
            wide.append((i, max(sizes[-1] / SPAN, sizes[FEWEST - 1])))
    for turn in (0, 1) if len(wide) > 1 else ():
        fitted = np.ones(len(table), bool)
        scored = np.zeros(len(table), bool)
        for i, most in wide[turn::2]:
            fitted &= (cell != i) | (batch <= most)
            scored |= (cell == i) & (batch >= FAR * most)
        if scored.any():
            yield Split(name, "far batch", fitted, scored)
