"""The law of final losses L(N, D, B), of the learning rate too if it varies, and best batches.

A form with the residuals that the rows near by predict (bss.laws.final_loss.fitting); best batches
and LRs are where its draws are lowest (bss.laws.final_loss.best).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, compress
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.base import DRAWS, SPANS, Estimate, Options, Outlier, too_wide
from bss.laws.final_loss.best import best_batches, best_lrs, exponents
from bss.laws.final_loss.fitting import (
    Fold,
    best_fit,
    folds_of,
    residuals_over_error,
    unseen_losses,
    widened,
)
from bss.laws.final_loss.forms import FORMS, Form
from bss.laws.final_loss.law import LossLaw
from bss.laws.final_loss.points import NEAR, LossPoints
from bss.laws.final_loss.table import loss_points
from bss.laws.final_loss.values import SIZES, LossFit, TestedRange
from bss.laws.minimum import FEWEST
from bss.laws.problem import parse_ranges
from bss.laws.resampling import rms, robust_scale
from bss.laws.solver import Solution
from bss.points.measuring import equal_steps

OUTLIER = 6.0  # expected errors from which a row is an outlier: one in a billion by chance
MOST_OUTLIERS = 0.1  # share of rows: more than that are a law that does not fit


def fit_loss(
    table: pd.DataFrame,
    *,
    forms: Sequence[str] | None = None,
    constraints: str = "",
    options: Options | None = None,
) -> LossFit:
    """Fit the law of final losses.

    Args:
        table: as `bss.laws.final_loss.table.check_losses` returns it.
        forms: by name or `package.module:ATTRIBUTE`, of which the one with the lowest error at
            left-out (params, tokens) is taken; None for all registered ones that apply.
        constraints: parameters that are fixed, e.g. "L_0=1.69, k=.2:1".
        options: number (200 at least) and seed of the draws, level of the intervals.

    Raises:
        InputError: If batches or points are too few, or an argument is wrong.
    """
    how = options or Options(DRAWS)
    how = replace(how, resamples=max(how.resamples, DRAWS))
    points, warnings = loss_points(table)
    traps = _equal_steps(points)
    chosen = _applicable(points, forms, traps)
    names = [name for form in chosen.values() for name in form.names]
    parse_ranges(constraints, names, "this table's law")
    tried = [_tried(points, name, constraints, how) for name in chosen]
    cv_errors = {law.form: e for law, found, _ in tried if (e := found["left_out"]["cell"])}
    law, found, at_bound = min(tried, key=lambda one: cv_errors.get(one[0].form, np.inf))
    law = replace(law, cv_errors=cv_errors)
    return LossFit(
        law=law,
        formula=FORMS[law.form].formula,
        parameters=_parameters(law, how.level),
        **found,
        **_optima(law, how.level),
        level=how.level,
        resamples=how.resamples,
        constraints=constraints,
        warnings=(*warnings, *traps, *_warnings(law, at_bound)),
    )


def _tried(
    points: LossPoints, name: str, constraints: str, how: Options
) -> tuple[LossLaw, dict[str, Any], np.ndarray]:
    """Return the law of one form, fields of `LossFit` about its errors, parameters at bounds."""
    form = FORMS[name]
    points, fit, outliers = _without_outliers(points, form, constraints)
    folds = folds_of(points)
    unseen = unseen_losses(form, points, fit, folds, constraints)
    inside = widened(points, folds, unseen, ("cell",))
    outside = max(widened(points, folds, unseen, ("params", "tokens")), inside)
    law = LossLaw(
        form=name,
        theta=fit.parameters[0],
        widened={"inside": inside, "outside": outside},
        converged=bool(fit.converged[0]),
        points=points,
        constraints=constraints,
        resamples=how.resamples,
        seed=how.seed,
    )
    found = {"outliers": outliers, "tested": _tested(points, folds)}
    found |= _errors(law, folds, [mean for mean, _ in unseen])
    return law, found, fit.at_bound[0]


def _applicable(
    points: LossPoints, names: Sequence[str] | None, traps: Sequence[str]
) -> dict[str, Form]:
    """The forms by name: those requested, or all that apply to the table.

    Raises:
        InputError: If no form applies, or a requested form has too many parameters or is for tables
            with (or without) several LRs per batch size.
    """
    batches, count = len(np.unique(points.batch)), len(points.loss)
    if batches < FEWEST:
        raise InputError(f"batch: {batches} different ones; the law needs 3 or more")
    forms = {FORMS.name_of(form): form for form in map(FORMS.load, names or FORMS)}
    able = {n: f for n, f in forms.items() if f.rates in (None, points.with_lr)}
    for name in (name for name in names or () if FORMS.name_of(FORMS[name]) not in able):
        kind = "with several LRs" if FORMS[name].rates else "with one LR per batch"
        raise InputError(f"form: {name} is for tables {kind}, not this one; leave --form out")
    enough = {n: f for n, f in able.items() if max(f.free(points), FEWEST) < count}
    if not enough or (names and len(enough) < len(able)):
        needed = min(max(form.free(points), FEWEST) for form in able.values())
        raise InputError(
            f"table: {count} points of (params, tokens, batch) for {needed} parameters; "
            + "; ".join(["add runs", *traps])
        )
    return enough


def _without_outliers(
    points: LossPoints, form: Form, constraints: str
) -> tuple[LossPoints, Solution, tuple[Outlier, ...]]:
    """Return rows without outliers, the fit of a form to them, and outliers, the farthest first."""
    fit = best_fit(form, points, constraints)
    off = residuals_over_error(points, form, fit)
    far = np.abs(off) > OUTLIER * max(robust_scale(off), 1.0)
    if not far.any() or far.mean() > MOST_OUTLIERS:
        return points, fit, ()
    found = [_outlier(points, int(i), float(off[i])) for i in np.flatnonzero(far)]
    points = points.at(~far)
    fit = best_fit(form, points, constraints, fit.parameters)
    return points, fit, tuple(sorted(found, key=lambda one: -one.times))


def _outlier(points: LossPoints, i: int, off: float) -> Outlier:
    names = {"params": points.params, "tokens": points.tokens, "batch_tokens": points.batch}
    names |= {"lr": points.lr} if points.with_lr else {}
    others = (points.cell == points.cell[i]) & (np.arange(len(points.loss)) != i)
    near = others if others.any() else np.ones(len(others), bool)
    above = float(points.loss[i] - np.median(points.loss[near]))
    at: dict[str, float | str] = {name: float(column[i]) for name, column in names.items()}
    return Outlier(at, "", abs(above) * float(np.sign(off)), abs(off), "nats")


def _parameters(law: LossLaw, level: float) -> dict[str, Estimate]:
    """Of the form at the middle of the table, or why one has no value."""
    from scipy.special import ndtri

    form, points, theta = FORMS[law.form], law.points, law.theta
    lower, upper = form.bounds(points, law.constraints)
    fixed, ranges = lower == upper, parse_ranges(law.constraints)
    spread = np.sqrt(np.diag(law.linearized[1])) * law.widened["inside"]
    half, estimates = np.where(fixed, 0.0, ndtri((1 + level) / 2) * spread), {}
    for i, name in enumerate(form.names):
        ends = theta[i] - half[i], theta[i], theta[i] + half[i]
        low, value, high = map(float, map(form.scale(name, points).printed, ends))
        estimate, note = Estimate(value, low, high, level), ""
        if name in ranges:
            pass  # its value is the user's
        elif fixed[i]:
            note = "fixed: the table does not vary what would identify it"
        elif not lower[i] < theta[i] < upper[i]:
            note = "unidentified: ended at a bound of the fit"
        elif name in form.logs and too_wide(estimate):
            note = f"unidentified: {SPANS}"
        estimates[name] = Estimate(None, level=level, note=note) if note else estimate
    return estimates


def _errors(law: LossLaw, folds: Sequence[Fold], unseen: list[np.ndarray]) -> dict[str, Any]:
    """Root mean square errors in nats, fitted and left out, and those of each row left out."""
    points = law.points
    near, cell_error = points.excess <= NEAR, np.full(len(points.loss), np.nan)
    errors: dict[str, list[np.ndarray]] = {kind: [] for kind in ("cell", "params", "tokens")}
    for fold, expected in zip(folds, unseen, strict=True):
        missed = expected - points.loss[fold.out]
        if fold.kind == "cell":
            cell_error[fold.out] = missed
        if fold.kind == "cell" or not errors[fold.kind]:  # of the largest budgets the first fold
            errors[fold.kind].append(missed[near[fold.out]])
    each = {kind: np.concatenate(parts or [np.zeros(0)]) for kind, parts in errors.items()}
    fitted = law.losses(points.params, points.tokens, points.batch, points.lr)
    return {
        "left_out": {kind: rms(x) if len(x) else None for kind, x in each.items()},
        "rmse": rms((fitted - points.loss)[near]),
        "cell_error": np.round(cell_error, 5),
    }


def _optima(law: LossLaw, level: float) -> dict[str, Any]:
    """Best batches, and best LRs if they vary."""
    optima, power = best_batches(law, level)
    why = f"{sum(at.batch.value is not None for at in optima)} best batches inside their (N, D)"
    found = {"optima": tuple(optima), "best": power}
    found |= {"B_opt_exponents": exponents(power, ("params", "tokens"), level, why)}
    if law.points.with_lr:
        found |= {"best_lrs": best_lrs(law, [at.batch.value for at in optima], level)}
    return found


def _tested(points: LossPoints, folds: Sequence[Fold]) -> dict[str, TestedRange]:
    columns = dict(zip(SIZES, (points.params, points.tokens, points.batch), strict=True))
    reach = dict.fromkeys(columns, 1.0)
    for fold in folds:
        if fold.kind in columns:
            x = columns[fold.kind]
            reach[fold.kind] = max(reach[fold.kind], float(x.max() / x[~fold.out].max()))
    return {n: TestedRange(float(x.min()), float(x.max()), reach[n]) for n, x in columns.items()}


def _equal_steps(points: LossPoints) -> list[str]:
    """Warnings if all batches of a model were trained for the same number of steps."""
    steps, models = points.tokens / points.batch, points.params == np.unique(points.params)[:, None]
    each = [equal_steps(points.batch[here], steps[here]) for here in models]
    return list(dict.fromkeys(chain(*each)))


def _warnings(law: LossLaw, at_bound: np.ndarray) -> list[str]:
    texts, points, (models, budgets) = [], law.points, law.points.varies
    if len(points.cells) == 1:
        texts.append("one model and one budget: a law of the batch, which predicts no others")
    elif not models:
        texts.append("params: one size, or nearly; the law predicts no others")
    if len(points.cells) > 1 and (
        not budgets or np.ptp(np.log(points.tokens / points.params)) < np.log(1.1)
    ):
        texts.append(
            "one budget for each model: exponents in params and in tokens cannot be separated and "
            "rest on the forms; vary tokens at fixed params"
            if models and budgets
            else "tokens do not vary at given params: exponents in D rest on the law's form"
        )
    if points.diverged.any():
        texts.append(
            f"{int(points.diverged.sum())} losses far above the best of their (params, tokens) "
            "hardly count, in errors not at all, and bracket no best batch"
        )
    if np.isfinite(points.lr).any() and not points.with_lr:
        texts.append(
            "each batch has one LR: intervals ignore that the LR may not be tuned; train with two "
            "LRs at some batches"
        )
    if ended := ", ".join(compress(FORMS[law.form].names, at_bound)):
        texts.append(f"{ended} ended at a bound: the table does not identify it")
    if not law.converged:
        texts.append("the fit did not converge")
    return texts
