"""Whether the L_0 that a law reports is the language's, from the committed tables.

A practitioner is a seed: one sweep, one fit of every law. Derived here, no paper's claim.
"""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from bss.contests.claims import Claim, Question
from bss.contests.contrasts import over_seeds
from experiments.tables import Tables

TABLE = "results/irreducible_loss/irreducible.csv"
TRUE = Question("The L_0 that a law reports is the language's", "derived", 0)
FLOOR = Question(
    "The L_0 that a law reports is the lowest loss that the model reaches", "derived", 0
)


def claims(results: Path) -> list[Claim]:
    """Every claim, from a results directory of this experiment."""
    tables = Tables(results)
    error = tables.json("experiment.json")["L_0_standard_error"]
    return [*biases(tables.read("irreducible.csv"), error)]


def biases(table: pd.DataFrame, error: float = 0.0) -> Iterator[Claim]:
    """Every law's L_0 less the truth, and less what the model reaches; a family for each.

    Args:
        table: irreducible.csv.
        error: standard error of the truth, which is beside the scatter over seeds a trifle.
    """
    beside = {
        TRUE: ("truth", "covers", f"the truth is known to {error:.4f} (standard error)"),
        FLOOR: ("reached", "covers_reached", "an upper bound of the model's own floor"),
    }
    for question, (against, covers, known) in beside.items():
        apart = table["L_0"] - table[against]
        biases = {
            str(law): rows.to_numpy(float) for law, rows in apart.groupby(table["law"], sort=False)
        }
        for law, effect in over_seeds(biases).items():
            rows = table.loc[table["law"] == law]
            note = (
                f"its {rows['level'].iloc[0]:.0%} interval covers it in {rows[covers].sum()} of "
                f"{len(rows)} seeds; {known}; the batches were chosen on pilots of some of these "
                "seeds, with the truth in view"
            )
            yield question.claim(law, effect, TABLE, note)
