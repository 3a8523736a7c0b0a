"""Several forms averaged by what they have not seen, with a weight of each for every use.

A form that is best inside a table may fail beyond it, and which one is best is often luck: so none
is chosen. There are three uses: at (N, D) inside the table, beyond its largest model or budget, and
below its smallest; each has its own weights, by the errors at rows left out in that way. Where rows
are left out to be told of, the weights are made again without them, so that the error is of the
whole procedure (derived here).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bss.errors import InputError
from bss.laws.final_loss.forms import FAMILY, FORMS, VALLEY, Form
from bss.laws.final_loss.forms.form import CentredPoints, losses
from bss.laws.final_loss.left_out import Fold, LeftOut, cells_in_turn, ends, reported
from bss.laws.final_loss.points import USES, uses
from bss.laws.final_loss.solved import best_fit, design_weight, solved
from bss.laws.fitting.solve import Solution

INNER = 6  # groups of cells by which weights are made
FEWEST = 4  # cells from which more than the first form is fitted
POWER = 4.0  # of a left-out error, by which it weighs
LEAST = 0.05  # weight below which a form is left out

Weights = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Averaged:
    """The forms fitted to all rows, by name.

    Attributes:
        fits: a solution each.
        weights: by use.
        judged: per form its left-out error in nats, by use.
        left_out: what is reported.
        hold_out: the folds of a user's own.
    """

    fits: dict[str, Solution]
    weights: Weights
    judged: Weights
    left_out: list[LeftOut]
    hold_out: list[LeftOut]

    @property
    def used(self) -> list[str]:
        """The forms with a weight for any use."""
        return [n for n in self.fits if max(by[n] for by in self.weights.values()) > 0]


def averaged(
    design: CentredPoints, extra: Sequence[Fold] = (), names: Sequence[str] | None = None
) -> Averaged:
    """Fits the forms and weighs them.

    Args:
        design: the points.
        extra: folds of a user's own.
        names: of the forms; None for all that the table allows.

    Raises:
        InputError: a form that was asked for does not apply.
    """
    forms = {FORMS.name_of(form): form for form in applicable(design, names)}
    fits = {name: best_fit(form, design) for name, form in forms.items()}
    usual = reported(design)
    outer = [*usual, *extra]
    nothing = Fold("cell", np.zeros(len(design.loss), bool))
    scores = {n: _scores(design, forms[n], fit, [nothing, *outer]) for n, fit in fits.items()}
    first, *others = (_weights(scores, i) for i in range(len(outer) + 1))
    pairs = zip(outer, others, strict=True)
    left_out = [_left_out(design, forms, fits, fold, weights) for fold, weights in pairs]
    judged = {n: dict(zip(USES, x[:, 0].tolist(), strict=True)) for n, x in scores.items()}
    return Averaged(fits, first, judged, left_out[: len(usual)], left_out[len(usual) :])


def first_look(design: CentredPoints, names: Sequence[str] | None = None) -> np.ndarray:
    """[n], losses by the forms' plain mean, before anything is known of them."""
    fits = [(form, best_fit(form, design)) for form in applicable(design, names)]
    return np.mean([losses(form, fit.parameters[0], design.logs) for form, fit in fits], axis=0)


def _weights(scores: Mapping[str, np.ndarray], i: int) -> Weights:
    """By use and form, of scores [use, fold]."""
    weights = {}
    for u, use in enumerate(USES):
        weights[use] = weighed({name: float(score[u, i]) for name, score in scores.items()})
    return weights


def weighed(errors: Mapping[str, float]) -> dict[str, float]:
    """Weights of forms, which sum to 1, by their left-out errors; small ones are 0."""
    error = np.maximum(list(errors.values()), 1e-9)
    weight = (error / error.min()) ** -POWER
    weight = np.where(weight / weight.sum() < LEAST, 0.0, weight)
    return dict(zip(errors, (weight / weight.sum()).tolist(), strict=True))


def _left_out(
    design: CentredPoints,
    forms: Mapping[str, Form],
    fits: Mapping[str, Solution],
    fold: Fold,
    by: Weights,
) -> LeftOut:
    """The errors at a fold, each row by the weights of its use."""
    inside = ~fold.out
    weight = design_weight(design)[None] * inside
    use = uses(design.logs[:, :2], design.logs[inside, :2])
    thetas, rows, predicted = {}, {}, np.zeros(len(design.loss))
    for name, form in forms.items():
        rows[name] = np.array([by[one][name] for one in use])
        thetas[name] = solved(form, design, fits[name].parameters, weight).parameters[0]
        predicted = predicted + rows[name] * losses(form, thetas[name], design.logs)
    return LeftOut(
        fold.kind, fold.out, np.where(inside, np.nan, predicted - design.loss), rows, thetas
    )


def applicable(design: CentredPoints, names: Sequence[str] | None = None) -> list[Form]:
    """The forms that a table allows: a valley for a single cell, else those of several.

    An outer exponent, and what else is beside the first form, is told by several cells.

    Raises:
        InputError: one that was asked for is for the other kind of table, or has too many
            parameters for it.
    """
    one = design.cell.max() == 0
    for name in names or ():
        form = FORMS[name]
        if one != (form is VALLEY):
            needed = "one (params, tokens)" if form is VALLEY else "several (params, tokens)"
            raise InputError(f"form: {name} is for {needed}, not this table; leave --form out")
        if not one and form.free(design) >= len(design.loss):
            raise InputError(
                f"form: {name} has {form.free(design)} parameters for {len(design.loss)} points "
                "of (params, tokens, batch); add runs, or leave --form out"
            )
    if names:
        return [FORMS[name] for name in names]
    if one:
        return [VALLEY]
    enough = [form for form in FAMILY if form.free(design) < len(design.loss)]
    return enough if design.cell.max() + 1 >= FEWEST else enough[:1]


def _scores(design: CentredPoints, form: Form, fit: Solution, outer: list[Fold]) -> np.ndarray:
    """For each use and outer fold [use, outer]: the left-out error of a table without the fold.

    That is the root mean square over cells, and for the uses outside the largest of it and of those
    of every fold on that side.
    """
    design_rows = design.logs[:, :2]
    inner = []
    for i, fold in enumerate(outer):
        inner += [(i, fold.out | one.out, one) for one in cells_in_turn(design, ~fold.out, INNER)]
        if i == 0 or set(uses(design_rows[fold.out], design_rows[~fold.out])) != {"inside"}:
            inner += [(i, fold.out | one.out, one) for one in ends(design, ~fold.out)]
    scores = np.full((len(USES), len(outer)), float(fit.cost[0]))  # where nothing can be left out
    if not inner:
        return scores
    weight = design_weight(design)
    used = ~np.array([out for _, out, _ in inner])
    starts = np.repeat(fit.parameters, len(inner), axis=0)
    thetas = solved(form, design, starts, weight * used)
    squares = weight * (losses(form, thetas.parameters, design.logs) - design.loss) ** 2
    for i in {i for i, _, _ in inner}:
        errors: dict[str, list[float]] = {use: [] for use in USES}
        for (at, _, fold), here in zip(inner, squares, strict=True):
            if at == i:
                kind = "inside" if fold.kind == "cell" else fold.use
                errors[kind].append(float(np.mean(here[fold.out])))
        cell = float(np.mean(errors["inside"] or [0.0]))
        scores[:, i] = np.sqrt(
            [max([cell, *errors[use]]) if u else cell for u, use in enumerate(USES)]
        )
    return scores
