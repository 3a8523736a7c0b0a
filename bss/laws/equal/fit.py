"""The best batch size of runs of equal cost: by a parabola, and by a law if times are known.

The parabola is that of bss.laws.bracketed, through the lowest loss and its neighbours in log B. The
law is that of bss.laws.equal.law.
"""

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.base import BestBatch, Options, Status
from bss.laws.bracketed import Bracketed, bracketed_minimum
from bss.laws.equal.data import EqualRuns, EqualTable, equal_table
from bss.laws.equal.law import fit_step_law
from bss.laws.equal.values import EqualFit, EqualOptimum


def fit_equal(table: pd.DataFrame, column: str, *, options: Options | None = None) -> EqualFit:
    """Fit the best batch size at each equal cost.

    Args:
        table: as `bss.laws.equal.data.check_equal` returns it.
        column: of the cost, e.g. "seconds".
        options: level of the intervals and seed.

    Raises:
        InputError: If no three batch sizes have equal cost, or no row has a finite loss.

    Source: derived here.
    """
    how = options or Options()
    groups = equal_table(table, column)
    optima = [_optimum(one, groups, how) for one in groups.groups]
    why = {at.by_law.why for at in optima if at.by_law.status != "ok"}
    texts = [f"no best batch by the law: {text}" for text in sorted(why)]
    return EqualFit(
        optima=tuple(optima),
        column=column,
        unit=groups.unit,
        loss_noise=groups.noise,
        level=how.level,
        resamples=how.resamples,
        warnings=(*groups.warnings, *texts),
    )


def _optimum(runs: EqualRuns, groups: EqualTable, how: Options) -> EqualOptimum:
    """Return the best batch size of a group."""
    noise = groups.noise / np.sqrt(runs.count)
    found = bracketed_minimum(runs.batch, runs.loss, noise, level=how.level, seed=how.seed)
    return EqualOptimum(
        cost=runs.cost,
        params=runs.params,
        best=_best_batch(found, how.level),
        by_law=_by_law(runs, groups, noise, how),
        lowest=found.lowest,
        batch=runs.batch,
        loss=runs.loss,
        error=noise,
        steps=runs.steps,
    )


def _best_batch(found: Bracketed, level: float) -> BestBatch:
    """Return the best batch with its status."""
    best = found.best
    status: Status = "ok"
    if best.value is None:
        at_end = None in found.bracket
        status = "at_boundary" if at_end else "within_noise"
    return BestBatch(
        best.value, best.low, best.high, level, best.note, status=status, method="parabola"
    )


def _by_law(runs: EqualRuns, groups: EqualTable, noise: np.ndarray, how: Options) -> BestBatch:
    """Return the best batch by the law of steps, or why there is none."""
    none = BestBatch(None, level=how.level, method="law")
    if groups.contradiction:
        return none.unknown("too_few_batches", groups.contradiction)
    try:
        law = fit_step_law(runs.batch, runs.steps, runs.seconds, runs.loss, noise, how.seed)
    except InputError as error:
        return none.unknown("too_few_batches", str(error))
    return law.best(how.level, groups.unit)
