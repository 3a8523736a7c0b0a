"""Share of 90% intervals that contain B_opt and B_min of the law that points are drawn from.

    python -m experiments.es_wsd.coverage --first 200 --sets 60  # repeat/coverage.csv

The law is the three-stage law fitted to a1r. The drawn points are fitted with the same law, and
with the law that cross-validation selects for them. Each set has the batch sizes, seeds and
targets of a1r. A run's log tokens to a target are the value of the law plus noise. The noise is
one standard normal number per run times the RMS residual of a1r at that target, in log tokens. If
the tokens exceed the run's budget, the target is missed. A bound counts as an interval that is
open on one side.
"""

import argparse
import math
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import pandas as pd

import bss
from bss.laws.base import Estimate
from bss.laws.resampling import rms
from experiments.es_wsd.analysis import TABLES, TARGETS, fitted, measured_points

GRID = 4000
FITTED = {"piecewise": "piecewise", "cross-validated": None}


def planted(points: pd.DataFrame) -> tuple[bss.EsFit, pd.DataFrame]:
    """Return the law that sets are drawn from, and its B_opt and B_min by target (sequences)."""
    law = fitted(points, 20, "piecewise")
    batch = np.geomspace(points["batch"].min() / 4, points["batch"].max(), GRID)
    rows = []
    for at in law.fits:
        tokens = law.tokens(batch, at.target_loss)
        smallest = law.law.quantities(law.parameters(at.target_loss))["B_min"]
        best = float(batch[np.argmin(tokens)])
        rows.append({"target_loss": at.target_loss, "B_opt": best, "B_min": float(smallest)})
    return law, pd.DataFrame(rows)


def drawn(law: bss.EsFit, points: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return points [same rows] with tokens drawn from a law."""
    random = np.random.default_rng(seed)
    budget = points["budget_tokens"].to_numpy(float)
    offset = pd.Series(random.normal(size=points["run"].nunique()), points["run"].unique())
    tokens = np.empty(len(points))
    for at in law.fits:
        rows = np.isclose(points["target_loss"], at.target_loss)
        here = points.loc[rows]
        expected = law.tokens(here["batch"], at.target_loss)
        ratio = (here["tokens_to_target"] / expected)[here["reached"]]
        noise = rms(np.log(ratio)) * here["run"].map(offset).to_numpy(float)
        tokens[rows] = expected * np.exp(noise)
    reached = tokens < budget
    tokens = np.where(reached, tokens, budget)
    steps = tokens / (points["batch"] * points["seq_len"])
    return points.assign(tokens_to_target=tokens, steps=steps, reached=reached)


def covered(
    law: bss.EsFit, points: pd.DataFrame, truth: pd.DataFrame, name: str, seed: int
) -> pd.DataFrame:
    """Return, for a drawn set, one row per target and quantity of the law."""
    estimate = fitted(drawn(law, points, seed), law=FITTED[name])
    rows = []
    for known in truth.to_dict("records"):
        target = known["target_loss"]
        at = next((a for a in estimate.fits if math.isclose(a.target_loss, target)), None)
        found: dict[str, Any] = {"B_opt": None, "B_min": None}
        if at is not None:
            found = {"B_opt": at.best, "B_min": at.batches.get("B_min")}
        for quantity, value in found.items():
            row = {"set": seed, "target_loss": target, "quantity": quantity}
            rows.append(row | {"true": known[quantity], **_held(value, known[quantity])})
    return pd.DataFrame(rows).assign(fitted=name)


def _held(estimate: Estimate | None, true: float) -> dict[str, float | None]:
    if estimate is None or (estimate.low is None and estimate.high is None):
        return {"value": None, "low": None, "high": None, "inside": None}
    inside = (estimate.low or 0.0) <= true <= (estimate.high or math.inf)
    ends = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    return ends | {"inside": float(inside)}


def main() -> None:
    """Write a row per set, target and quantity; print the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=200, help="number of drawn sets")
    parser.add_argument("--first", type=int, default=0, help="seed of the first set")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.sets)
    points = measured_points(TABLES.read("repeat/runs.parquet"), TARGETS)
    law, truth = planted(points)
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:  # JAX has threads
        tables = [
            one
            for name in FITTED
            for one in pool.map(partial(covered, law, points, truth, name), seeds)
        ]
    table = pd.concat(tables, ignore_index=True)
    TABLES.write("repeat/coverage.csv", table)
    known = table.dropna(subset=["inside"]).groupby(["fitted", "quantity"])
    print(known["inside"].agg(["mean", "size"]).to_string())


if __name__ == "__main__":
    main()
