"""Which form, and which width of weights: the pair that predicts what it has not seen best.

Chosen twice, for the two ways in which a law is used: at (N, D) inside the table by its error at
cells left out; beyond it by its worst error, be it at these, at the largest model or at any of
several shares of the largest budgets left out, as a form may do well up to where it fails. The
choice is made again inside every fold whose error is reported, so that the error is of the whole
procedure (derived here).
"""

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bss.errors import InputError
from bss.laws.final_loss.forms import FAMILY, FORMS, PARABOLA, Form
from bss.laws.final_loss.forms.form import Design
from bss.laws.final_loss.points import LossPoints
from bss.laws.final_loss.solved import (
    NARROW,
    WIDE,
    Candidate,
    best_fit,
    design_weight,
    excess,
    losses,
    solved,
)
from bss.laws.fitting.bootstrap import rms
from bss.laws.fitting.solve import Solution
from bss.units import format_tokens, parse_tokens

TOP = (0.1, 0.2, 0.3, 0.4)  # shares of the cells whose budgets are left out as the largest
INNER = 6  # groups of cells by which a choice is made
FEWEST = 4  # cells from which more than the first form is tried
OUTER = 24  # groups of cells whose errors are reported
NEAR = 0.03  # excess, as a share of the loss, up to which a row is near its cell's best

_CONDITION = re.compile("(params|tokens|batch_tokens)(>=|<=|>|<|=)(.+)")
_COMPARED = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "=": operator.eq
}  # fmt: skip


@dataclass(frozen=True)
class Fold:
    """What is left out, rows [n], and its kind: "cell", "params", "tokens" or as a user said."""

    kind: str
    out: np.ndarray


@dataclass(frozen=True)
class LeftOut:
    """Errors in nats at rows that the whole procedure, the choice with it, has not seen.

    Attributes:
        kind: of the fold.
        out: [n], the rows.
        error: [n] predicted less measured; NaN at the others.
        form: the name of the one that was chosen without them.
        theta: [P], its parameters, fitted without them.
    """

    kind: str
    out: np.ndarray
    error: np.ndarray
    form: str
    theta: np.ndarray


@dataclass(frozen=True)
class Choice:
    """What was chosen for a use, fitted to all rows; `judged` are left-out errors of each."""

    candidate: Candidate
    solution: Solution
    judged: dict[Candidate, float]


def choose(
    design: Design, extra: Sequence[Fold] = (), forms: Sequence[Form] = FAMILY
) -> tuple[Choice, Choice, list[LeftOut]]:
    """The choice for inside the table, that for beyond it, and the errors of having chosen.

    Args:
        design: the points.
        extra: folds of a user's own, reported behind those of `reported`.
        forms: among which is chosen.
    """
    fits = {one: best_fit(one, design) for one in candidates(design, forms)}
    outer = [*reported(design), *extra]
    nothing = Fold("cell", np.zeros(len(design.loss), bool))
    inside, beyond = _scores(design, fits, [nothing, *outer])
    left_out = []
    for i, fold in enumerate(outer, 1):
        scores = inside if fold.kind == "cell" else beyond
        one = min(scores, key=lambda one: scores[one][i])
        weight = design_weight(design, one.width)[None] * ~fold.out
        theta = solved(one.form, design, fits[one].parameters, weight).parameters[0]
        error = losses(one.form, theta, design.logs) - design.loss
        left_out.append(
            LeftOut(
                fold.kind,
                fold.out,
                np.where(fold.out, error, np.nan),
                FORMS.name_of(one.form),
                theta,
            )
        )
    chosen = []
    for scores in (inside, beyond):
        judged = {one: float(errors[0]) for one, errors in scores.items()}
        best = min(judged, key=lambda one: judged[one])
        chosen.append(Choice(best, fits[best], judged))
    return chosen[0], chosen[1], left_out


def candidates(design: Design, forms: Sequence[Form] = FAMILY) -> list[Candidate]:
    """Those that have fewer parameters than there are rows; a parabola for a single cell."""
    if design.cell.max() == 0:
        return [Candidate(PARABOLA, NARROW)]
    # An outer exponent, and what else is beside the first form, is told by several cells.
    several = design.cell.max() + 1 >= FEWEST
    enough = [form for form in forms if free(form, design) < len(design.loss)]
    return [
        Candidate(form, width)
        for form in (enough if several else enough[:1])
        for width in (WIDE, NARROW)
    ]


def free(form: Form, design: Design) -> int:
    """How many parameters are fitted."""
    lower, upper = form.box(design)
    return int((lower < upper).sum())


def freedom(choice: Choice, design: Design) -> float:
    """Degrees of freedom that the chosen fit leaves, rows by their weights; 1 at least."""
    weight = design_weight(design, choice.candidate.width)
    return max(float(np.sum(weight**2)) - free(choice.candidate.form, design), 1.0)


def reported(design: Design) -> list[Fold]:
    """The folds whose errors are told: each cell, the largest model, the largest budgets."""
    every = np.ones(len(design.loss), bool)
    beyond = {fold.kind: fold for fold in reversed(_beyond(design, every))}
    return [*_cells(design, every, OUTER), *beyond.values()]


def _cells(design: Design, rows: np.ndarray, groups: int) -> list[Fold]:
    """Cells of these rows left out in turn, in so many groups at most."""
    n, d, _ = design.logs.T
    cells = sorted(
        np.unique(design.cell[rows]), key=lambda c: (d[design.cell == c][0], n[design.cell == c][0])
    )
    if len(cells) < 3:
        return []
    group = {cell: i % groups for i, cell in enumerate(cells)}
    member = np.array([group.get(cell, -1) for cell in design.cell])
    return [Fold("cell", rows & (member == i)) for i in range(min(groups, len(cells)))]


def _beyond(design: Design, rows: np.ndarray) -> list[Fold]:
    """The largest model of these rows left out, and the largest budgets; those that leave two."""
    asked = [("params", 0, 0.0), *(("tokens", 1, top) for top in TOP)]
    found = []
    for kind, axis, top in asked:
        x = design.logs[:, axis]
        values = np.array([x[rows & (design.cell == c)][0] for c in np.unique(design.cell[rows])])
        out = rows & (x >= np.quantile(values, 1 - top, method="higher") - 1e-9)
        new = not found or (out != found[-1].out).any()
        if new and design.varies[axis] and len(np.unique(x[rows & ~out])) > 1:
            found.append(Fold(kind, out))
    return found


def _scores(
    design: Design, fits: dict[Candidate, Solution], outer: list[Fold]
) -> tuple[dict[Candidate, np.ndarray], dict[Candidate, np.ndarray]]:
    """For inside and for beyond, [outer] each: the left-out error of a table without a fold.

    That is the root mean square over cells, rows by wide weights, and the largest of it and of
    those of every fold beyond.
    """
    first = outer[0]
    inner = [
        (i, fold.out | one.out, one)
        for i, fold in enumerate(outer)
        for one in (
            *_cells(design, ~fold.out, INNER),
            *(_beyond(design, ~fold.out) if fold is first or fold.kind != "cell" else ()),
        )
    ]
    wide, inside, beyond = design_weight(design, WIDE), {}, {}
    for one, fit in fits.items():
        scores = np.full((2, len(outer)), float(fit.cost[0]))  # where nothing can be left out
        if inner:
            kept = ~np.array([out for _, out, _ in inner])
            starts = np.repeat(fit.parameters, len(inner), axis=0)
            thetas = solved(one.form, design, starts, design_weight(design, one.width) * kept)
            squares = wide * (losses(one.form, thetas.parameters, design.logs) - design.loss) ** 2
            for i in {i for i, _, _ in inner}:
                told = [
                    (fold.kind, np.mean(here[fold.out]))
                    for (at, _, fold), here in zip(inner, squares, strict=True)
                    if at == i
                ]
                cell = np.mean([square for kind, square in told if kind == "cell"] or [0.0])
                worst = max([cell, *(square for kind, square in told if kind != "cell")])
                scores[:, i] = np.sqrt([cell, worst])
        inside[one], beyond[one] = scores
    return inside, beyond


def asked(points: LossPoints, text: str) -> list[Fold]:
    """The folds that a user asks for: each params, tokens or cell in turn, or a condition.

    Raises:
        InputError: the text is neither, or leaves out no rows, or all.
    """
    columns = {"params": points.params, "tokens": points.tokens, "batch_tokens": points.batch}
    if text in ("params", "tokens"):
        x = columns[text]
        found = [Fold(f"{text}={format_tokens(round(v))}", x == v) for v in np.unique(x)]
    elif text == "cell":
        first = [np.flatnonzero(points.cell == cell)[0] for cell in np.unique(points.cell)]
        names = [f"params={points.params[i]:.4g} tokens={points.tokens[i]:.4g}" for i in first]
        masks = [points.cell == points.cell[i] for i in first]
        found = [Fold(name, out) for name, out in zip(names, masks, strict=True)]
    elif match := _CONDITION.fullmatch(text.replace(" ", "")):
        name, compared, count = match.groups()
        bound = parse_tokens(count, field="--hold-out")
        found = [Fold(text, _COMPARED[compared](columns[name], bound))]
    else:
        raise InputError(
            f"--hold-out {text!r}: expected params, tokens, cell, or a condition as tokens>=80B"
        )
    for fold in found:
        kept = ~fold.out
        if not fold.out.any() or len(np.unique(points.cell[kept])) < 2:
            raise InputError(
                f"--hold-out {text}: {int(fold.out.sum())} of {len(kept)} points are left out, and "
                "two (params, tokens) must stay; choose another"
            )
    return found


def errors_of(left_out: list[LeftOut], kind: str, count: int) -> np.ndarray:
    """[count], predicted less measured at the rows of a kind of folds, in nats; NaN at others."""
    errors = np.full(count, np.nan)
    for fold in left_out:
        if fold.kind == kind:
            errors[fold.out] = fold.error[fold.out]
    return errors


def error_of(left_out: list[LeftOut], kind: str, rows: np.ndarray) -> float | None:
    """Root mean square of `errors_of` over these rows [n]; None without any."""
    errors = errors_of(left_out, kind, len(rows))[rows]
    return rms(errors) if np.isfinite(errors).any() else None


def near_best(design: Design) -> np.ndarray:
    """[n], rows near the best of their cell."""
    above = excess(design)
    return above <= NEAR * (design.loss - above)
