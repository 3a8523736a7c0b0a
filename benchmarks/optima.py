"""Measured best batch sizes of published tables, by model size and token budget.

    python -m benchmarks.optima --tables DIR    # write results/published/best_batches.json again

Tables without a licence are not in results/published. `DIR` has them, and best_batches.json has the
best batch size of each (N, D), the numbers derived here. The best batch size is the minimum of a
parabola in log batch size through the batch size of the lowest loss and its neighbours. If the
smallest or largest batch size is best, its neighbour bounds the optimum.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bss.files import read_json, write_json
from bss.laws.final_loss.best import TOLERANCES
from bss.laws.minimum import measured_minimum, parabola_vertex

ROOT = Path(__file__).parents[1]
PUBLISHED = ROOT / "results/published"
DERIVED = PUBLISHED / "best_batches.json"
SEQ_LEN = 2048
FEWEST = 3  # batch sizes of a cell
ISOTOKEN = (15.36e6, 61.44e6, 245.76e6)
"""Budgets of nqs_lm1b.csv with several batch sizes; its runs end within 0.2% of them."""
SOURCES = {
    "openeurollm": "OpenEuroLLM/dense_english_scaling_laws, data/loss_all_exps_post_annealing.csv, "
    "781af43; arXiv 2608.28308; AdamW, five peak LRs per batch size, loss after the decay",
    "nqs_lm1b": "chuningxdy/scale_new, table1_lm1b_raw_data.csv, 96769c6; AdamW, one peak LR",
    "optimizer_batch": "dangxingyu/batch-size-blog, batch-size/data/paper-data.json, 8023ef8; "
    "arXiv 2610.08975; tuned, peak LRs not published",
}


class Optimum(NamedTuple):
    """A best batch size in tokens, or its bounds if the value is None.

    Attributes:
        params: non-embedding parameters.
        tokens: token budget.
        value: the best batch size in tokens; None if only bounds are known.
        low, high: bounds in tokens; None if there is none.
        lr: peak LR of the lowest loss; None if it is not published.
        optimizer: name, with its family if the source has several.
    """

    params: float
    tokens: float
    value: float | None
    low: float | None = None
    high: float | None = None
    lr: float | None = None
    optimizer: str = "AdamW"


def cell_optimum(cell: pd.DataFrame, optimizer: str = "AdamW") -> Optimum:
    """Return the best batch size of the runs of one model and budget.

    Args:
        cell: columns params, tokens, batch, seq_len, loss and, if known, lr.
        optimizer: name to record.
    """
    best = cell.loc[cell.groupby("batch")["loss"].idxmin()]
    size = (best["batch"] * best["seq_len"]).to_numpy(float)
    lowest = int(np.argmin(best["loss"]))
    first = best.iloc[lowest]
    lr = float(first["lr"]) if "lr" in best else None
    found = Optimum(float(first["params"]), float(first["tokens"]), None, lr=lr)
    found = found._replace(optimizer=optimizer)
    if lowest == 0:
        return found._replace(high=float(size[1]))
    if lowest == len(size) - 1:
        return found._replace(low=float(size[-2]))
    near = slice(lowest - 1, lowest + 2)
    value = _vertex(np.log2(size[near]), best["loss"].to_numpy()[near])
    return found._replace(value=value, low=float(size[lowest - 1]), high=float(size[lowest + 1]))


def _vertex(x: np.ndarray, y: np.ndarray) -> float:
    """Return 2 to the power of the minimum of the parabola through three points, the middle one
    lowest."""
    if np.isclose(x[1] - x[0], x[2] - x[1]):
        return float(2.0 ** parabola_vertex(x, y[None])[0])
    curve = np.polyfit(x - x[1], y, 2)
    return float(2.0 ** (x[1] - curve[1] / (2 * curve[0])))


def by_cell(
    table: pd.DataFrame, columns: list[str], name: Callable[[Any], str] = lambda _: "AdamW"
) -> list[Optimum]:
    """Return the optimum of each cell with enough batch sizes."""
    cells = [(key, cell) for key, cell in table.groupby(columns)]
    return [
        cell_optimum(cell, name(key)) for key, cell in cells if cell["batch"].nunique() >= FEWEST
    ]


def table_optima() -> list[Optimum]:
    """Return the optimum of each model and budget of steplaw_rates.csv, at the best LRs."""
    runs = pd.read_csv(PUBLISHED / "steplaw_rates.csv")
    found = []
    for sizes, cell in runs.groupby(["params", "tokens"]):
        assert isinstance(sizes, tuple)
        loss = cell.groupby("batch")["loss"].min()
        batch = loss.index.to_numpy(float) * SEQ_LEN
        best = measured_minimum(batch, loss.to_numpy(), typical=TOLERANCES[0]).batch
        lr = float(cell.loc[cell["loss"].idxmin(), "peak_lr"])
        at = Optimum(float(sizes[0]), float(sizes[1]), best.value, best.low, best.high, lr)
        found.append(at)
    return found


def seesaw_optima() -> list[Optimum]:
    """Return the optimum of each model of seesaw_constant_batch.csv; all are bounds."""
    table = pd.read_csv(PUBLISHED / "seesaw_constant_batch.csv", comment="#")
    return by_cell(table, ["params"])


def derived_optima(source: str) -> list[Optimum]:
    """Return the optima of a table without a licence, from best_batches.json."""
    return [Optimum(**cell) for cell in read_json(DERIVED, "restore it")[source]["cells"]]


def without_licence(tables: Path) -> dict[str, list[Optimum]]:
    """Return the optima of the tables that are not in the repository."""
    dense = pd.read_csv(tables / "openeurollm.csv", comment="#")
    short = pd.read_csv(tables / "nqs_lm1b.csv", comment="#")
    short = short[short["type"] == "isotoken"]
    budgets = [min(ISOTOKEN, key=lambda one: abs(one - tokens)) for tokens in short["tokens"]]
    tuned = pd.read_csv(tables / "optimizer_batch.csv", comment="#")
    return {
        "openeurollm": by_cell(dense, ["params", "tokens"]),
        "nqs_lm1b": by_cell(short.assign(tokens=budgets), ["params", "tokens"]),
        "optimizer_batch": by_cell(tuned, ["optimizer", "family"], ", ".join),
    }


def main() -> None:
    """Write the derived best batch sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tables", type=Path, required=True, help="directory of the tables")
    found = without_licence(parser.parse_args().tables)
    entry: dict[str, Any] = {"command": "python -m benchmarks.optima --tables DIR"}
    for name, cells in found.items():
        entry[name] = {"source": SOURCES[name], "cells": [at._asdict() for at in cells]}
    write_json(DERIVED, entry)


if __name__ == "__main__":
    main()
