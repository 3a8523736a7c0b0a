"""Corrections that give the columns of a trainer their meaning in a Log."""

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.importers.log import LOSSES, Correction, Rows


def as_logged(rows: Rows) -> Rows:
    """Return the rows unchanged: their step counts completed steps."""
    return rows


def completed(rows: Rows) -> Rows:
    """Return the rows of a trainer whose step is the index of the step just done, from 0 on."""
    return rows.assign(step=rows["step"] + 1) if "step" in rows else rows


def losses_completed(rows: Rows) -> Rows:
    """Return the rows with training losses one step on, and held-out ones as they are."""
    if not {"step", "loss"} <= {*rows}:
        return rows
    trained = completed(rows).drop(columns="eval_loss", errors="ignore")
    return pd.concat([trained, rows.drop(columns="loss")], ignore_index=True)


def falling(rows: Rows) -> Rows:
    """Return the rows; refuse a held-out value that rises, as an accuracy does."""
    values = rows.filter(["eval_loss"]).to_numpy()
    values = values[np.isfinite(values)]
    if len(values) > 1 and values[-1] > values[0] and values.max() <= 1:
        raise InputError("eval_accuracy rises, so it is an accuracy and no loss; leave the log out")
    return rows


def diverged(rows: Rows) -> Rows:
    """Return the rows, with an infinite loss in NaN iterations after the last finite loss."""
    losses = rows.filter(LOSSES)
    if "nan" not in rows or losses.empty:
        return rows
    finite = np.isfinite(losses).any(axis=1)
    lost = losses.isna().all(axis=1) & (rows["nan"] > 0) & ~finite[::-1].cummax()[::-1]
    return rows.assign(loss=np.where(lost, np.inf, rows.get("loss", np.nan)))


def batch_tokens(rows: Rows) -> Rows:
    """Return the rows with the tokens of a step, from the tokens and steps before it."""
    if not {"steps_before", "tokens_before"} <= {*rows}:
        return rows
    sizes = (rows["tokens_before"] / rows["steps_before"])[rows["steps_before"] > 0].unique()
    sizes = sizes[np.isfinite(sizes)]
    one = len(sizes) == 1 and sizes[0] % 1 == 0
    return rows.assign(batch_tokens=sizes[0]) if one else rows


CORRECTIONS: dict[str, Correction] = {
    function.__name__: function
    for function in (as_logged, completed, losses_completed, falling, diverged, batch_tokens)
}
"""Corrections by name."""
