"""What is left out to judge a law by: cells, the largest and smallest, what a user says."""

import operator
import re
from dataclasses import dataclass

import numpy as np

from bss.errors import InputError
from bss.laws.final_loss.forms.form import CentredPoints
from bss.laws.final_loss.points import USES, LossPoints
from bss.laws.final_loss.solved import excess
from bss.laws.fitting.bootstrap import rms
from bss.units import format_tokens, parse_tokens

TOP = (0.1, 0.2, 0.3, 0.4)  # shares of the cells whose budgets are left out as the largest
BOTTOM = (0.1, 0.3)  # or as the smallest
OUTER = 24  # groups of cells whose errors are reported
NEAR = 0.03  # excess, as a share of the loss, up to which a row is near its cell's best

_CONDITION = re.compile("(params|tokens|batch_tokens)(>=|<=|>|<|=)(.+)")
_COMPARED = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "=": operator.eq
}  # fmt: skip


@dataclass(frozen=True)
class Fold:
    """What is left out, rows [n], and its kind: "cell", "params", "tokens" or as a user said.

    `use` is the one for which its error counts.
    """

    kind: str
    out: np.ndarray
    use: str = "inside"


@dataclass(frozen=True)
class LeftOut:
    """Errors in nats at rows that the whole procedure, the weights with it, has not seen.

    Attributes:
        kind: of the fold.
        out: [n], the rows.
        error: [n] predicted less measured; NaN at the others.
        weights: per form and row [n], made without them.
        thetas: per form its parameters [P], fitted without them.
    """

    kind: str
    out: np.ndarray
    error: np.ndarray
    weights: dict[str, np.ndarray]
    thetas: dict[str, np.ndarray]


def reported(design: CentredPoints) -> list[Fold]:
    """The folds whose errors are told: each cell, the largest model, the largest budgets."""
    every = np.ones(len(design.loss), bool)
    beyond = {fold.kind: fold for fold in reversed(ends(design, every)) if fold.use == "beyond"}
    return [*cells_in_turn(design, every, OUTER), *beyond.values()]


def cells_in_turn(design: CentredPoints, rows: np.ndarray, groups: int) -> list[Fold]:
    """Cells of these rows left out in turn, in so many groups at most."""
    n, d = design.logs.T[:2]
    cells = sorted(
        np.unique(design.cell[rows]), key=lambda c: (d[design.cell == c][0], n[design.cell == c][0])
    )
    if len(cells) < 3:
        return []
    group = {cell: i % groups for i, cell in enumerate(cells)}
    member = np.array([group.get(cell, -1) for cell in design.cell])
    return [Fold("cell", rows & (member == i)) for i in range(min(groups, len(cells)))]


def ends(design: CentredPoints, rows: np.ndarray) -> list[Fold]:
    """The largest model of these rows left out, the largest budgets, and the smallest of both.

    Those that leave two of what is left out.
    """
    cases = [("params", 0, 0.0, 1), *(("tokens", 1, top, 1) for top in TOP)]
    cases += [("params", 0, 0.0, -1), *(("tokens", 1, bottom, -1) for bottom in BOTTOM)]
    folds = []
    for kind, axis, share, side in cases:
        x = side * design.logs[:, axis]
        values = np.array([x[rows & (design.cell == c)][0] for c in np.unique(design.cell[rows])])
        out = rows & (x >= np.quantile(values, 1 - share, method="higher") - 1e-9)
        new = not folds or (out != folds[-1].out).any()
        if new and design.varies[axis] and len(np.unique(x[rows & ~out])) > 1:
            folds.append(Fold(kind, out, USES[1 if side > 0 else 2]))
    return folds


def folds_of(points: LossPoints, text: str) -> list[Fold]:
    """The folds that a user asks for: params, tokens, batch, cell or run in turn, or a condition.

    Raises:
        InputError: the text is neither, or leaves out no rows, or all.
    """
    columns = {"params": points.params, "tokens": points.tokens, "batch_tokens": points.batch}
    if text in ("params", "tokens", "batch"):
        x, unit = columns.get(text, points.batch), (points.seq_len or 1) if text == "batch" else 1
        folds = [Fold(f"{text}={format_tokens(round(v / unit))}", x == v) for v in np.unique(x)]
    elif text == "run":
        logs = zip(points.params, points.tokens, points.batch, strict=True)
        names = ["params={:.4g} tokens={:.4g} batch_tokens={:.4g}".format(*row) for row in logs]
        folds = [Fold(name, out) for name, out in zip(names, np.eye(len(names)) > 0, strict=True)]
    elif text == "cell":
        first = [np.flatnonzero(points.cell == cell)[0] for cell in np.unique(points.cell)]
        names = [f"params={points.params[i]:.4g} tokens={points.tokens[i]:.4g}" for i in first]
        masks = [points.cell == points.cell[i] for i in first]
        folds = [Fold(name, out) for name, out in zip(names, masks, strict=True)]
    elif match := _CONDITION.fullmatch(text.replace(" ", "")):
        name, compared, count = match.groups()
        bound = parse_tokens(count, field="--hold-out")
        folds = [Fold(text, _COMPARED[compared](columns[name], bound))]
    else:
        raise InputError(
            f"--hold-out {text!r}: expected params, tokens, batch, cell, run, or a condition as "
            "tokens>=80B"
        )
    for fold in folds:
        rest = ~fold.out
        if not fold.out.any() or len(np.unique(points.cell[rest])) < 2:
            raise InputError(
                f"--hold-out {text}: {int(fold.out.sum())} of {len(rest)} points are left out, and "
                "two (params, tokens) must stay; choose another"
            )
    return folds


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


def near_best(design: CentredPoints) -> np.ndarray:
    """[n], rows near the best of their cell."""
    above = excess(design)
    return above <= NEAR * (design.loss - above)
