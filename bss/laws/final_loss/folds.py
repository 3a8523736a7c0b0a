"""Rows that are left out to weigh forms and to measure errors: cells, the largest, a user's."""

import operator
import re
from dataclasses import dataclass

import numpy as np

from bss.errors import InputError
from bss.laws.final_loss.points import LossPoints
from bss.laws.solver import CHUNK
from bss.units import parse_tokens

TOP = (0.1, 0.2, 0.4)  # shares of the cells whose budgets are left out as the largest

HELD_OUT = {
    "params": ("params",), "tokens": ("tokens",), "batch": ("batch_tokens",),
    "cell": ("params", "tokens"), "run": ("params", "tokens", "batch_tokens"),
}  # fmt: skip
"""What --hold-out leaves out one at a time: rows that share these sizes."""

_CONDITION = re.compile("(params|tokens|batch_tokens)(>=|<=|>|<|=)(.+)")
_COMPARED = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "=": operator.eq
}  # fmt: skip


@dataclass(frozen=True)
class Fold:
    """Rows that are left out together.

    Attributes:
        kind: "cell", "params" and "tokens" of the folds of every fit; what a user wrote.
        out: [n], True where a row is left out.
    """

    kind: str
    out: np.ndarray


def folds_of(points: LossPoints) -> list[Fold]:
    """Return groups of cells, the largest model and budgets; of one cell its inner batches.

    Each leaves two sizes of what is left out.
    """
    n, d = points.logs.T[:2]
    if len(points.cells) < 3:
        inner = np.unique(points.batch)[1:-1] if len(points.cells) == 1 else ()
        return [Fold("cell", points.batch == batch) for batch in inner]
    first = [rows[0] for rows in points.cells]
    group = np.empty(len(first), int)
    group[np.lexsort([n[first], d[first]])] = (
        np.arange(len(first)) % CHUNK
    )  # as many groups as descend together
    member = group[points.cell]
    folds = [Fold("cell", member == i) for i in range(member.max() + 1)]
    for kind, axis, share in (("params", 0, 0.0), *(("tokens", 1, top) for top in TOP)):
        x = points.logs[:, axis]
        out = x >= np.quantile(x[first], 1 - share, method="higher") - 1e-9
        new = (out != folds[-1].out).any()
        if new and points.varies[axis] and len(np.unique(x[~out])) > 1:
            folds.append(Fold(kind, out))
    return folds


def requested(points: LossPoints, text: str) -> list[Fold]:
    """Return the folds of --hold-out: params, tokens, batch, cell or run, or a condition.

    Raises:
        InputError: If the text is neither, or leaves out no rows, or all.
    """
    sizes = {"params": points.params, "tokens": points.tokens, "batch_tokens": points.batch}
    names = HELD_OUT.get(text)
    if names:
        rows, which = np.unique([sizes[name] for name in names], axis=1, return_inverse=True)
        labels = [
            " ".join(f"{n}={x:.4g}" for n, x in zip(names, row, strict=True)) for row in rows.T
        ]
        folds = [Fold(label, which.ravel() == i) for i, label in enumerate(labels)]
    elif match := _CONDITION.fullmatch(text.replace(" ", "")):
        name, compared, count = match.groups()
        bound = parse_tokens(count, field="--hold-out")
        folds = [Fold(text, _COMPARED[compared](sizes[name], bound))]
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
                "two (params, tokens) must remain; choose another"
            )
    return folds
