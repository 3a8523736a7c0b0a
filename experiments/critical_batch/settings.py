"""Answers to the questions in settings.toml: less momentum, and a cosine with its LR tuned."""

from pathlib import Path

from experiments.critical_batch import comparisons
from experiments.critical_batch.cells import cells_of
from experiments.critical_batch.comparisons import Compared, Pair
from experiments.critical_batch.measuring import SIZE, trained
from experiments.critical_batch.resampled import critical_sizes, critical_values
from experiments.critical_batch.schedules import schedule_answers
from experiments.findings import Measured
from experiments.tables import Tables

QUESTIONS = Path(__file__).parent / "settings.toml"
BETA1 = Compared(
    "c4-beta1",
    {"beta1_lower": Pair("size", SIZE, "beta1 0.7", "beta1 0.7 against 0.9")},
    base=f"c4-{SIZE}",
)
COSINE = "c4-cosine"


def answers(tables: Tables) -> dict[str, Measured]:
    """Return the answers of the parts that were trained, and write their tables."""
    found: dict[str, Measured] = {}
    if trained(tables, [BETA1.part]):
        runs, points = comparisons.points_of(tables, BETA1)
        cells = cells_of(points)
        tables.write(BETA1.file, critical_sizes(cells, critical_values(cells)))
        found |= comparisons.answers(tables, BETA1, runs, points, cells)
    if parts := trained(tables, [COSINE], "schedules.parquet"):
        keys = {"cosine": "cosine_lower"}
        found |= schedule_answers(tables, BETA1.base, parts, keys, "schedules_cosine.csv")
    return found
