"""Runs chosen by `bss design` beside others at equal cost, on tables whose runs are all known.

    python -m benchmarks.design            # writes benchmarks/results/design.json; 30 minutes

Step Law's 2,702 runs with 1, 5 and 10% of their FLOPs: the error at runs not done of the five
(N, D) of 1.07B and the four of 80B tokens or more, and the width of B_opt's interval at the
largest of all.
Then our own runs of one (N, D) at one rate: half of them, chosen, beside all.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.design.candidates import Candidates
from bss.design.goals import Goal
from bss.design.replay import METHODS, fit_quickly, replayed
from bss.laws.final_loss.table import final_losses, read_losses
from bss.tables import Reading, read_runs

ROOT = Path(__file__).parents[1]
STEP_LAW = ROOT / "results/published/steplaw_rates.csv"
OURS = ("second_moment/long", "second_moment/short")
SHARES = (0.01, 0.05, 0.1)
FILE = ROOT / "benchmarks/results/design.json"


def main() -> None:
    """Writes the table, after every share."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.design", description=__doc__)
    parser.add_argument("--shares", type=float, nargs="*", default=SHARES)
    parser.add_argument("--to", type=Path, default=FILE)
    options = parser.parse_args()
    table = read_losses(STEP_LAW, Reading({"lr": "peak_lr"}, 2048))
    asked = ((table["params"] > 1e9) | (table["tokens"] >= 80e9)).to_numpy()
    rows, whole = [ours(name) for name in OURS], fit_quickly(table)
    for share in options.shares:
        rows += replay(table, share, asked, whole, "steplaw_rates")
        options.to.write_text(json.dumps(rows, indent=1) + "\n")


def replay(
    table: pd.DataFrame, share: float, asked: np.ndarray, whole: Any, name: str
) -> list[dict[str, Any]]:
    """A row a method: medians over the seeds, and each of them."""
    candidates = Candidates.of(table, "lr" in table, "flops", None)
    goal = Goal.parse("B_opt", table[["params", "tokens"]].to_numpy(float))
    rows = []
    for method in METHODS:
        start, methods = time.perf_counter(), (method,)
        runs = [
            *replayed(table, candidates, goal, share, asked=asked, methods=methods, whole=whole)
        ]
        each = pd.DataFrame([dataclasses.asdict(one) for one in runs])
        each["own_width"] = each["high"] - each["low"]
        middle = each.drop(columns=["method", "seed"]).median().round(5).to_dict()
        rows.append({"table": name, "share": share, "chosen_by": method} | middle)
        rows[-1]["seconds"] = round(time.perf_counter() - start)
        seeds = {n: each[n].round(5).tolist() for n in ("rmse", "r2", "width", "own_width")}
        rows[-1]["seeds"] = seeds
        print(json.dumps(rows[-1]), flush=True)
    return rows


def ours(name: str) -> dict[str, Any]:
    """Half of our own runs beside all of them; at one rate, B_opt is that at this rate."""
    table = final_losses(read_runs(ROOT / "results" / name / "runs.parquet")).drop(columns="lr")
    candidates = Candidates.of(table, False, "tokens", None)
    goal = Goal.parse("B_opt", table[["params", "tokens"]].to_numpy(float))
    half = [
        *replayed(
            table,
            candidates,
            goal,
            0.5,
            asked=np.zeros(len(table), bool),
            methods=("design", "random"),
        )
    ]
    return {"table": name, "runs": len(table), "half": [dataclasses.asdict(one) for one in half]}


if __name__ == "__main__":
    main()
