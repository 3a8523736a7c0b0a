"""Numbers of the questions in endings.toml: late switches at two sizes, by LR phase.

`analysis.py` calls `measure` and `answer`. Each size has a part at constant LR, with averages and
decays, and a part under a cosine. Losses are test losses in nats per token.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from bss.stats import Comparison, phases_of
from experiments.conditions import conditions_of
from experiments.findings import Measured, measurements
from experiments.tables import Tables

QUESTIONS = Path(__file__).parent / "endings.toml"
SIZES = {"99k": ("b5", "b5c"), "394k": ("b5l", "b5lc")}
"""Parts by size: at constant LR, and under a cosine."""
TRUNK = "constant 4"
LATE = "x 4 at 70%"
LATER = "x 4 at 95%"


def answers_of(folder: Path) -> Mapping[str, Callable[[], dict[str, Measured]]]:
    """Return what measures the numbers of each part in a results directory."""
    return {part: partial(answer, folder, part) for parts in SIZES.values() for part in parts}


def answer(folder: Path, part: str) -> dict[str, Measured]:
    """Return the numbers of the questions of a part, per seed."""
    [size] = [size for size, parts in SIZES.items() if part in parts]
    tables = Tables(folder / part)
    found: dict[str, Measured] = {}
    for phase in dict.fromkeys(phases_of(tables.read("finals.csv"))):
        numbers = {f"tuned_{size}_{phase}": gain(tables, phase)}
        if phase == "constant":
            numbers[f"tuned_{size}_later"] = gain(tables, phase, LATER, LATE)
        known = conditions_of(compared(tables), tables.config, phase)
        found |= measurements(numbers, known, f"{part}/finals.csv")
    if part == SIZES["394k"][0]:
        found |= by_size(folder)
    return found


def by_size(folder: Path) -> dict[str, Measured]:
    """Return the gain at 394k minus that at 99k parameters, at constant LR."""
    small = Tables(folder / SIZES["99k"][0])
    large = Tables(folder / SIZES["394k"][0])
    both = pd.concat([compared(small), compared(large)])
    numbers = {"tuned_sizes": gain(large, "constant") - gain(small, "constant")}
    table = f"{large.folder.name}/finals.csv"
    return measurements(numbers, conditions_of(both, large.config), table)


def compared(tables: Tables) -> pd.DataFrame:
    """Return the run table of the small batch and its switches."""
    runs = tables.read("runs.parquet")
    return runs.loc[runs["name"].isin((TRUNK, LATE, LATER))]


def gain(tables: Tables, phase: str, name: str = LATE, other: str = TRUNK) -> np.ndarray:
    """Return losses [seed] of a run of a part minus another's."""
    losses = Comparison(tables.read("finals.csv")).losses(phase)
    return (losses.loc[name] - losses.loc[other]).to_numpy(float)
