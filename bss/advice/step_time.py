"""The soonest and the cheapest batch size of a planned run, by seconds per step.

A fit of E(S) gives the tokens of each batch size to a target. Other sources give losses at equal
tokens. A batch size with an excess loss ΔL needs D·exp(ΔL/s) tokens for the loss of the best one,
to first order. Here s = −dL/dlog D at the optimum (derived here).
"""

from typing import Any

import numpy as np
import pandas as pd

from bss.advice.advice import Advice
from bss.errors import InputError
from bss.laws.step_time import StepTime, best_batches, equal_loss_batches


def equal_time(
    advice: Advice, fit: Any, step_time: StepTime, price: float
) -> tuple[str, pd.DataFrame]:
    """Return the loss, and the batch sizes with the fewest tokens, least time and least cost.

    Args:
        advice: for the planned run.
        fit: of the user, or None. One of E(S) has the loss: its target nearest to that of the run.
        step_time: seconds per step.
        price: of a device-hour.
    """
    if fit is None or fit.KIND != "es":
        return "the loss of the best batch", of_losses(advice, step_time, price)
    loss = float(np.min(fit.losses(np.array(fit.batches), int(advice.setting.tokens))))
    nearest = min((at.target_loss for at in fit.fits), key=lambda target: abs(target - loss))
    return f"loss {nearest:.4g}", best_batches(fit, nearest, step_time, price)


def of_losses(advice: Advice, step_time: StepTime, price: float) -> pd.DataFrame:
    """Return the table of the batch sizes with the fewest tokens, least time and least cost.

    Its intervals follow from the interval of the optimum, with which the losses shift.

    Raises:
        InputError: If the optimum or the losses of other batch sizes are unknown.
    """
    best = advice.batch
    setting = advice.setting
    losses, _ = advice.known_losses()
    if best.value is None or losses.slope is None or not losses.factors.size:
        why = "needs a fit of E(S) or of final losses that has an optimum for this run"
        raise InputError(f"--step-time: {why}; leave it out")
    batch = best.value * losses.factors / setting.seq_len
    known = np.log(losses.factors)
    tokens = [
        setting.tokens
        * np.exp(
            np.interp(np.log(batch * setting.seq_len / end), known, losses.excess) / losses.slope
        )
        for end in (best.value, best.low or best.value, best.high or best.value)
    ]
    return equal_loss_batches(batch, np.array(tokens).T, setting.seq_len, step_time, price)
