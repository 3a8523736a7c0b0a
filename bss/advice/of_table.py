"""The answer of a law of final losses, inside the range it was tested in."""

from importlib.resources import files
from pathlib import Path

import numpy as np

from bss.advice.fit_advice import FitAdvice
from bss.errors import InputError
from bss.files import read_json
from bss.laws import TableFit
from bss.laws.base import Estimate
from bss.laws.final_loss.points import SAME_BUDGET
from bss.rules import Setting

PUBLISHED = Path(str(files("bss.laws"))) / "published" / "steplaw_dense.json"
"""The fit of a published table: 170 final losses of arXiv 2503.04715, 17 (N, D). Made by `bss fit
table results/published/steplaw_dense_best.csv --json`; a test makes it again."""
FACTORS = 2.0 ** np.linspace(-4, 4, 65)
"""Multiples of the optimum: as far as a tolerance of 0.003 nats reaches, 8 per doubling."""

NEAR = 1.05  # budgets between which the loss's slope in log tokens is taken


def published(setting: Setting) -> FitAdvice:
    """Return the answer of the committed fit of published final losses."""
    fit = TableFit.from_dict(read_json(PUBLISHED, "install bss again"))
    return fit_advice(fit, setting, "cosine")


def fit_advice(fit: TableFit, setting: Setting, ending: str) -> FitAdvice:
    """Return B_opt and the losses around it; without a value if the fit was not tested there."""
    N, D = setting.params, setting.tokens
    sizes, least = {"params": N, "tokens": D}, 1 + SAME_BUDGET  # budgets are of whole steps
    try:
        fit.check_tested({n: x for n, x in sizes.items() if fit.tested[n].times(x) > least})
    except InputError as error:
        return FitAdvice(Estimate(None, level=fit.level, note=f"not tested there: {error}"))
    best = fit.best_batch(N, D)
    if best.value is None:
        return FitAdvice(best)
    own = float(fit.law.curve(N, D)[2])  # of the law, about which its losses are
    seen = fit.tested["batch_tokens"]
    known = FACTORS[(own * FACTORS >= seen.low) & (own * FACTORS <= seen.high)]
    excess = np.maximum(fit.law.excess_loss(N, D, own * known), 0.0)
    lr = () if setting.lr is None else (f"losses are of LRs tuned per batch, not {setting.lr:g}",)
    less, more = (float(fit.law.curve(N, D * x)[1].min()) for x in (1 / NEAR, NEAR))
    return FitAdvice(best, known, excess, lr, slope=(less - more) / (2 * np.log(NEAR)))
