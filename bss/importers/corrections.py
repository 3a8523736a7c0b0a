"""Corrections that give the columns of a trainer their meaning in a Log."""

import numpy as np

from bss.errors import InputError
from bss.importers.log import LOSSES, Correction, Rows


def as_logged(rows: Rows) -> Rows:
    """Return the rows unchanged: their step counts completed steps."""
    return rows


def completed(rows: Rows) -> Rows:
    """Return the rows of a trainer whose step is the index of the step just done, from 0 on."""
    return {**rows, "step": rows["step"] + 1} if "step" in rows else rows


def losses_completed(rows: Rows) -> Rows:
    """Return the rows with training losses one step on, and held-out ones as they are."""
    if not {"step", "loss"} <= set(rows):
        return rows
    held_out = {**rows, "loss": np.full(len(rows["step"]), np.nan)}
    trained = {**completed(rows), "eval_loss": held_out["loss"]}
    both = held_out.keys() if "eval_loss" in rows else rows.keys()
    return {column: np.concatenate([trained[column], held_out[column]]) for column in both}


def falling(rows: Rows) -> Rows:
    """Return the rows; refuse a held-out value that rises, as an accuracy does."""
    values = rows.get("eval_loss", np.zeros(0))
    values = values[np.isfinite(values)]
    if len(values) > 1 and values[-1] > values[0] and values.max() <= 1:
        raise InputError("eval_accuracy rises, so it is an accuracy and no loss; leave the log out")
    return rows


def diverged(rows: Rows) -> Rows:
    """Return the rows, with an infinite loss in NaN iterations after the last finite loss."""
    losses = [rows[name] for name in LOSSES if name in rows]
    if "nan" not in rows or not losses:
        return rows
    finite = np.flatnonzero(np.any([np.isfinite(values) for values in losses], axis=0))
    lost = np.all([np.isnan(values) for values in losses], axis=0) & (rows["nan"] > 0)
    lost[: finite[-1] + 1 if len(finite) else 0] = False
    loss = rows.get("loss", np.full(len(lost), np.nan))
    return {**rows, "loss": np.where(lost, np.inf, loss)}


def batch_tokens(rows: Rows) -> Rows:
    """Return the rows with the tokens of a step, from the tokens and steps before it."""
    steps, tokens = rows.get("steps_before"), rows.get("tokens_before")
    if steps is None or tokens is None:
        return rows
    size = np.divide(tokens, steps, out=np.full(len(steps), np.nan), where=steps > 0)
    known = np.unique(size[np.isfinite(size)])
    one = len(known) == 1 and known[0] % 1 == 0
    return {**rows, "batch_tokens": np.full(len(steps), known[0])} if one else rows


CORRECTIONS: dict[str, Correction] = {
    function.__name__: function
    for function in (as_logged, completed, losses_completed, falling, diverged, batch_tokens)
}
"""Corrections by name."""
