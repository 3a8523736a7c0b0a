"""What the runs show of arXiv 2601.05034, from the committed tables."""

from pathlib import Path

import pandas as pd

from bss.points.claims import Claim, claim
from bss.points.standings import ENDINGS, NO_WORSE, against_best

TABLE = "results/es_wsd/contenders.csv"


def claims(results: Path) -> list[Claim]:
    """Every claim, from a results directory of this experiment."""
    return contenders(pd.read_csv(results / "contenders.csv"))


def contenders(table: pd.DataFrame) -> list[Claim]:
    """Whether a growing batch ends below the best constant of the same ending, at equal tokens."""
    made = []
    for ending, told in ENDINGS.items():
        if ending not in set(table["rate"]):
            continue
        best, found = against_best(table, ending)
        for name, effect in found.items():
            follows = table.loc[table["name"] == name, "role"].iloc[0] == "schedule"
            made.append(
                claim(
                    "Following B_opt ends lower than the best constant batch"
                    if follows
                    else "A late switch ends lower than the best constant batch",
                    "paper" if follows else "derived",
                    f"{name}, {told.short}",
                    effect,
                    sign=-1,
                    unit="nats",
                    table=TABLE,
                    matters=NO_WORSE,
                    note=f"less {best}, chosen by held-out loss",
                )
            )
    return made
