"""The answer of a user's own fit, of each kind that has a best batch."""

from dataclasses import replace

import numpy as np

from bss.advice import of_table
from bss.advice.fit_advice import FitAdvice, of_losses
from bss.errors import InputError
from bss.laws import CurveFit, EsFit, TableFit
from bss.laws.base import Estimate
from bss.laws.functional.curves import stack
from bss.laws.functional.forecast import untested
from bss.laws.functional.law import law_losses
from bss.laws.functional.paths import plan_path
from bss.rules import Setting
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import Rate, wsd

GRID = 33  # batch sizes between the smallest and largest fitted
DECAY = 0.2  # share of the budget in which the learning rate decays under WSD
ONE_MODEL = "the fit is of one model of unknown size: check that it is the model of --params"


def fit_advice(fit: EsFit | CurveFit | TableFit, setting: Setting, ending: str) -> FitAdvice:
    """Return the best batch size; without a value if the fit was not tested there.

    Raises:
        InputError: If a curve fit needs a peak learning rate and the setting has none.
    """
    if isinstance(fit, TableFit):
        return of_table.fit_advice(fit, setting, ending)
    if isinstance(fit, CurveFit):
        return _of_curve(fit, setting, ending)
    try:
        return _of_es(fit, setting)
    except InputError as error:  # the law has no loss or no B_opt for this budget
        return FitAdvice(Estimate(None, level=fit.level, note=str(error)), warnings=(ONE_MODEL,))


def _of_es(fit: EsFit, setting: Setting) -> FitAdvice:
    """Return B_opt at the lowest loss of the budget, and the losses of other batch sizes.

    The targets do not reach the final losses. So a budget counts as tested if its loss lies within
    one mean distance between targets of the outer ones (derived here).
    """
    batch = np.geomspace(fit.batches[0], fit.batches[-1], GRID)
    loss = fit.losses(batch, int(setting.tokens)).tolist()
    targets = sorted(target.target_loss for target in fit.fits)
    apart = (targets[-1] - targets[0]) / max(len(targets) - 1, 1)
    if not targets[0] - apart <= min(loss) <= targets[-1] + apart:
        raise InputError(
            f"not tested there: a predicted loss of {min(loss):.4g}, fitted targets "
            f"{targets[0]:.4g} to {targets[-1]:.4g}"
        )
    how = ("losses apply to the LR schedule of the fitted runs", ONE_MODEL)
    advice = of_losses((batch * fit.seq_len).tolist(), loss, fit.level, how)
    own = fit.best_batches(min(loss)).get("B_opt")
    if own is None:  # a law without B_opt
        return advice
    ends = (end and end * fit.seq_len for end in (own.value, own.low, own.high))
    return replace(advice, best=Estimate(*ends, level=own.level, note=own.note))


def _of_curve(fit: CurveFit, setting: Setting, ending: str) -> FitAdvice:
    """Return the best batch size at one peak learning rate."""
    least, most = fit.batches
    batch = np.unique(np.geomspace(max(1, least), most, GRID).round().astype(int))
    rate, tokens = _rate(fit, setting, ending), int(setting.tokens)
    paths = [plan_path(BatchSchedule.parse(str(b)), tokens, fit.seq_len, rate) for b in batch]
    curves = stack(paths, fit.seq_len)
    loss = law_losses(fit.law, curves)[:, 0]
    if beyond := untested(fit, curves)[int(np.argmin(loss))]:
        none = Estimate(None, level=fit.level, note=f"not tested there: {'; '.join(beyond)}")
        return FitAdvice(none, warnings=(ONE_MODEL,))
    warnings = [f"all batches have LR {rate.peak:g}: the optimum at it, not B_opt", ONE_MODEL]
    if fit.unidentified:
        warnings.append(f"the runs do not identify {', '.join(fit.unidentified)}")
    return of_losses((batch * fit.seq_len).tolist(), loss.tolist(), fit.level, warnings)


def _rate(fit: CurveFit, setting: Setting, ending: str) -> Rate:
    """Return the LR schedule of the option --ending."""
    decay = {"wsd": DECAY, "cosine": 1.0, "constant": 0.0}[ending] * setting.tokens
    shape = "cosine" if ending == "cosine" else "linear"
    return wsd(fit.peak_lr(setting.lr), setting.tokens, 0, decay, shape)
