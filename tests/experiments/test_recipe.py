"""The table of docs/recipe.md is that of the committed runs."""

import math
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[2]
BATCHES = (1, 2, 4, 8, 16)  # sequences of 16 tokens
RULES = {
    "0.95 per step": "0.95 per step",
    "half-life of 7K tokens": "half-life 7K",
    "half-life of 20K tokens": "half-life 20K",
}


def test_the_rows_of_12k_parameters_are_those_of_the_runs():
    table = pd.read_csv(ROOT / "results/es_wsd/beta2/relative.csv")
    table = table.loc[(table["weights"] == "last") & np.isclose(table["target_loss"], 2.20)]
    by_cell = table.set_index(["rate", "rule", "batch"])
    lines = (ROOT / "docs/recipe.md").read_text().splitlines()
    rows = [[x.strip() for x in line.split("|")[1:-1]] for line in lines if "| 12k, 16" in line]
    assert len(rows) == 5
    for _, lr, beta2, *cells in rows:
        rate = {"8e-3 for all": "one", "tuned": "tuned"}[lr]
        for batch, cell in zip(BATCHES, cells, strict=True):
            key = (rate, RULES[beta2], batch)
            if cell == "–":
                assert key not in by_cell.index
                continue
            ratio = f"{math.exp(by_cell.loc[key, 'log_ratio']):.2f}"
            assert cell == f"≥ {ratio}" * bool(by_cell.loc[key, "at_least"]) or cell == ratio
            assert cell.startswith("≥") == bool(by_cell.loc[key, "at_least"])
