"""What the functional law says of constant batches at a budget, of the model that was fitted."""

import numpy as np

from bss.advice.fit_advice import ONE_MODEL, FitAdvice, of_losses
from bss.errors import InputError
from bss.laws import CurveFit
from bss.laws.base import Estimate
from bss.laws.functional.curves import stack
from bss.laws.functional.forecast import FAR, untested
from bss.laws.functional.law import law_losses
from bss.laws.functional.paths import plan_path
from bss.rules import Setting
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import Rate, wsd

GRID = 33
DECAY = 0.2  # of the budget, under WSD


def fit_advice(fit: CurveFit, setting: Setting, ending: str, name: str) -> FitAdvice:
    """At one peak rate for all batches.

    What it says of budgets that none of its runs came near is no voice.

    Raises:
        InputError: the runs had several rates and the setting has none, or the law says nothing of
            averaged weights.
    """
    tokens = int(setting.tokens)
    least, most = fit.batches
    batch = np.unique(np.geomspace(max(1, least), most, GRID).round().astype(int))
    rate = _rate(fit, setting, ending)
    paths = [plan_path(BatchSchedule.parse(str(b)), tokens, fit.seq_len, rate) for b in batch]
    curves = stack(paths, fit.seq_len)
    loss = law_losses(fit.law, curves)[:, 0]
    one_rate = f"losses are of one rate for all batches, {rate.peak:g}: that rate's best, not B_opt"
    notes = [one_rate, ONE_MODEL]
    if fit.unidentified:
        notes.append(f"the runs do not identify {', '.join(fit.unidentified)}")
    advice = of_losses(name, (batch * fit.seq_len).tolist(), loss.tolist(), fit.level, notes)
    beyond = untested(fit, curves)[int(np.argmin(loss))]
    if not beyond:
        return advice
    none = Estimate(None, level=fit.level, note=f"not tested there: {'; '.join(beyond)}")
    near = fit.since < tokens <= FAR * fit.tokens
    voice = advice.best.value if near else None
    return FitAdvice(name, none, extrapolated=voice, notes=tuple(notes) if near else (ONE_MODEL,))


def asked_peak(fit: CurveFit, lr: float | None) -> float:
    """The peak rate that is asked for; without one that of all runs, where they had one."""
    least, most = fit.rates
    if lr is None and least != most:
        raise InputError(
            f"--lr: missing; give the peak rate, of {least:.4g} to {most:.4g} measured"
        )
    return most if lr is None else lr


def _rate(fit: CurveFit, setting: Setting, ending: str) -> Rate:
    peak, tokens = asked_peak(fit, setting.lr), setting.tokens
    if ending == "average":
        raise InputError(
            "--ending average: a curve fit says nothing of averaged weights; give constant, wsd or "
            "cosine"
        )
    decay = {"wsd": DECAY, "cosine": 1.0, "constant": 0.0}[ending] * tokens
    return wsd(peak, tokens, 0, decay, "cosine" if ending == "cosine" else "linear")
