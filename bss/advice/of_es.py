"""What a law E(S) says of constant batches at a budget, of the model that was fitted."""

import numpy as np

from bss.advice.fit_advice import ONE_MODEL, FitAdvice, of_losses
from bss.laws import EsFit
from bss.laws.es.values import predicted_loss
from bss.laws.fitting.estimate import Estimate
from bss.rules import Setting
from bss.units import format_tokens

GRID = 33


def fit_advice(fit: EsFit, setting: Setting, ending: str, name: str) -> FitAdvice:
    """The losses are those of the ending of the fit's own runs.

    Targets stop short of the losses that runs end at, so budgets count as tested that end as far
    beyond the outer ones as these are apart (derived here). What the law says farther out is no
    voice: nothing holds it to a positive loss there.
    """
    batch = np.geomspace(fit.measured_batches[0], fit.measured_batches[-1], GRID)
    loss = [predicted_loss(fit, int(setting.tokens), size) for size in batch]
    notes = ["losses are of the rate and the ending of the runs that were fitted", ONE_MODEL]
    advice = of_losses(name, (batch * fit.seq_len).tolist(), loss, fit.level, notes)
    targets = [target.target_loss for target in fit.fits]
    low, high = min(targets), max(targets)
    apart = (high - low) / max(len(targets) - 1, 1)
    if low - apart <= min(loss) <= high + apart:
        return advice
    budget = f"{format_tokens(int(setting.tokens))} tokens"
    reason = (
        f"not tested there: by the law {budget} end at a loss of {min(loss):.4g}, the targets "
        f"fitted are {low:.4g} to {high:.4g}"
    )
    runs = (f"runs of {budget} at the batches fitted", *advice.runs)
    return FitAdvice(
        name, Estimate(None, level=fit.level, note=reason), runs=runs, notes=(ONE_MODEL,)
    )
