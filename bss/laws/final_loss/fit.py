"""The law of final losses L(N, D, B), its form chosen by left-out runs, fitted to finished ones.

A form and a width of weights are chosen by what they have not seen (bss.laws.final_loss.choose),
once for inside the table and once for beyond it; intervals are by bss.laws.final_loss.resampled.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from bss.errors import InputError
from bss.laws.final_loss import choose as chosen
from bss.laws.final_loss.best import best_batches, exponents
from bss.laws.final_loss.forms import FAMILY, FORMS, Form
from bss.laws.final_loss.forms.form import Design
from bss.laws.final_loss.optimum import optima
from bss.laws.final_loss.points import LossPoints
from bss.laws.final_loss.resampled import with_draws
from bss.laws.final_loss.solved import WIDE, design_of, design_weight
from bss.laws.final_loss.table import loss_points
from bss.laws.final_loss.values import SIZES, HeldOut, LackOfFit, TableFit, Tested
from bss.laws.fitting.bootstrap import rms
from bss.laws.fitting.estimate import Options

KINDS = ("cell", "params", "tokens")
HALF = 0.5  # weight from which a loss is one of those whose errors are told
SURE = 0.05


def fit_table(
    table: pd.DataFrame,
    *,
    hold_out: tuple[str, ...] = (),
    forms: Sequence[str] = tuple(form.name for form in FAMILY),
    options: Options | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> TableFit:
    """Fit the law of final losses.

    Args:
        table: as `bss.laws.final_loss.table.check_losses` gives it.
        hold_out: also left out: params, tokens or cell in turn, or a condition as tokens>=80B.
        forms: among which is chosen, by registered name or `package.module:ATTRIBUTE`; the first
            is that of tables too small for more.
        options: how intervals are made.
        progress: is told what is being done.

    Raises:
        InputError: fewer than three batches, too few points, an unknown form, or a wrong hold_out.
    """
    options = options or Options(resamples=300)
    points, warnings = loss_points(table)
    design, family = design_of(points), [FORMS[name] for name in forms]
    _check_design(points, family)
    asked = [fold for text in hold_out for fold in chosen.asked(points, text)]
    progress(f"choosing the form by left-out runs, {len(points.loss)} points")
    inside, beyond, left_out = chosen.choose(design, asked, family)
    progress(f"intervals of the {inside.candidate.form.name} form")
    law = farther = with_draws(points, design, inside, options)
    if beyond.candidate != inside.candidate:
        progress(f"intervals of the {beyond.candidate.form.name} form, for beyond the table")
        farther = with_draws(points, design, beyond, options)
    usual, own = left_out[: len(left_out) - len(asked)], left_out[len(left_out) - len(asked) :]
    near, usable = chosen.near_best(design), design_weight(design, WIDE) > HALF
    best = best_batches(points, law, usual, options.level)
    lack, ended = _lack_of_fit(points, design, inside, law.scatter), _ended(inside)
    shaping = ", ".join(name for name in ended if name in inside.candidate.form.shape)
    return TableFit(
        form=law.form,
        formula=law.idea.formula,
        inside=law,
        extrapolating=farther,
        judged=_judged(inside, beyond),
        left_out={kind: chosen.error_of(usual, kind, usable) for kind in KINDS},
        left_out_near={kind: chosen.error_of(usual, kind, near) for kind in KINDS},
        hold_out=tuple(_held_out(fold, usable, near) for fold in own),
        lack_of_fit=lack,
        best=best,
        optima=optima(points, law, best, shaping, options.level),
        B_opt_exponents=exponents(points, options.level),
        tested=_tested(points, usual),
        points=points,
        cell_error=chosen.errors_of(usual, "cell", len(points.loss)),
        status="converged" if inside.solution.converged[0] else "not converged",
        seq_len=points.seq_len,
        level=options.level,
        resamples=options.resamples,
        warnings=(*warnings, *_warnings(points, design, usable, inside, lack)),
    )


def _ended(choice: chosen.Choice) -> list[str]:
    """Parameters that ended at a bound."""
    names = choice.candidate.form.names
    return [name for name, at in zip(names, choice.solution.at_bound[0], strict=True) if at]


def _held_out(fold: chosen.LeftOut, usable: np.ndarray, near: np.ndarray) -> HeldOut:
    kept, close = fold.out & usable, fold.out & near
    rmse = rms(fold.error[kept]) if kept.any() else float("nan")
    closer = rms(fold.error[close]) if close.any() else None
    return HeldOut(fold.kind, int(kept.sum()), rmse, closer, fold.form)


def _judged(inside: chosen.Choice, beyond: chosen.Choice) -> dict[str, dict[str, float]]:
    """Per form the better of its widths."""
    told: dict[str, dict[str, float]] = {}
    for use, choice in (("inside", inside), ("beyond", beyond)):
        for one, error in choice.judged.items():
            row = told.setdefault(FORMS.name_of(one.form), {})
            row[use] = min(error, row.get(use, np.inf))
    return told


def _lack_of_fit(
    points: LossPoints, design: Design, choice: chosen.Choice, scatter: float
) -> LackOfFit:
    if not points.freedom:
        return LackOfFit(scatter, None, None, "not tested: no seeds and no column loss_se")
    ratio = (scatter / points.noise) ** 2 if points.noise else np.inf
    p = float(stats.f.sf(ratio, chosen.freedom(choice, design), min(points.freedom, 1e9)))
    missed = "more" if p < SURE else "not surely more"
    return LackOfFit(scatter, points.noise, p, f"misses by {missed} than repetitions differ")


def _tested(points: LossPoints, left_out: list[chosen.LeftOut]) -> dict[str, Tested]:
    columns = dict(zip(SIZES, (points.params, points.tokens, points.batch), strict=True))
    reach = {
        fold.kind: float(columns[fold.kind].max() / columns[fold.kind][~fold.out].max())
        for fold in left_out
        if fold.kind in columns
    }
    return {
        name: Tested(float(x.min()), float(x.max()), reach.get(name, 1.0))
        for name, x in columns.items()
    }


def _check_design(points: LossPoints, forms: list[Form]) -> None:
    batches, count = len(np.unique(points.batch)), len(points.loss)
    if batches < 3:
        raise InputError(f"batch: {batches} different ones; the law needs 3 or more")
    design = design_of(points)
    one = design.cell.max() == 0
    needed = 3 if one else min(chosen.free(form, design) for form in forms)
    if count <= needed:
        raise InputError(
            f"table: {count} points of (params, tokens, batch) for {needed} parameters; add runs"
        )


def _warnings(
    points: LossPoints,
    design: Design,
    usable: np.ndarray,
    choice: chosen.Choice,
    lack: LackOfFit,
) -> list[str]:
    texts, (models, budgets) = [], design.varies
    if design.cell.max() == 0:
        texts.append("one model and one budget: a parabola in log B, which says nothing of others")
    elif not models:
        texts.append("params: one size, of which the law says nothing else")
    if design.cell.max() and (not budgets or np.ptp(np.log(points.tokens / points.params)) < 0.1):
        texts.append("tokens do not vary at given params: exponents in D rest on the law's form")
    if not usable.all():
        texts.append(
            f"{int((~usable).sum())} losses far above the best of their (params, tokens) hardly "
            "count, in errors told not at all"
        )
    if ended := ", ".join(_ended(choice)):
        texts.append(f"{ended} ended at a bound: the table does not identify it")
    if not choice.solution.converged[0]:
        texts.append("the fit did not converge")
    if lack.p is not None and lack.p < SURE:
        texts.append(
            f"lack of fit: the law misses by {lack.rmse:.2g} nats where repetitions differ by "
            f"{lack.noise:.2g} (p = {lack.p:.2g}); intervals hold it"
        )
    return texts
