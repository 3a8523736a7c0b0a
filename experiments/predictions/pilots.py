"""What was known before: mean curves of pilots, and their constants as a baseline."""

import math
from pathlib import Path

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.predictions.draw import Drawn
from bss.tables.columns import need
from bss.tables.storage import read_table
from experiments.late_switch.law import mean_curves
from experiments.predictions.study import Study

METRIC = "eval_loss"
"""What the law is fitted to along a curve, and so what it predicts at the end."""
ENDINGS = {"constant": "constant", "wsd": "decay", "cosine": "cosine"}
"""What the tables of the pilots call them."""
STEPS = "constant of equal steps"
RULE = (
    f"mean {METRIC} over seeds of the constants in {{table}} of the same ending, at the schedule's "
    "mean batch (tokens over steps) and peak rate: linear in log rate at each batch, then in log "
    "batch; a peak outside the rates of a batch is taken at the nearest of them: {clamped}"
)


def curves(study: Study) -> pd.DataFrame:
    """The pilots that the law is fitted to, a run table; the seeds of a schedule are one mean.

    Raises:
        InputError: the table lacks a pilot, or holds a seed that is to be unseen.
    """
    table, origin = read_table(Path(study.pilots) / "runs.parquet")
    need(table, origin, "name", "rate", "peak_lr", "seed", METRIC)
    for seed in sorted({*study.seeds} & {*table["seed"]}):
        raise InputError(f"seeds: {seed} is in {origin.source}; choose those that no fit has seen")
    for name in study.fitted:
        if name not in set(table["name"]):
            raise InputError(f"fitted: {name!r} is no run of {origin.source}; name those that are")
    some = table.loc[table["name"].isin(study.fitted)]
    runs = some["name"] + ", " + some["rate"] + " at " + some["peak_lr"].map("{:g}".format)
    return mean_curves(some.assign(run=runs))


def constants(study: Study) -> pd.DataFrame:
    """Final losses of the pilots' constants, of all seeds: columns rate, batch, peak_lr, METRIC."""
    table, origin = read_table(Path(study.pilots) / "every_rate.csv")
    need(table, origin, "role", "rate", "batch", "peak_lr", METRIC)
    return table.loc[table["role"] == "constant"].astype({"batch": int})


def equal_steps(finals: pd.DataFrame, one: Drawn) -> tuple[float, bool]:
    """The loss of the constant of as many steps in nats, and whether a rate had to be clamped.

    Args:
        finals: as `constants` has them.
        one: a schedule whose mean batch is within theirs.

    Raises:
        InputError: there are none of its ending, or its mean batch is outside those measured.
    """
    some = finals.loc[finals["rate"] == ENDINGS[one.ending]]
    batches = np.unique(some["batch"].to_numpy(float))
    size = one.schedule.batch.mean_batch(one.schedule.tokens)
    if not (len(batches) and batches[0] <= size <= batches[-1]):
        raise InputError(
            f"schedule {one.name}: its mean batch is {size:.3g}, and constants of its ending were "
            f"measured at {', '.join(f'{b:g}' for b in batches) or 'none'}; narrow batches"
        )
    around = batches[[np.searchsorted(batches, size, "right") - 1, np.searchsorted(batches, size)]]
    losses, clamped = [], False
    for batch in around:
        means = some.loc[some["batch"] == batch].groupby("peak_lr")[METRIC].mean()
        rates = means.index.to_numpy(float)
        clamped |= not rates[0] <= one.peak_lr <= rates[-1]
        losses.append(np.interp(math.log(one.peak_lr), np.log(rates), means.to_numpy(float)))
    return float(np.interp(math.log(size), np.log(around), losses)), bool(clamped)
