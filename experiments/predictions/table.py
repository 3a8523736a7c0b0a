"""What was registered beside what was measured, a row a schedule."""

from collections.abc import Sequence

import pandas as pd

from bss.predictions.registration import Registration
from bss.predictions.score import LAW, Score


def predictions_table(
    registration: Registration, score: Score, ended: pd.DataFrame, seeds: Sequence[int]
) -> pd.DataFrame:
    """Measured losses and every prediction of them, in nats.

    Args:
        registration: what was predicted, the runs of a schedule in the order of the seeds.
        found: its score.
        ended: how the runs ended, as `bss.sweeps.table.outcomes` has them.
        seeds: of the runs.

    Returns:
        schedule, batch, ending, peak_lr, measured (the mean; empty where a run failed), seed_S for
        each seed, law with its interval low and high, covered, and each other predictor by name.
    """
    losses = ended.set_index("run")[registration.metric]
    rows = []
    for one, scored in zip(registration.predictions, score.schedules, strict=True):
        row = {"schedule": one.name, "batch": str(one.schedule and one.schedule.batch)}
        row |= {"ending": one.ending, "peak_lr": one.peak_lr, "measured": scored.measured}
        row |= {f"seed_{seed}": losses[run] for seed, run in zip(seeds, one.runs, strict=True)}
        row |= {LAW: one.loss.value, "low": one.loss.low, "high": one.loss.high}
        rows.append(row | {"covered": scored.covered} | scored.predicted)
    return pd.DataFrame(rows)
