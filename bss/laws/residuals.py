"""What each fit misses, row by row, against what may explain it: the size, the batch, the stage.

Residuals are measured less fitted: log tokens of E(S), nats of final losses, log loss along curves,
log steps of critical batches.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.base import Fit
from bss.laws.critical.values import CriticalFit
from bss.laws.es.design import design
from bss.laws.es.values import EsFit, tokens_to_target
from bss.laws.final_loss.values import TableFit
from bss.laws.functional.values import CurveFit


@dataclass(frozen=True)
class Residuals:
    """A row for each measurement.

    Attributes:
        table: what it is of, the columns of `against`, measured, fitted, residual; left_out, the
            same of a fit that has not seen the row, where there is one.
        unit: of the residuals.
        against: columns that they are shown against, and how an axis calls them.
    """

    table: pd.DataFrame
    unit: str
    against: dict[str, str]


def residuals_of(fit: Fit, data: pd.DataFrame | None = None, *, warmup: int = 0) -> Residuals:
    """The residuals of a fit.

    Args:
        fit: any.
        data: the points of a fit E(S); the others hold their own.
        warmup: not used.

    Raises:
        InputError: the data are missing, or are of another kind.
    """
    if isinstance(fit, TableFit):
        against = {"params": "N", "tokens": "D (tokens)", "log_batch_over_best": "log B/B_opt"}
        against |= {"steps": "steps S"} | ({"lr": "learning rate"} if fit.with_lr else {})
        return Residuals(fit.residuals(), "nats", against)
    if isinstance(fit, CriticalFit):
        against = {"batch": f"batch ({fit.unit})", "log_batch_over_critical": "log B/B_crit",
                   "params": "N", "tokens": "D (tokens)"}  # fmt: skip
        return Residuals(fit.residuals(), "log steps", against)
    if isinstance(fit, CurveFit):
        return Residuals(fit.residuals(), fit.RESIDUAL_UNIT, fit.RESIDUAL_AXES)
    if data is None:
        raise InputError(f"data: missing; a fit of kind {fit.KIND!r} does not hold what it fitted")
    if isinstance(fit, EsFit):
        return _of_es(fit, data)
    raise InputError(f"fit: kind {fit.KIND!r} has no residuals")


def _of_es(fit: EsFit, points: pd.DataFrame) -> Residuals:
    rows = design(points)
    known = {at.target_loss for at in fit.fits if fit.law.joint or at.parameters}
    here = rows.reached & np.isin(rows.target, list(known))
    target, batch = rows.target[here], rows.batch[here]
    fitted = np.full(int(here.sum()), np.nan)
    for loss in np.unique(target):
        at = target == loss
        fitted[at] = tokens_to_target(fit, batch[at].tolist(), float(loss))
    best = {at.target_loss: at.best.value if at.best else None for at in fit.fits}
    vertex = np.array([best[loss] or np.nan for loss in target.tolist()])
    table = {"run": rows.name[here], "batch": batch, "target_loss": target}
    table |= {"steps": rows.steps[here], "log_batch_over_best": np.log(batch / vertex)}
    table |= {"measured": rows.sequences[here] * rows.seq_len, "fitted": fitted}
    against = {"batch": "batch (sequences)", "log_batch_over_best": "log B/B_opt",
               "steps": "steps S", "target_loss": "target loss (nats)"}  # fmt: skip
    return _in_logs(pd.DataFrame(table), "log tokens", against)


def _in_logs(table: pd.DataFrame, unit: str, against: dict[str, str]) -> Residuals:
    fitted = table["fitted"].replace(np.inf, np.nan)  # where a law says that it is never reached
    residual = np.log(table["measured"].to_numpy(float) / fitted.to_numpy(float))
    return Residuals(table.assign(residual=residual), unit, against)
