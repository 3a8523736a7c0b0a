"""What a law of loss curves was worth on schedules drawn from a seed. Derived here.

The unit is the schedule: errors are compared on the same ones, with the jackknife's error and the
bootstrap's over them. The law is that of Li et al., arXiv 2509.19189, with batches.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from bss.contests.claims import Asked, Claim, Question, judged
from bss.contests.effects import by_groups
from bss.predictions.score import ALL, LAW
from experiments.predictions.study import STEPS
from experiments.tables import Tables

TABLE = "results/predictions/schedules/predictions.csv"
MEAN = f"mean of {LAW} and {STEPS}"
UNIT = "% of the loss"
QUESTIONS = {
    LAW: Question(
        "Of drawn schedules, the functional law's error is below that of the constant of equal "
        "steps",
        "derived",
        unit=UNIT,
    ),
    MEAN: Question(
        "Of drawn schedules, the error of the mean of the functional law and the constant of equal "
        "steps is below that of the constant",
        "derived",
        unit=UNIT,
    ),
}
GROUPS = {
    "constant": "constant rate",
    "wsd": "decayed",
    "cosine": "cosine",
    ALL: "every ending",
}


def claims(results: Path) -> list[Claim]:
    """Every claim, from the directory of registrations and of the tables of those scored."""
    tables, name = Tables(results), "schedules/predictions.csv"
    if name not in tables:
        return []
    tables.registered("schedules/outcomes.csv", results / "schedules.json")
    return [*compared(tables.read(name))]


def compared(table: pd.DataFrame) -> Iterator[Claim]:
    """The law, and its mean with the baseline, against the baseline; an ending is a family.

    Args:
        table: predictions.csv; schedules of which a run failed have no error to compare.
    """
    for group, name in GROUPS.items():
        some = table.loc[(table["ending"] == group) | (group == ALL)]
        rows = some.dropna(subset=["measured"])
        if len(rows):
            yield from judged(_family(rows, name, len(some) - len(rows)))


def _family(rows: pd.DataFrame, ending: str, failed: int) -> Iterator[Asked]:
    """What is claimed of one ending."""
    measured = rows["measured"].to_numpy(float)
    errors = {
        name: 100 * np.abs(rows[name].to_numpy(float) / measured - 1)
        for name in (*QUESTIONS, STEPS)
    }
    schedules = rows["schedule"].tolist()
    for name, question in QUESTIONS.items():
        note = f"median error {np.median(errors[name]):.2f}%, of the constant of equal steps "
        note += f"{np.median(errors[STEPS]):.2f}%; {len(rows)} schedules"
        note += f", {failed} more failed" * bool(failed)
        effect = by_groups(_mean(errors[name] - errors[STEPS]), schedules)
        yield question.asked(ending, effect, TABLE, note)


def _mean(values: np.ndarray) -> Callable[[np.ndarray], float]:
    """The mean of values [N], as a statistic of how often each counts."""
    return lambda times: float(times @ values / times.sum())
