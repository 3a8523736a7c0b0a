"""How surely neighbouring batches can be told apart, from scatter that was measured before.

    python -m experiments.second_moment.power results

Losses of six batches are drawn, each .010 nats above the one before, with the scatter over seeds
that each batch had in results/late_switch (1M tokens, half-life 7K); the five neighbours of an
ending are judged as the runs will be. Written to results/second_moment/power.csv before any run.
"""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd

from bss.stats import compare
from bss.tables import write_table
from experiments.study import say
from experiments.tables import Tables, folder_asked

EFFECT = 0.010
BATCHES = (1, 2, 4, 8, 16, 32)
SEEDS = (5, 7, 10)
TABLES = 500


def scatter(runs: pd.DataFrame, ending: str) -> np.ndarray:
    """Standard deviation over seeds of each batch's test loss, in nats, [BATCHES].

    What a seed does to all runs alike (their median) is taken out; root mean square over rates.

    Args:
        runs: results/late_switch/every_rate.csv.
        ending: as in its column `rate`.
    """
    some = runs[(runs["ending"] == ending) & runs["name"].isin([f"constant {b}" for b in BATCHES])]
    losses = some.pivot_table(index=["batch", "peak_lr"], columns="seed", values="test_loss")
    apart = losses.to_numpy(float) - np.median(losses.to_numpy(float), axis=0)
    of = losses.index.get_level_values("batch").to_numpy()
    return np.sqrt([apart[of == str(batch)].var(axis=1, ddof=1).mean() for batch in BATCHES])


def power(deviations: np.ndarray, seeds: int, tables: int = TABLES, draw: int = 0) -> np.ndarray:
    """How often each pair of neighbours is told apart in the right direction, [BATCHES - 1]."""
    random = np.random.default_rng(draw)
    names = [str(batch) for batch in BATCHES]
    pairs = list(zip(names[1:], names[:-1], strict=True))
    counts = np.zeros(len(pairs))
    for _ in range(tables):
        noise = deviations[:, None] * random.standard_normal((len(names), seeds))
        losses = pd.DataFrame(EFFECT * np.arange(len(names))[:, None] + noise, names)
        judged = compare(losses, pairs)
        counts += [judged[pair].sign > 0 for pair in pairs]
    return counts / tables


def main(results: Path) -> None:
    """Writes the table, and says it."""
    runs = Tables(results / "late_switch").read("every_rate.csv")
    deviations = {ending: scatter(runs, ending) for ending in ("constant", "averaged", "decay")}
    rows = [
        {"ending": ending, "seeds": seeds, "small": a, "large": b, "told_apart": p}
        for ending, seeds in itertools.product(deviations, SEEDS)
        for (a, b), p in zip(
            itertools.pairwise(BATCHES), power(deviations[ending], seeds), strict=True
        )
    ]
    for ending, values in deviations.items():
        say(f"{ending}: scatter {dict(zip(BATCHES, values.round(4).tolist(), strict=True))}")
    write_table(pd.DataFrame(rows), results / "second_moment/power.csv")


if __name__ == "__main__":
    main(folder_asked(__doc__))
