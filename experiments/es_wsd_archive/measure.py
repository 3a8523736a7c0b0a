"""Several laws fitted to one table of points, and B_opt of points and of laws.

For the committed tables of results/es_wsd and results/second_moment, and the demo.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from bss.laws import EsFit, fit_es
from bss.laws.base import Options
from bss.laws.es.compare import compare, shown_laws
from bss.laws.es.values import Comparison
from bss.points.crossings import optima

OPTIMUM = ["target_loss", "batch", "low", "high", "bound"]


@dataclass(frozen=True)
class Laws:
    """The laws of one E(S): how well each predicts left-out batches, and their fits by name.

    The first is that of the law that was chosen.
    """

    comparison: Comparison
    fits: dict[str, EsFit]

    @property
    def best(self) -> EsFit:
        """The fit of the chosen law."""
        return next(iter(self.fits.values()))


def fit_laws(measured: pd.DataFrame, options: Options, others: Sequence[str] | None = None) -> Laws:
    """The law that is chosen and others: the best surface and one law of each family."""
    fit = fit_es(measured, options=options)
    comparison = fit.comparison or compare(measured)
    beside = shown_laws(comparison) if others is None else others
    named = {law: fit_es(measured, law, options=options) for law in beside if law != fit.law_name}
    return Laws(comparison, {fit.law_name: fit} | named)


def optimum_table(points: pd.DataFrame) -> pd.DataFrame:
    """The measured optimum of each target with 2 standard errors, in sequences.

    An end that a bound leaves open is NaN.
    """
    rows = []
    for optimum in optima(points):
        low, high = (math.nan if end is None else end for end in optimum.ends)
        rows.append((optimum.target_loss, 2**optimum.log2_batch.value, low, high, optimum.bound))
    return pd.DataFrame(rows, columns=pd.Index(OPTIMUM))


def law_optimum(fit: EsFit) -> pd.DataFrame:
    """A law's B_opt at each target that identifies it, with the fit's interval."""
    rows = []
    for target in fit.fits:
        at = target.batches.get("B_opt")
        if target.status == "converged" and at is not None and at.value is not None:
            rows.append((target.target_loss, at.value, at.low, at.high, ""))
    return pd.DataFrame(rows, columns=pd.Index(OPTIMUM))
