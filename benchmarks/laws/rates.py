"""The law with a learning rate on the public runs of Step Law: what it says of runs not seen.

Each of the 41 (N, D) of results/published/steplaw_rates.csv is left out in turn, the five of 1.07B
together, and the four of 80B tokens or more; forms, weights, departures and the width of intervals
are made without it. A row per cell goes to benchmarks/results/rates.csv as it comes, and what is
there is kept: a run that was stopped goes on, and without the file all are measured.
"""

import csv
import datetime
import multiprocessing
import os
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.laws.final_loss.points import cells_of_sizes
from bss.laws.final_loss.rated.fit import NEAR, fit_rated
from bss.laws.final_loss.rated.law import RatedLaw
from bss.laws.final_loss.rated.points import rated_points
from bss.laws.final_loss.table import check_losses, runs_of
from bss.provenance import commit, machine

HERE = Path(__file__).parents[2]
TABLE, RESULT = HERE / "results/published/steplaw_rates.csv", HERE / "benchmarks/results/rates.csv"
SEQ_LEN = 2048
LEVEL = 0.9
VALLEY = 0.05  # nats above the best of a cell, up to which a quadratic is laid through its rows
DEAR = 0.004  # nats above its least that a batch and rate may cost
NOTHING, MODEL, BUDGETS = "nothing", "1.07B", "80B tokens and more"
PROCESSES = 2
MARKS = {
    "rmse": 0.012, "worst cell": 0.030, MODEL: 0.018, BUDGETS: 0.018, "covered": (0.84, 0.97),
    "cells of cheap optima": 34,
}  # fmt: skip
PUBLISHED = (
    ("R² of the 117 runs of one more (N, D), a human expert's law", "-.08"),
    ("the same, best run of an automatic search", ".983"),
    ("R² after choosing runs for 1, 5, 10% of the budget, best method", "-.45, .00, .22"),
)
SOURCE = "repository PlanarG/active-sl and the card of its data set (CC-BY-4.0)"


def measured(_: Iterable[int] = ()) -> dict[str, Any]:
    """The marks, after all that is not in the table of results was measured."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of the processes below, one a core
    names = [NOTHING, MODEL, BUDGETS, *map(str, range(cells().max() + 1))]
    done = set(pd.read_csv(RESULT)["out"]) if RESULT.is_file() else set()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, context, os.nice, (10,)) as pool:
        for rows in pool.map(judged, [name for name in names if name not in done]):
            new = not RESULT.is_file()
            with RESULT.open("a", newline="") as file:
                writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
                writer.writerows([dict(zip(rows[0], rows[0], strict=True))] * new + rows)
    return summary(pd.read_csv(RESULT))


@cache
def runs() -> pd.DataFrame:
    """All rows, batches in tokens."""
    table = pd.read_csv(TABLE).rename(columns={"peak_lr": "lr"})
    return runs_of(check_losses(table.assign(seq_len=SEQ_LEN)))


def cells() -> np.ndarray:
    """[n], which (N, D) a row is of."""
    return cells_of_sizes(runs()["params"].to_numpy(float), runs()["tokens"].to_numpy(float))


def judged(name: str) -> list[dict[str, Any]]:
    """Of each cell that is left out what a law without all of them says; of all where none is."""
    start, sizes = time.process_time(), runs()[["params", "tokens"]].to_numpy(float).T
    together = {MODEL: sizes[0] > 1e9, BUDGETS: sizes[1] >= 8e10, NOTHING: sizes[0] < 0}
    out = together[name] if name in together else cells() == int(name)
    points, _ = rated_points(runs().loc[~out])
    assert points is not None
    law = fit_rated(points)
    asked = np.unique(cells()[out if out.any() else ~out])
    rows = [{"out": name, **of_cell(law, runs().loc[cells() == cell])} for cell in asked]
    seconds = (time.process_time() - start) / len(rows)
    made = {"cpu_seconds": round(seconds, 1), "commit": commit()}
    made |= {"date": datetime.date.today().isoformat(), "device": machine()}
    return [row | made for row in rows]


def of_cell(law: RatedLaw, rows: pd.DataFrame) -> dict[str, Any]:
    """Errors, intervals and the optimum at the rows of one (N, D)."""
    N, D, B, lr, loss = (
        rows[x].to_numpy(float) for x in ("params", "tokens", "batch_tokens", "rate", "loss")
    )
    said = law.predictions(N, D, B, lr, LEVEL)
    value, low, high = np.array([[x.value, x.low, x.high] for x in said], float).T
    held, near = (low <= loss) & (loss <= high), loss <= loss.min() + NEAR
    batch, rate = law.best(float(N[0]), float(D[0]))
    told = {
        "rmse": float(np.sqrt(np.mean((value - loss)[near] ** 2))),
        "r2": 1 - float(np.sum((value - loss) ** 2) / np.sum((loss - loss.mean()) ** 2)),
        "cost": cost(np.log(B), np.log(lr), loss, np.log(batch), np.log(rate)),
    }
    told = {name: round(x, 5) for name, x in told.items()}
    counts = {"rows": len(loss), "near": int(near.sum()), "inside": inside(B, lr, loss)}
    counts |= {"covered": int(held.sum()), "covered_near": int((held & near).sum())}
    sizes = {"params": round(N[0]), "tokens": round(D[0])}
    return sizes | counts | told | {"batch": round(batch / SEQ_LEN, 1), "lr": float(f"{rate:.4g}")}


def inside(batch: np.ndarray, lr: np.ndarray, loss: np.ndarray) -> int:
    """1 where the best run has batches on both sides, and rates at its own batch."""
    best = loss.argmin()
    sides = ((batch, batch), (lr[batch == batch[best]], lr))
    return int(all(tried.min() < x[best] < tried.max() for tried, x in sides))


def cost(b: np.ndarray, e: np.ndarray, loss: np.ndarray, b_at: float, e_at: float) -> float:
    """Nats above the least of a quadratic in (log B, log rate) through the best rows."""
    near = loss <= loss.min() + VALLEY
    middle = b[near].mean(), e[near].mean()

    def columns(b: Any, e: Any) -> np.ndarray:
        x, y = np.atleast_1d(b) - middle[0], np.atleast_1d(e) - middle[1]
        return np.stack([x**0, x, y, x**2, x * y, y**2], axis=1)

    fit = np.linalg.lstsq(columns(b[near], e[near]), loss[near], rcond=None)[0]
    bend = np.array([[2 * fit[3], fit[4]], [fit[4], 2 * fit[5]]])
    if np.linalg.eigvalsh(bend).min() <= 0:
        return float("inf")
    least = np.linalg.solve(bend, -fit[1:3]) + middle
    return float((columns(b_at, e_at) - columns(*least))[0] @ fit)


def summary(table: pd.DataFrame) -> dict[str, Any]:
    """The marks of a table of results, beside what made it."""
    of = {str(name): table[name].to_numpy() for name in table}
    alone = ~np.isin(of["out"], [NOTHING, MODEL, BUDGETS])
    cheap = (of["inside"] == 1) & (of["cost"] <= DEAR)
    pooled = {
        name: float(np.sqrt(np.average(of["rmse"][rows] ** 2, weights=of["near"][rows])))
        for name, rows in {
            "rmse": alone, MODEL: of["out"] == MODEL, BUDGETS: of["out"] == BUDGETS
        }.items()
    }  # fmt: skip
    return {
        "command": "python -m benchmarks.laws --part rates",
        **{name: sorted(set(of[name])) for name in ("commit", "date", "device")},
        "core_minutes": round(float(of["cpu_seconds"].sum()) / 60, 1),
        "cells": int(alone.sum()),
        **pooled,
        "worst cell": float(of["rmse"][alone].max()),
        "covered": float(of["covered"][alone].sum() / of["rows"][alone].sum()),
        "covered near the best": float(of["covered_near"][alone].sum() / of["near"][alone].sum()),
        "R² of cells, median": float(np.median(of["r2"][alone])),
        "R² of cells, least": float(of["r2"][alone].min()),
        "cells whose best is inside": int(of["inside"][alone].sum()),
        "cells of cheap optima": int((cheap & (of["out"] == NOTHING)).sum()),
        "cells of cheap optima, not seen": int((cheap & alone).sum()),
    }


def lines(told: dict[str, Any]) -> list[str]:
    """The marks beside what is asked, and what others reached."""
    text = [f"{'results/published/steplaw_rates.csv, runs not seen':68}{'bss':>15}   asked"]
    for name in list(told)[list(told).index("cells") :]:
        text.append(f"{name:68}{told[name]:15.4g}   {MARKS.get(name, '')}".rstrip())
    text.append(f"{'published':68}{'':15}   bss")
    text += [f"{what:68}{score:>15}   not held here" for what, score in PUBLISHED]
    return [*text, f"source of what is published: {SOURCE}"]
