"""The best batch size of a planned run by a fit, inside the range that the fit was tested in."""

from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bss.advice.fit_advice import FitAdvice, of_losses
from bss.errors import InputError
from bss.laws import LossFit, read_fit
from bss.laws.base import Estimate
from bss.laws.final_loss.points import SAME_BUDGET
from bss.rules import Setting
from bss.units import rounded_tokens

if TYPE_CHECKING:
    from bss.laws import EsFit

PUBLISHED = Path(str(files("bss.laws"))) / "published" / "steplaw_dense.json"
"""The fit of a published table: 170 final losses of arXiv 2503.04715, 17 (N, D). Made by `bss fit
table results/published/steplaw_dense_best.csv --json`; a test makes it again."""
FACTORS = 2.0 ** np.linspace(-4, 4, 65)
"""Multiples of the optimum: as far as a tolerance of 0.003 nats reaches, 8 per doubling."""
NEAR = 1.05  # budgets between which the loss's slope in log tokens is taken
GRID = 33  # batch sizes between the smallest and largest fitted
ONE_MODEL = "the fit is of one model of unknown size: check that it is the model of --params"


def published(setting: Setting) -> FitAdvice:
    """Return the answer of the committed fit of published final losses."""
    return fit_advice(read_fit(PUBLISHED), setting)


def nearest_published(setting: Setting) -> tuple[FitAdvice, str]:
    """Return the answer at the nearest size and budget of the published fit, and these in words."""
    fit = read_fit(PUBLISHED)
    ranges = {name: fit.tested[name] for name in ("params", "tokens")}
    sizes = {n: min(max(getattr(setting, n), x.low), x.high) for n, x in ranges.items()}
    place = (
        f"{rounded_tokens(sizes['params'])} parameters, {rounded_tokens(sizes['tokens'])} tokens"
    )
    return fit_advice(fit, replace(setting, **sizes)), place


def fit_advice(fit: Any, setting: Setting) -> FitAdvice:
    """Return the best batch size of a fit; without a value if the fit was not tested there.

    Args:
        fit: of a table or of E(S).
        setting: the planned run.
    """
    answer, warnings = (_of_loss, ()) if fit.KIND == "loss" else (_of_es, (ONE_MODEL,))
    try:
        return answer(fit, setting)
    except InputError as error:  # not tested there, or a law without a loss or B_opt
        return FitAdvice(Estimate(None, level=fit.level, note=str(error)), warnings=warnings)


def _of_loss(fit: LossFit, setting: Setting) -> FitAdvice:
    """Return B_opt and the losses around it."""
    N = setting.params
    D = setting.tokens
    sizes = {"params": N, "tokens": D}
    least = 1 + SAME_BUDGET  # budgets are of whole steps
    if beyond := fit.untested({n: x for n, x in sizes.items() if fit.tested[n].times(x) > least}):
        raise InputError(f"not tested there: {beyond[0]}")
    best = fit.best_batch(N, D)
    if best.value is None:
        return FitAdvice(best)
    own = float(fit.law.curve(N, D)[2])  # of the law, about which its losses are
    seen = fit.tested["batch_tokens"]
    known = FACTORS[(own * FACTORS >= seen.low) & (own * FACTORS <= seen.high)]
    excess = np.maximum(fit.law.excess_loss(N, D, own * known), 0.0)
    lr = () if setting.lr is None else (f"losses are of LRs tuned per batch, not {setting.lr:g}",)
    less = float(fit.law.curve(N, D / NEAR)[1].min())
    more = float(fit.law.curve(N, D * NEAR)[1].min())
    return FitAdvice(best, known, excess, lr, slope=(less - more) / (2 * np.log(NEAR)))


def _of_es(fit: "EsFit", setting: Setting) -> FitAdvice:
    """Return B_opt at the lowest loss of the budget, and the losses of other batch sizes.

    The targets do not reach the final losses. So a budget counts as tested if its loss lies within
    one mean distance between targets of the outer ones (derived here).
    """
    if fit.in_sequences:
        raise InputError("the fit's table had no sequence length; fit it again with --seq-len")
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
