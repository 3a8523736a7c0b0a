"""Answers to the questions in sizes.toml: critical batch sizes of six widths with new seeds."""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from experiments.critical_batch.cells import by_params
from experiments.critical_batch.exponents import exponents_table, laws_of
from experiments.critical_batch.measuring import (
    BUDGETS,
    curves,
    known_of,
    listed,
    measured,
    trained,
)
from experiments.critical_batch.resampled import critical_sizes, critical_values
from experiments.findings import Measured
from experiments.tables import Tables, show_warnings

QUESTIONS = Path(__file__).parent / "sizes.toml"
WIDTHS = ("c4-7k", "c4-12k", "c4-27k", "c4-49k", "c4-111k", "c4-197k")
FEWEST = 4  # one more than the unknowns of the law, so that one can be left out


def answers(tables: Tables) -> dict[str, Measured]:
    """Return the answers over six widths, and write their tables; {} if too few are trained.

    Seeds that not every width has are left out, with a warning.
    """
    parts = trained(tables, WIDTHS)
    if len(parts) < FEWEST:
        return {}
    runs = of_shared_seeds(pd.concat([curves(tables, part) for part in parts], ignore_index=True))
    cells = by_params(measured(runs, BUDGETS[:3]).round(7))
    values = critical_values(cells)
    laws = laws_of(cells, values)
    tables.write("curves_widths.csv", critical_sizes(cells, values))
    tables.write("exponents_widths.csv", exponents_table(laws))
    known = known_of(
        tables, runs, parts[0], f"muP; D {BUDGETS[0] / 1e6:g}M to {BUDGETS[2] / 1e6:g}M"
    )
    law = laws["cbs"]
    in_data = law.of(0, 1)
    effects = {
        "data_size_widths": law.of(-1, 1),
        "data_widths": in_data,
        "size_widths": replace(law.of(1, 0), qualifies=abs(in_data.value)),
    }
    return {key: Measured(one, known, "exponents_widths.csv") for key, one in effects.items()}


def of_shared_seeds(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of the seeds that every size has; a warning names the others."""
    seeds = [set(some["seed"]) for _, some in runs.groupby("size", sort=False)]
    shared = set.intersection(*seeds)
    if more := set.union(*seeds) - shared:
        show_warnings("widths", [f"seeds {listed(sorted(more))} are not of every width: left out"])
    return runs.loc[runs["seed"].isin(shared)]
