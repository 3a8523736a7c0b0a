"""What a law E(S) says of constant batches at a budget, of the model that was fitted."""

from dataclasses import replace

import numpy as np

from bss.advice.fit_advice import ONE_MODEL, FitAdvice, of_losses
from bss.errors import InputError
from bss.laws import EsFit
from bss.laws.base import Estimate
from bss.rules import Setting
from bss.units import format_tokens

GRID = 33


def fit_advice(fit: EsFit, setting: Setting, ending: str, name: str) -> FitAdvice:
    """The losses are those of the ending of the fit's own runs.

    Targets stop short of the losses that runs end at, so budgets count as tested that end as far
    beyond the outer ones as these are apart (derived here). What the law says farther out is no
    voice: nothing holds it to a positive loss there.
    """
    batch = np.geomspace(fit.batches[0], fit.batches[-1], GRID)
    try:
        loss = fit.losses(batch, setting.tokens).tolist()
    except InputError as error:  # no law that tells at which loss the budget ends
        return FitAdvice(name, Estimate(None, level=fit.level, note=str(error)), notes=(ONE_MODEL,))
    notes = ["losses are of the rate and the ending of the runs that were fitted", ONE_MODEL]
    advice = of_losses(name, (batch * fit.seq_len).tolist(), loss, fit.level, notes)
    targets = [target.target_loss for target in fit.fits]
    low, high = min(targets), max(targets)
    apart = (high - low) / max(len(targets) - 1, 1)
    if low - apart <= min(loss) <= high + apart:
        return _with_own(fit, advice, int(setting.tokens), min(loss))
    budget = f"{format_tokens(int(setting.tokens))} tokens"
    reason = (
        f"not tested there: by the law {budget} end at a loss of {min(loss):.4g}, the targets "
        f"fitted are {low:.4g} to {high:.4g}"
    )
    runs = (f"runs of {budget} at the batches fitted", *advice.runs)
    return FitAdvice(
        name, Estimate(None, level=fit.level, note=reason), runs=runs, notes=(ONE_MODEL,)
    )


def _with_own(fit: EsFit, advice: FitAdvice, tokens: int, loss: float) -> FitAdvice:
    """The advice with the fit's B_opt at a budget's least loss, which its runs may not tell.

    Losses of other batches are the law's, about that B_opt.
    """
    try:
        own = fit.best_batches(loss).get("B_opt")
    except InputError as error:
        own = Estimate(None, level=fit.level, note=str(error))
    if own is None:  # of a law that has none
        return advice
    ends = (end and end * fit.seq_len for end in (own.value, own.low, own.high))
    own = Estimate(*ends, level=own.level, note=own.note)
    if own.value is None or advice.best.value is None:
        return FitAdvice(advice.name, own, measured=True, runs=advice.runs, notes=advice.notes)
    shift = advice.best.value / own.value
    low, high = (end and end / shift for end in (advice.low, advice.high))
    least, most = (fit.batches[i] * fit.seq_len for i in (0, -1))

    def lost(size: float) -> float | None:
        if not least <= size <= most:
            return None
        return max(float(fit.losses(size * shift / fit.seq_len, tokens)[0]) - loss, 0.0)

    return replace(advice, best=own, low=low, high=high, lost=lost)
