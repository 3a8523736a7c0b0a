"""The law of final losses L(N, D, B), a mean of forms weighed by left-out runs, and best batches.

Weights are by what each form has not seen (bss.laws.final_loss.averaged), for inside the table,
beyond it and below it; intervals are by bss.laws.final_loss.solved; best batches are those of
the cells' own valleys and of their power law (bss.laws.final_loss.best).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, compress

import numpy as np
import pandas as pd
from scipy import stats

from bss.errors import InputError
from bss.laws.final_loss.averaged import FEWEST, Averaged, applicable, averaged, first_look
from bss.laws.final_loss.best import best_batches, exponents
from bss.laws.final_loss.cells import Cell, cells_of, without_outliers
from bss.laws.final_loss.elsewhere import CellOptimum
from bss.laws.final_loss.facts import SIZES, HoldOut, LackOfFit, Tested
from bss.laws.final_loss.fitted import FittedForm, MeanLaw
from bss.laws.final_loss.forms import FAMILY, FORMS
from bss.laws.final_loss.forms.form import FLOOR, CentredPoints
from bss.laws.final_loss.left_out import LeftOut, error_of, errors_of, folds_of, near_best
from bss.laws.final_loss.points import LossPoints, uses
from bss.laws.final_loss.rated.best import best_rates
from bss.laws.final_loss.rated.fit import fit_rated
from bss.laws.final_loss.rated.hidden import hidden, of_optima
from bss.laws.final_loss.rated.points import RatedPoints, rated_points
from bss.laws.final_loss.solved import design_of, design_weight, freedom, usable_rows, with_draws
from bss.laws.final_loss.table import loss_points, runs_of
from bss.laws.final_loss.values import TableFit
from bss.laws.fitting.bootstrap import rms
from bss.laws.fitting.constraints import FREE, Constraints
from bss.laws.fitting.estimate import Options
from bss.points.design import equal_steps
from bss.tables.reading import without

KINDS = ("cell", "params", "tokens")
SURE = 0.05


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
            that the table allows.
        constraints: parameters that are held, as "L_0=1.69, k=.2:1", in every form that has them.
        drop: rows that are left out of everything, as "params=2e8,tokens=6e10,batch=256".
        options: how intervals are made.
        progress: is told what is being done.

    Raises:
        InputError: fewer than three batches, too few points, a form that is unknown or for another
            kind of table, or a wrong hold_out, constraint or drop.
    """
    options, held = options or Options(resamples=300), Constraints.parse(constraints)
    points, warnings = loss_points(kept := without(table, drop))
    best_of_sweeps = "rates_tried" in kept
    rated, of_rates = (None, []) if best_of_sweeps else rated_points(runs_of(kept))
    traps = _equal_steps(points)
    _check_design(points, forms, drop, traps)
    usable = usable_rows(design_of(points))
    progress(f"the valley of each (params, tokens), {len(points.loss)} points")
    cells = cells_of(points, usable, options.level)
    law = first_look(design_of(points), forms)
    cells, named, left = without_outliers(points, cells, law, options.level)
    design = design_of(points, left.astype(float), held)
    held.check([n for form in applicable(design, forms) for n in form.names], "this table's law")
    own = [fold for text in hold_out for fold in folds_of(points, text)]
    progress("weighing the forms by left-out runs")
    mean, fitted = averaged(design, own, forms), {}
    for name in mean.used:
        progress(f"intervals of the {name} form")
        fitted[name] = with_draws(FORMS[name], design, mean.fits[name], options)
    fit = _assembled(points, design, cells, mean, fitted, usable, options.level)
    told = _warnings(points, design, usable, mean, fit.lack_of_fit)
    off, untuned = (np.zeros(len(fit.optima)), []) if best_of_sweeps else hidden(points)
    if held and rated is not None:
        told.append(f"{held} is held in the law of tuned losses, not in the law of the rate")
    texts = (*warnings, *of_rates, *untuned, *traps, *told)
    how = {"level": options.level, "resamples": options.resamples, "warnings": texts}
    how["constraints"] = held
    optima = of_optima(fit.optima, off)
    fit = replace(fit, outliers=tuple(named), optima=optima, rate_off=float(off.max()), **how)
    return fit if rated is None else _with_rates(fit, rated, progress)


def _with_rates(fit: TableFit, points: RatedPoints, progress: Callable[[str], None]) -> TableFit:
    """The fit with the law of every row's own rate."""
    progress(f"the rate, {len(points.loss)} rows")
    law = fit_rated(points)
    batches = [at.batch.value for at in fit.optima]
    return replace(fit, rates=law, best_rates=best_rates(law, batches, fit.level))


def _assembled(
    points: LossPoints,
    design: CentredPoints,
    cells: list[Cell],
    mean: Averaged,
    fitted: dict[str, FittedForm],
    usable: np.ndarray,
    level: float,
) -> TableFit:
    """The fit, of what was fitted, with its best batches and its errors at what was left out."""
    weights = {use: {n: by[n] for n in fitted} for use, by in mean.weights.items()}
    reach = float(points.batch.min()), float(points.batch.max())
    laws = {use: MeanLaw.of(fitted, by, reach) for use, by in weights.items()}
    inside, left_out, near = laws["inside"], mean.left_out, near_best(design)
    sizes = np.log([[one.params, one.tokens] for one in cells])
    at_cells, least = [laws[use] for use in uses(sizes, sizes)], points.seq_len or 1.0
    elsewhere, best = best_batches(cells, at_cells, left_out, reach, level, least)
    known = enumerate(zip(at_cells, best, strict=True))
    lost = [_given_up(points, i, law) if at.value else {} for i, (law, at) in known]
    pairs = zip(cells, best, lost, strict=True)
    converged = all(mean.fits[name].converged[0] for name in fitted)
    return TableFit(
        form=inside.text,
        formula=inside.heaviest.idea.formula,
        forms=fitted,
        weights=weights,
        judged=mean.judged,
        left_out={kind: error_of(left_out, kind, usable) for kind in KINDS},
        left_out_near={kind: error_of(left_out, kind, near) for kind in KINDS},
        hold_out=tuple(_held_out(fold, usable, near) for fold in mean.hold_out),
        lack_of_fit=_lack_of_fit(points, design, inside),
        best=elsewhere,
        optima=tuple(CellOptimum(one.params, one.tokens, at, lost) for one, at, lost in pairs),
        outliers=(),
        B_opt_exponents=exponents(elsewhere, cells, level),
        tested=_tested(points, left_out),
        points=points,
        cell_error=errors_of(left_out, "cell", len(points.loss)),
        status="converged" if converged else "not converged",
        seq_len=points.seq_len,
    )


def _given_up(points: LossPoints, cell: int, law: MeanLaw) -> dict[float, float]:
    rows = np.flatnonzero(points.cell == cell)
    batch, i = points.batch[rows], rows[0]
    lost = law.given_up(float(points.params[i]), float(points.tokens[i]), batch)
    return dict(zip(batch.tolist(), lost.tolist(), strict=True))


def _held_out(fold: LeftOut, usable: np.ndarray, near: np.ndarray) -> HoldOut:
    far, close = fold.out & usable, fold.out & near
    rmse = rms(fold.error[far]) if far.any() else float("nan")
    closer = rms(fold.error[close]) if close.any() else None
    total = {name: float(w[fold.out].mean()) for name, w in fold.weights.items()}
    return HoldOut(fold.kind, int(far.sum()), rmse, closer, {n: w for n, w in total.items() if w})


def _lack_of_fit(points: LossPoints, design: CentredPoints, law: MeanLaw) -> LackOfFit:
    weight = design_weight(design)
    left = min(freedom(FORMS[one.form], design) for one in law.forms)
    missed = law.losses(points.params, points.tokens, points.batch) - points.loss
    scatter = float(np.sqrt(np.sum((weight * missed) ** 2) / left))
    if not points.freedom:
        return LackOfFit(scatter, None, None, "not tested: no seeds and no column loss_se")
    ratio = (scatter / points.noise) ** 2 if points.noise else np.inf
    p = float(stats.f.sf(ratio, left, min(points.freedom, 1e9)))
    verdict = "more" if p < SURE else "not surely more"
    return LackOfFit(scatter, points.noise, p, f"misses by {verdict} than repetitions differ")


def _tested(points: LossPoints, left_out: list[LeftOut]) -> dict[str, Tested]:
    columns = dict(zip(SIZES, (points.params, points.tokens, points.batch), strict=True))
    reach = dict.fromkeys(columns, 1.0)
    for fold in left_out:
        if fold.kind in columns:
            x = columns[fold.kind]
            reach[fold.kind] = float(x.max() / x[~fold.out].max())
    return {n: Tested(float(x.min()), float(x.max()), reach[n]) for n, x in columns.items()}


def _equal_steps(points: LossPoints) -> list[str]:
    """What is said where all batches of a model were trained for as many steps."""
    steps, models = points.tokens / points.batch, points.params == np.unique(points.params)[:, None]
    each = [equal_steps(points.batch[here], steps[here]) for here in models]
    return list(dict.fromkeys(chain(*each)))


def _check_design(
    points: LossPoints, forms: Sequence[str] | None, drop: Sequence[str], traps: Sequence[str]
) -> None:
    batches, count = len(np.unique(points.batch)), len(points.loss)
    left = ", with what --drop leaves" if drop else ""
    if batches < 3:
        raise InputError(f"batch: {batches} different ones{left}; the law needs 3 or more")
    design = design_of(points)
    one = design.cell.max() == 0
    if one and count < 4:
        raise InputError(
            f"table: {count} points of (params, tokens, batch) for a valley{left}; it needs 4"
        )
    if not applicable(design, forms):
        needed = FAMILY[0].free(design)
        raise InputError(
            f"table: {count} points of (params, tokens, batch) for {needed} parameters{left}; "
            + "; ".join(["add runs", *traps])
        )


def _warnings(
    points: LossPoints, design: CentredPoints, usable: np.ndarray, mean: Averaged, lack: LackOfFit
) -> list[str]:
    texts, (models, budgets) = [], design.varies
    one = design.cell.max() == 0
    if one:
        texts.append("one model and one budget: a valley in log B, which says nothing of others")
    elif not models:
        texts.append("params: one size, or nearly, of which the law says nothing else")
    if not one and len(mean.fits) == 1 and design.cell.max() + 1 < FEWEST:
        texts.append(
            f"fewer than {FEWEST} (params, tokens): of one form, which misses their losses by "
            f"{lack.rmse:.2g} nats; what other batches cost rests on it"
        )
    if not one and (not budgets or np.ptp(np.log(points.tokens / points.params)) < 0.1):
        texts.append(
            "one budget for each model: what grows with params and what with tokens is not told "
            "apart, so exponents in N and D rest on the forms; vary tokens at fixed params"
            if models and budgets
            else "tokens do not vary at given params: exponents in D rest on the law's form"
        )
    if not usable.all():
        texts.append(
            f"{int((~usable).sum())} losses far above the best of their (params, tokens) hardly "
            "count, in errors told not at all, and bracket no best batch"
        )
    floored, ended = [], []
    for name in mean.used:
        at = list(compress(FORMS[name].names, mean.fits[name].at_bound[0]))
        floored += [name] * ("L_0" in at and not one)
        ended += [f"{n} of the {name} form" for n in at if n != "L_0"]
    if floored:
        texts.append(
            f"L_0 is held at its floor, {FLOOR:g} of the least loss, in {', '.join(floored)}: the "
            "table does not identify it"
        )
    if ended:
        texts.append(f"{', '.join(ended)} ended at a bound: the table does not identify it")
    if not all(fit.converged[0] for fit in mean.fits.values()):
        texts.append("the fit did not converge")
    if lack.p is not None and lack.p < SURE:
        texts.append(
            f"lack of fit: the law misses by {lack.rmse:.2g} nats where repetitions differ by "
            f"{lack.noise:.2g} (p = {lack.p:.2g}); intervals hold it"
        )
    return texts
