"""The law of final losses L(N, D, B), its form chosen by left-out runs, fitted to finished ones.

A form and a width of weights are chosen by what they have not seen (bss.laws.final_loss.choose),
once for inside the table and once for beyond it. Intervals are by a wild bootstrap of whole cells,
whose errors hold noise and lack of fit alike: each (N, D) keeps its errors about the law, times one
draw (derived here).
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from bss.errors import InputError
from bss.laws.final_loss import choose as chosen
from bss.laws.final_loss.best import best_batches, exponents
from bss.laws.final_loss.fitted import FittedForm
from bss.laws.final_loss.forms import FAMILY, FORMS, Form
from bss.laws.final_loss.forms.form import Design
from bss.laws.final_loss.optimum import optima
from bss.laws.final_loss.points import LossPoints, loss_points
from bss.laws.final_loss.solved import WIDE, design_of, design_weight, losses, slopes, solved
from bss.laws.final_loss.values import SIZES, HeldOut, LackOfFit, TableFit, Tested
from bss.laws.fitting.bootstrap import rms
from bss.laws.fitting.estimate import Estimate, Options, interval

FEWEST_CELLS = 6  # from which errors are resampled by cells, else by rows
KEPT_DRAWS = 200
LEAST_LEFT = 0.05  # share of an error that a fit leaves, below which it says nothing
SPAN = 10.0  # an interval over more than this factor identifies nothing
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
        table: as `bss.laws.final_loss.points.check_losses` gives it.
        hold_out: what to leave out and predict beside the usual: params, tokens or cell (each in
            turn), or a condition as tokens>=80B.
        forms: among which is chosen, by registered name or `package.module:ATTRIBUTE`; the first
            is that of tables too small for more.
        options: how intervals are made.
        progress: is told what is being done.

    Raises:
        InputError: fewer than three batches, no more points than parameters, an unknown form, or
            what is held out is no condition, or leaves nothing.
    """
    options = options or Options(resamples=300)
    points, warnings = loss_points(table)
    family = [FORMS[name] for name in forms]
    _check_design(points, family)
    design = design_of(points)
    asked = [fold for text in hold_out for fold in chosen.asked(points, text)]
    progress(f"choosing the form by left-out runs, {len(points.loss)} points")
    inside, beyond, left_out = chosen.choose(design, asked, family)
    progress(f"intervals of the {inside.candidate.form.name} form")
    law = _fitted(points, design, inside, options)
    if beyond.candidate == inside.candidate:
        farther = law
    else:
        progress(f"intervals of the {beyond.candidate.form.name} form, for beyond the table")
        farther = _fitted(points, design, beyond, options)
    near, usable = chosen.near_best(design), design_weight(design, WIDE) > HALF
    form, solution = inside.candidate.form, inside.solution
    ended = [n for n, at in zip(form.names, solution.at_bound[0], strict=True) if at]
    lack = _lack_of_fit(points, design, inside, law.scatter)
    usual, own = left_out[: len(left_out) - len(asked)], left_out[len(left_out) - len(asked) :]
    best = best_batches(points, law, usual, options.level)
    shaping = ", ".join(name for name in ended if name in form.shape)
    if not usable.all():
        warnings.append(
            f"{int((~usable).sum())} losses far above the best of their (params, tokens) hardly "
            "count, in errors told not at all"
        )
    warnings += _warnings(points, design, ended, bool(solution.converged[0]), lack)
    kinds = ("cell", "params", "tokens")
    return TableFit(
        form=law.form,
        formula=form.formula,
        inside=law,
        extrapolating=farther,
        judged=_judged(inside, beyond),
        left_out={kind: chosen.error_of(usual, kind, usable) for kind in kinds},
        left_out_near={kind: chosen.error_of(usual, kind, near) for kind in kinds},
        hold_out=tuple(
            HeldOut(
                fold.kind,
                int(fold.out.sum()),
                rms(fold.error[usable]),
                rms(fold.error[near & fold.out]) if (near & fold.out).any() else None,
                fold.form,
            )
            for fold in own
        ),
        lack_of_fit=lack,
        best=best,
        optima=optima(points, law, best, shaping, options.level),
        B_opt_exponents=exponents(points, options.level),
        tested=_tested(points, usual),
        points=points,
        cell_error=chosen.errors_of(usual, "cell", len(points.loss)),
        status="converged" if solution.converged[0] else "not converged",
        seq_len=points.seq_len,
        level=options.level,
        resamples=options.resamples,
        warnings=tuple(warnings),
    )


def _fitted(
    points: LossPoints, design: Design, choice: chosen.Choice, options: Options
) -> FittedForm:
    """The chosen form with its bootstrap."""
    form, theta = choice.candidate.form, choice.solution.parameters[0]
    weight = design_weight(design, choice.candidate.width)
    fitted = losses(form, theta, design.logs)
    freedom = max(float(np.sum(weight**2)) - chosen.free(form, design), 1.0)
    group = design.cell if design.cell.max() + 1 >= FEWEST_CELLS else np.arange(len(fitted))
    errors = _unshrunk(slopes(form, design, theta, weight), design.loss - fitted, weight, group)
    errors *= _few(group.max() + 1, options.level)
    generator = np.random.default_rng(options.seed)
    drawn = generator.standard_normal((options.resamples, group.max() + 1))[:, group]
    observed = fitted + errors * drawn
    starts = np.tile(theta, (options.resamples, 1))
    weights = np.broadcast_to(weight, observed.shape)
    draws = solved(form, design, starts, weights, observed).parameters
    return FittedForm(
        form=FORMS.name_of(form),
        width=choice.candidate.width,
        reference=tuple(np.exp(design.centres).tolist()),
        batches=(float(points.batch.min()), float(points.batch.max())),
        theta=theta,
        draws=np.round(draws[:KEPT_DRAWS], 9),
        scatter=float(np.sqrt(np.sum((weight * (design.loss - fitted)) ** 2) / freedom)),
        parameters=_parameters(design, choice, draws, options.level),
    )


def _unshrunk(
    jacobian: np.ndarray, errors: np.ndarray, weight: np.ndarray, group: np.ndarray
) -> np.ndarray:
    """Errors [n] without what the fit took from them (CR2 of Bell and McCaffrey, 2002).

    Within a group, weighted errors are multiplied by (1 - H)^(-1/2), H the fit's hat matrix.
    """
    basis, singular, _ = np.linalg.svd(jacobian, full_matrices=False)
    basis = basis[:, singular > 1e-9 * singular.max(initial=1e-300)]
    full, found = weight > 1e-6, errors.copy()
    for one in np.unique(group[full]):
        rows = np.flatnonzero((group == one) & full)
        _, sizes, across = np.linalg.svd(basis[rows].T, full_matrices=False)
        grown = 1 / np.sqrt(np.maximum(1 - sizes**2, LEAST_LEFT)) - 1
        weighted = weight[rows] * errors[rows]
        found[rows] = (weighted + across.T @ (grown * (across @ weighted))) / weight[rows]
    return found


def _few(groups: int, level: float) -> float:
    """By how much so few independent draws are too narrow: Student's t over the normal."""
    quantile = (1 + level) / 2
    narrow = np.sqrt(groups / (groups - 1)) if groups > 1 else 1.0
    return float(narrow * stats.t.ppf(quantile, max(groups - 1, 1)) / stats.norm.ppf(quantile))


def _parameters(
    design: Design, choice: chosen.Choice, draws: np.ndarray, level: float
) -> dict[str, Estimate]:
    """Each parameter at the reference with its interval, or why it has none."""
    form, theta = choice.candidate.form, choice.solution.parameters[0]
    lower, upper = form.box(design)
    found = {}
    for i, name in enumerate(form.names):
        value, spread = theta[i], draws[:, i]
        if name in form.logs:
            value, spread = np.exp(value), np.exp(spread)
        if name == "B_star":
            value, spread = (x * np.exp(design.centres[2]) for x in (value, spread))
        estimate, note = interval(float(value), spread, level=level), ""
        if lower[i] == upper[i]:
            note = "held: the table does not vary what would tell it"
        elif choice.solution.at_bound[0, i] and name != "L_0":
            note = "unidentified: ended at a bound of the fit"
        elif name in form.logs and not (estimate.high or np.inf) < SPAN * (estimate.low or 0.0):
            note = f"unidentified: its interval spans more than a factor of {SPAN:g}"
        found[name] = Estimate(None, level=level, note=note) if note else estimate
    return found


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
    weight = design_weight(design, choice.candidate.width)
    freedom = max(float(np.sum(weight**2)) - chosen.free(choice.candidate.form, design), 1.0)
    ratio = (scatter / points.noise) ** 2 if points.noise else np.inf
    p = float(stats.f.sf(ratio, freedom, min(points.freedom, 1e9)))
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
    points: LossPoints, design: Design, ended: list[str], converged: bool, lack: LackOfFit
) -> list[str]:
    texts, (models, budgets) = [], design.varies
    if design.cell.max() == 0:
        texts.append("one model and one budget: a parabola in log B, which says nothing of others")
    elif not models:
        texts.append("params: one size, of which the law says nothing else")
    if design.cell.max() and (not budgets or np.ptp(np.log(points.tokens / points.params)) < 0.1):
        texts.append("tokens do not vary at given params: exponents in D rest on the law's form")
    if ended:
        texts.append(f"{', '.join(ended)} ended at a bound: the table does not identify it")
    if not converged:
        texts.append("the fit did not converge")
    if lack.p is not None and lack.p < SURE:
        texts.append(
            f"lack of fit: the law misses by {lack.rmse:.2g} nats where repetitions differ by "
            f"{lack.noise:.2g} (p = {lack.p:.2g}); intervals hold it"
        )
    return texts
