"""Train batch sizes with and without weight decay.

python -m experiments.template.run runs/weight_decay
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import bss
from bss.tables import write_table

SETUP = bss.Setup(
    model="pico",
    text=bss.TextConfig(corpus="stdlib", seq_len=64),
    schedule=bss.ScheduleConfig(tokens=500_000, warmup=25_000),
)
AXES = {"optimizer.weight_decay": [0.0, 0.1], "schedule.batch": [2, 8, 32], "seed": [0, 1, 2]}


def train(
    folder: Path, setup: bss.Setup = SETUP, axes: Mapping[str, Any] = AXES, engine: str = "local"
) -> None:
    """Train every combination of the axes; called again it trains what is missing."""
    swept = bss.sweep(setup, axes, folder / "runs", engine=engine, title="weight decay")
    write_table(swept.runs, folder / "runs.parquet")
    write_table(swept.finals, folder / "finals.csv")


if __name__ == "__main__":
    train(Path(sys.argv[1]))
