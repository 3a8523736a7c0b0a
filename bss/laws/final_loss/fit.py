"""The law of final losses L(N, D, B), of the rate too where it varies, and best batches by it.

A mean of forms weighed by left-out runs, with what they miss told by the rows near by
(bss.laws.final_loss.fitting); best batches and rates are where its draws are least
(bss.laws.final_loss.best).
"""

from collections.abc import Callable, Sequence
from itertools import chain, compress

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.base import SPANS, Estimate, Options, too_wide
from bss.laws.constraints import FREE, Constraints
from bss.laws.final_loss.best import best_batches, best_rates, exponents
from bss.laws.final_loss.fitting import FAR, NEAR, best_fit, fit_law, outliers
from bss.laws.final_loss.folds import Fold, folds_of, requested
from bss.laws.final_loss.forms import FORMS, Form
from bss.laws.final_loss.law import LossLaw
from bss.laws.final_loss.points import REGIMES, LossPoints
from bss.laws.final_loss.table import loss_points
from bss.laws.final_loss.values import SIZES, HoldOut, OutlierRow, TableFit, TestedRange
from bss.laws.resampling import rms, robust_scale
from bss.points.measuring import equal_steps
from bss.tables.reading import without

KINDS = ("cell", "params", "tokens")
FEWEST_BATCHES, FEWEST = 3, 4  # of a table, and points of it
MANY = 0.1  # share of rows that are outliers at most


def fit_table(
    table: pd.DataFrame,
    *,
    hold_out: tuple[str, ...] = (),
    forms: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    constraints: Constraints | str = FREE,
    options: Options | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> TableFit:
    """Fit the law of final losses.

    Args:
        table: as `bss.laws.final_loss.table.check_losses` gives it.
        hold_out: also left out: params, tokens, batch, cell or run in turn, or a condition as
            tokens>=80B.
        forms: that are averaged, by registered name or `package.module:ATTRIBUTE`; None for all
            that are for the table.
        constraints: parameters that are fixed, as "L_0=1.69, k=.2:1", in every form that has them.
        drop: rows that are left out of everything, as "params=2e8,tokens=6e10,batch=256".
        options: of which the level is used: intervals are of draws, not of refits.
        progress: is told what is being done.

    Raises:
        InputError: fewer than three batches, too few points, a form that is unknown or for another
            kind of table, or a wrong hold_out, constraint or drop.
    """
    level, fixed = (options or Options()).level, Constraints.parse(constraints)
    points, warnings = loss_points(without(table, drop))
    traps = _equal_steps(points)
    chosen = _applicable(points, forms, drop, traps)
    fixed.check([n for form in chosen.values() for n in form.names], "this table's law")
    progress(f"{len(points.loss)} points, {len(points.cells)} (params, tokens)")
    fits = {name: best_fit(form, points, fixed) for name, form in chosen.items()}
    off = outliers(points, chosen, fits)
    far = np.abs(off) > FAR * max(robust_scale(off), 1.0)
    named = []
    if far.any() and far.mean() <= MANY:
        named = [_outlier(points, int(i), off[i]) for i in np.flatnonzero(far)]
        points = points.at(~far)
        fits = {name: best_fit(form, points, fixed) for name, form in chosen.items()}
    folds = folds_of(points)
    own = [fold for text in hold_out for fold in requested(points, text)]
    progress("weighing the forms by left-out runs")
    law, unseen = fit_law(points, chosen, fits, [*folds, *own], fixed)
    progress("best batches")
    optima, power = best_batches(law, level)
    rates = None
    if points.with_lr:
        progress("best rates")
        rates = best_rates(law, [at.batch.value for at in optima], level)
    missed = law.losses(points.params, points.tokens, points.batch, points.lr) - points.loss
    near, pairs = points.excess <= NEAR, list(zip(folds, unseen.expected, strict=False))
    return TableFit(
        law=law,
        formula=FORMS[law.heaviest].formula,
        parameters=_parameters(law, level),
        left_out={kind: _left_out(points, pairs, kind) for kind in KINDS},
        hold_out=tuple(
            _held_out(points, *pair)
            for pair in zip(own, unseen.expected[len(folds) :], strict=True)
        ),
        optima=tuple(optima),
        best=power,
        B_opt_exponents=exponents(power, optima, level),
        outliers=tuple(sorted(named, key=lambda one: -one.times)),
        tested=_tested(points, folds),
        rmse=rms(missed[near]),
        cell_error=_cell_errors(points, pairs),
        best_rates=rates,
        level=level,
        constraints=fixed,
        warnings=(*warnings, *traps, *_warnings(points, law, fits)),
    )


def _applicable(
    points: LossPoints, names: Sequence[str] | None, drop: Sequence[str], traps: Sequence[str]
) -> dict[str, Form]:
    """The forms by name: those asked for, or all that are for the table.

    Raises:
        InputError: none is, or one that was asked for has too many parameters or needs rates.
    """
    batches, count = len(np.unique(points.batch)), len(points.loss)
    left = ", with what --drop leaves" if drop else ""
    if batches < FEWEST_BATCHES:
        raise InputError(f"batch: {batches} different ones{left}; the law needs 3 or more")
    forms = {FORMS.name_of(form): form for form in map(FORMS.__getitem__, names or FORMS)}
    able = {n: f for n, f in forms.items() if f.rates in (None, points.with_lr)}
    for name in (name for name in names or () if FORMS.name_of(FORMS[name]) not in able):
        kind = "whose rates vary" if FORMS[name].rates else "of one rate for each batch"
        raise InputError(f"form: {name} is for tables {kind}, not this one; leave --form out")
    enough = {n: f for n, f in able.items() if max(f.free(points), FEWEST - 1) < count}
    if not enough or (names and len(enough) < len(able)):
        needed = min(max(form.free(points), FEWEST - 1) for form in able.values())
        raise InputError(
            f"table: {count} points of (params, tokens, batch) for {needed} parameters{left}; "
            + "; ".join(["add runs", *traps])
        )
    return enough


def _outlier(points: LossPoints, i: int, off: float) -> OutlierRow:
    at = float(points.params[i]), float(points.tokens[i]), float(points.batch[i])
    lr = float(points.lr[i]) if points.with_lr else None
    others = (points.cell == points.cell[i]) & (np.arange(len(points.loss)) != i)
    near = others if others.any() else np.ones(len(others), bool)
    above = float(points.loss[i] - np.median(points.loss[near]))
    return OutlierRow(*at, lr, abs(above) * float(np.sign(off)), abs(float(off)))


def _parameters(law: LossLaw, level: float) -> dict[str, Estimate]:
    """Of the heaviest form at the middle of the table, or why one has no value."""
    from scipy.special import ndtri

    form, points = FORMS[law.heaviest], law.points
    theta = law.thetas[law.heaviest]
    lower, upper = form.bounds(points, law.constraints)
    spread = np.sqrt(np.diag(law.parameters(law.heaviest)[1])) * law.widened["inside"]
    half, estimates = ndtri((1 + level) / 2) * spread, {}
    for i, name in enumerate(form.names):
        ends = theta[i] - half[i], theta[i], theta[i] + half[i]
        if lower[i] == upper[i]:
            ends = theta[i], theta[i], theta[i]
        low, value, high = (float(form.printed(name, x, points)) for x in ends)
        estimate, note = Estimate(value, low, high, level), ""
        if name in law.constraints.ranges:
            pass  # its value is the user's
        elif lower[i] == upper[i]:
            note = "held: the table does not vary what would tell it"
        elif not lower[i] < theta[i] < upper[i]:
            note = "unidentified: ended at a bound of the fit"
        elif name in form.logs and too_wide(estimate):
            note = f"unidentified: {SPANS}"
        estimates[name] = Estimate(None, level=level, note=note) if note else estimate
    return estimates


def _left_out(points: LossPoints, pairs: list[tuple[Fold, np.ndarray]], kind: str) -> float | None:
    """Root mean square error near the best, of each (N, D), or of the first fold beyond."""
    folds = [(f, x) for f, x in pairs if f.kind == kind and f.regime in REGIMES[:2]]
    errors = [
        (expected - points.loss[fold.out])[points.excess[fold.out] <= NEAR]
        for fold, expected in (folds if kind == "cell" else folds[:1])
    ]
    return rms(np.concatenate(errors)) if errors and any(map(len, errors)) else None


def _cell_errors(points: LossPoints, pairs: list[tuple[Fold, np.ndarray]]) -> np.ndarray:
    errors = np.full(len(points.loss), np.nan)
    for fold, expected in pairs:
        if fold.kind == "cell" and fold.regime:
            errors[fold.out] = expected - points.loss[fold.out]
    return np.round(errors, 5)


def _held_out(points: LossPoints, fold: Fold, expected: np.ndarray) -> HoldOut:
    error, kept = expected - points.loss[fold.out], ~points.diverged[fold.out]
    near = points.excess[fold.out] <= NEAR
    rmse = rms(error[kept]) if kept.any() else float("nan")
    return HoldOut(fold.kind, int(kept.sum()), rmse, rms(error[near]) if near.any() else None)


def _tested(points: LossPoints, folds: list[Fold]) -> dict[str, TestedRange]:
    columns = dict(zip(SIZES, (points.params, points.tokens, points.batch), strict=True))
    reach = dict.fromkeys(columns, 1.0)
    for fold in folds[::-1]:
        if fold.kind in columns and fold.regime == "beyond":
            x = columns[fold.kind]
            reach[fold.kind] = float(x.max() / x[~fold.out].max())
    return {n: TestedRange(float(x.min()), float(x.max()), reach[n]) for n, x in columns.items()}


def _equal_steps(points: LossPoints) -> list[str]:
    """What is said where all batches of a model were trained for as many steps."""
    steps, models = points.tokens / points.batch, points.params == np.unique(points.params)[:, None]
    each = [equal_steps(points.batch[here], steps[here]) for here in models]
    return list(dict.fromkeys(chain(*each)))


def _warnings(points: LossPoints, law: LossLaw, fits: dict) -> list[str]:
    texts, (models, budgets) = [], points.varies
    if len(points.cells) == 1:
        texts.append("one model and one budget: a law of the batch, which says nothing of others")
    elif not models:
        texts.append("params: one size, or nearly, of which the law says nothing else")
    if len(points.cells) > 1 and (
        not budgets or np.ptp(np.log(points.tokens / points.params)) < np.log(1.1)
    ):
        texts.append(
            "one budget for each model: what grows with params and what with tokens is not told "
            "apart, so exponents in N and D rest on the forms; vary tokens at fixed params"
            if models and budgets
            else "tokens do not vary at given params: exponents in D rest on the law's form"
        )
    if points.diverged.any():
        texts.append(
            f"{int(points.diverged.sum())} losses far above the best of their (params, tokens) "
            "hardly count, in errors told not at all, and bracket no best batch"
        )
    if np.isfinite(points.lr).any() and not points.with_lr:
        texts.append(
            "each batch has one learning rate, so what a rate that was not tuned hides is in no "
            "interval; train two rates at some batches"
        )
    ended = [f"{n} of the {name} form" for name, fit in fits.items()
             for n in compress(FORMS[name].names, fit.at_bound[0])]  # fmt: skip
    if ended:
        texts.append(f"{', '.join(ended)} ended at a bound: the table does not identify it")
    if not law.converged:
        texts.append("the fit did not converge")
    return texts
