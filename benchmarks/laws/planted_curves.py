"""Planted curves of laws that are not the package's.

Curves of seven batch sizes and two seeds, L_0 + A/x with S(x, B) steps to it. One kind has an
interior optimum from a penalty of small batch sizes. The others are the law of McCandlish et al.
(arXiv 1812.06162) and its steps above a floor; their smallest batch size needs the fewest tokens.
Runs are off by .004 nats, and each of their losses by as much again. One target per set, whose
loss-vs-batch curve is 2 to 10 noise SDs deep (all derived here).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bss.tables import check_runs

NOISE = 0.004  # nats
DEPTHS = (2.0, 10.0)  # of the valley, over the scatter of a run's tokens
BATCHES = 2.0 ** np.arange(2, 9)
SEQ_LEN = 128
FLOOR = 1.8  # nats, L_0 of every law
EVALUATIONS = 220
SMALLEST = ("mccandlish", "floor")


@dataclass(frozen=True)
class Planted:
    """One set of curves and what is true of it; batches in sequences, the loss in nats."""

    runs: pd.DataFrame
    target: float
    best: float
    depth: float


def steps(law: str, p: dict[str, float], x: np.ndarray, batch: Any) -> np.ndarray:
    """Steps to progress x > 1 at a batch; the two broadcast."""
    plain = p["S_0"] * (x ** (1 / p["a"]) - 1)
    if law == "inner":
        small = 1 + (p["b_s"] / batch) ** 1.2
        return plain * (1 + p["B_c"] * x**0.6 / batch) * small
    if law == "mccandlish":
        return plain * (1 + p["B_c"] * x**0.6 / batch)
    return p["floor"] + plain * (1 + p["B_c"] / batch)


def planted(law: str, seed: int) -> Planted:
    """Return a set drawn from a seed."""
    rng = np.random.default_rng([seed, *law.encode()])
    while True:
        p = {
            "S_0": 10 ** rng.uniform(0.5, 1.5),
            "a": rng.uniform(0.25, 0.5),
            "B_c": 2 ** rng.uniform(*((4, 11) if law in SMALLEST else (2, 6))),
            "b_s": 2 ** rng.uniform(2, 6),
            "floor": 10 ** rng.uniform(1.5, 2.5),
        }
        top = rng.uniform(1.5, 3.0)
        loss = rng.uniform(0.25, 0.7)
        x = np.array([top / loss])
        fine = np.geomspace(BATCHES[0], BATCHES[-1], 1000)
        tokens = np.log(steps(law, p, x, fine) * fine)
        k = int(tokens.argmin())
        later = math.log((steps(law, p, x * 1.02, fine[k]) / steps(law, p, x, fine[k]))[0])
        scatter = NOISE / (loss * (1 - 1 / 1.02) / later)
        ends = tokens[[0, -1]] - tokens[k]
        depth = float(ends.min() if law not in SMALLEST else ends.max()) / scatter
        inside = BATCHES[0] * 1.5 < fine[k] < BATCHES[-1] / 1.5
        if inside == (law not in SMALLEST) and DEPTHS[0] < depth < DEPTHS[1]:
            return Planted(_runs(law, p, top, loss, rng), FLOOR + loss, float(fine[k]), depth)


def _runs(
    law: str, p: dict[str, float], top: float, loss: float, rng: np.random.Generator
) -> pd.DataFrame:
    """Losses along every run, to a little below the target."""
    x = np.geomspace(1.05, top / loss * 1.15, EVALUATIONS)
    tables = []
    for seed in (0, 1):
        for batch in BATCHES:
            S = steps(law, p, x, batch)
            off = NOISE * rng.standard_normal() + NOISE * rng.standard_normal(len(x))
            step = np.maximum(np.round(S), 1).astype(int)
            kept = np.concatenate([[True], np.diff(step) > 0])
            table = {"step": step[kept], "eval_loss": (FLOOR + top / x + off)[kept]}
            name = {"run": f"b{batch:g}s{seed}", "batch": int(batch), "seed": seed}
            tables.append(pd.DataFrame(table).assign(**name, seq_len=SEQ_LEN))
    runs = pd.concat(tables, ignore_index=True)
    return check_runs(runs.assign(tokens=runs["step"] * runs["batch"] * SEQ_LEN))
