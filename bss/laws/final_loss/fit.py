"""The law of final losses L(N, D, B), of the learning rate too if it varies, and best batches.

Forms are averaged by their errors at left-out rows, and the rows near by predict the residuals of
the mean (bss.laws.final_loss.fitting). Best batches and LRs are where its draws are lowest
(bss.laws.final_loss.best). Rows far from all others are left out (bss.laws.final_loss.outliers).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, compress
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.base import DRAWS, SPANS, Estimate, Options, too_wide
from bss.laws.final_loss.best import best_batches, best_lrs, exponents
from bss.laws.final_loss.fitting import (
    NARROWEST,
    Fold,
    Unseen,
    best_fit,
    folds_of,
    mixed,
    stacked,
    unseen_losses,
    widened,
)
from bss.laws.final_loss.forms import FORMS, Form, losses
from bss.laws.final_loss.law import LossLaw, Member
from bss.laws.final_loss.outliers import far_rows, named
from bss.laws.final_loss.points import NEAR, LossPoints
from bss.laws.final_loss.table import loss_points
from bss.laws.final_loss.values import SIZES, LossFit, TestedRange
from bss.laws.minimum import FEWEST
from bss.laws.problem import parse_ranges
from bss.laws.resampling import rms
from bss.points.measuring import equal_steps


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
        forms: by name or `package.module:ATTRIBUTE`, which are averaged by their errors at left-out
            rows; None for all registered ones that apply.
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
    chosen = _constrained(chosen, constraints)
    law, found, at_bound = _fitted(points, chosen, constraints, how)
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


def _constrained(forms: dict[str, Form], constraints: str) -> dict[str, Form]:
    """The forms that have every parameter that a user fixes or bounds; all if none has.

    Raises:
        InputError: If no form has one of them.
    """
    names = [name for form in forms.values() for name in form.names]
    asked = parse_ranges(constraints, names, "this table's law")
    having = {name: form for name, form in forms.items() if {*asked} <= {*form.names}}
    return having or forms


def _fitted(
    points: LossPoints, forms: dict[str, Form], constraints: str, how: Options
) -> tuple[LossLaw, dict[str, Any], np.ndarray]:
    """Return the law, fields of `LossFit` about its errors, and bounds that its main form met."""
    fits = {name: best_fit(form, points, constraints) for name, form in forms.items()}
    each = [losses(form, fits[name].parameters[0], points.logs) for name, form in forms.items()]
    off = far_rows(points, np.mean(each, axis=0))
    outliers = named(points, off)
    if outliers:
        points = points.at(off == 0)
        for name, form in forms.items():
            fits[name] = best_fit(form, points, constraints, fits[name].parameters)
    folds = folds_of(points)
    unseen_by = {
        name: unseen_losses(form, points, fits[name], folds, constraints)
        for name, form in forms.items()
    }
    shares = stacked(points, folds, [*unseen_by.values()])
    unseen = mixed([*unseen_by.values()], shares)
    inside = max(widened(points, folds, unseen, ("cell",)), NARROWEST)
    largest = widened(points, folds, unseen, ("params", "tokens"))
    outside = max(largest, np.sqrt(largest * inside))
    members = [
        Member(name, fits[name].parameters[0], float(share))
        for name, share in zip(forms, shares, strict=True)
    ]
    first, *others = sorted(members, key=lambda one: -one.share)
    law = LossLaw(
        form=first.form,
        theta=first.theta,
        share=first.share,
        others=tuple(others),
        widened={"inside": inside, "outside": float(outside)},
        converged=all(bool(fit.converged[0]) for fit in fits.values()),
        points=points,
        cv_errors=_of_forms(points, folds, unseen_by),
        constraints=constraints,
        resamples=how.resamples,
        seed=how.seed,
    )
    found = {
        "outliers": outliers,
        "tested": _tested(points, folds),
        **_errors(law, folds, [mean for mean, _ in unseen]),
    }
    return law, found, fits[first.form].at_bound[0]


def _of_forms(
    points: LossPoints, folds: Sequence[Fold], unseen_by: dict[str, list[Unseen]]
) -> dict[str, float]:
    """Root mean square error of each form at left-out cells, in nats, near their best rows."""
    near = points.excess <= NEAR
    found = {}
    for name, unseen in unseen_by.items():
        missed = [
            (mean - points.loss[fold.out])[near[fold.out]]
            for fold, (mean, _) in zip(folds, unseen, strict=True)
            if fold.kind == "cell"
        ]
        if missed:
            found[name] = rms(np.concatenate(missed))
    return found


def _applicable(
    points: LossPoints, names: Sequence[str] | None, traps: Sequence[str]
) -> dict[str, Form]:
    """The forms by name: those requested, or all that apply to the table.

    Raises:
        InputError: If no form applies, or a requested form has too many parameters or is for tables
            with (or without) several LRs per batch size.
    """
    batches = len(np.unique(points.batch))
    count = len(points.loss)
    if batches < FEWEST:
        raise InputError(f"batch: {batches} different ones; the law needs 3 or more")
    forms = {FORMS.name_of(form): form for form in map(FORMS.load, names or FORMS)}
    able = {n: f for n, f in forms.items() if f.rates in (None, points.with_lr)}
    for name in names or ():
        if FORMS.name_of(FORMS[name]) in able:
            continue
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


def _parameters(law: LossLaw, level: float) -> dict[str, Estimate]:
    """Of the form at the middle of the table, or why one has no value."""
    from scipy.special import ndtri

    form = FORMS[law.form]
    theta = law.theta
    lower, upper = form.bounds(law.points, law.constraints)
    fixed = lower == upper
    ranges = parse_ranges(law.constraints)
    spread = np.sqrt(np.diag(law.linearized[1])) * law.widened["inside"]
    half = np.where(fixed, 0.0, ndtri((1 + level) / 2) * spread)
    estimates = {}
    for i, name in enumerate(form.names):
        ends = (theta[i] - half[i], theta[i], theta[i] + half[i])
        low, value, high = map(float, map(form.scale(name, law.points).printed, ends))
        estimate = Estimate(value, low, high, level)
        note = ""
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
    near = points.excess <= NEAR
    cell_error = np.full(len(points.loss), np.nan)
    errors: dict[str, list[np.ndarray]] = {kind: [] for kind in ("cell", "params", "tokens")}
    folds = [fold for fold in folds if fold.kind in errors]  # that of batches only weighs forms
    unseen = unseen[: len(folds)]
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
        "cell_error": np.round(cell_error, 5),  # 1e-5 nats: far below the noise of a run
    }


def _optima(law: LossLaw, level: float) -> dict[str, Any]:
    """Best batches, and best LRs if they vary."""
    optima, power = best_batches(law, level)
    why = f"{sum(at.batch.value is not None for at in optima)} best batches inside their (N, D)"
    found: dict[str, Any] = {
        "optima": tuple(optima),
        "best": power,
        "B_opt_exponents": exponents(power, ("params", "tokens"), level, why),
    }
    if law.points.with_lr:
        found["best_lrs"] = best_lrs(law, [at.batch.value for at in optima], level)
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
    steps = points.tokens / points.batch
    models = points.params == np.unique(points.params)[:, None]
    each = [equal_steps(points.batch[here], steps[here]) for here in models]
    return list(dict.fromkeys(chain(*each)))


def _unvaried(points: LossPoints) -> list[str]:
    """Warnings if sizes or budgets do not vary, or vary only together."""
    if len(points.cells) == 1:
        return ["one model and one budget: a law of the batch, which predicts no others"]
    models, budgets = points.varies
    texts = []
    if not models:
        texts.append("params: one size, or nearly; the law predicts no others")
    # Tokens per parameter within 10% are one ratio.
    one_ratio = np.ptp(np.log(points.tokens / points.params)) < np.log(1.1)
    if models and budgets and one_ratio:
        texts.append(
            "one budget for each model: exponents in params and in tokens cannot be separated and "
            "rest on the forms; vary tokens at fixed params"
        )
    elif not budgets or one_ratio:
        texts.append("tokens do not vary at given params: exponents in D rest on the law's form")
    return texts


def _warnings(law: LossLaw, at_bound: np.ndarray) -> list[str]:
    points = law.points
    texts = _unvaried(points)
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
