"""What is left out to weigh forms by and to report: cells, the ends, what a user says."""

import operator
import re
from dataclasses import dataclass

import numpy as np

from bss.errors import InputError
from bss.laws.final_loss.points import REGIMES, LossPoints
from bss.units import format_tokens, parse_tokens

TOP = (0.1, 0.2, 0.3, 0.4)  # shares of the cells whose budgets are left out as the largest
BOTTOM = (0.1, 0.3)  # or as the smallest
GROUPS = 8  # of cells, left out in turn

_CONDITION = re.compile("(params|tokens|batch_tokens)(>=|<=|>|<|=)(.+)")
_COMPARED = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "=": operator.eq
}  # fmt: skip


@dataclass(frozen=True)
class Fold:
    """What is left out, rows [n], and its kind: "cell", "params", "tokens" or as a user said.

    `regime` is the one for which its error counts; none for a user's.
    """

    kind: str
    out: np.ndarray
    regime: str = ""


def folds_of(points: LossPoints) -> list[Fold]:
    """Groups of cells in turn and the ends; of a single cell its batches in turn."""
    n, d = points.logs.T[:2]
    if len(points.cells) < 3:
        batches = np.unique(points.batch)
        each = [points.batch == batch for batch in batches] if len(points.cells) == 1 else []
        return [Fold("cell", out, REGIMES[0]) for out in each if len(batches) > 2]
    order = sorted(
        range(len(points.cells)), key=lambda c: (d[points.cells[c][0]], n[points.cells[c][0]])
    )
    group = np.empty(len(order), int)
    group[order] = np.arange(len(order)) % GROUPS
    member = group[points.cell]
    cells = [Fold("cell", member == i, REGIMES[0]) for i in range(member.max() + 1)]
    return [*cells, *_ends(points)]


def _ends(points: LossPoints) -> list[Fold]:
    """The largest model left out, the largest budgets, and the smallest of both.

    Those that leave two of what is left out.
    """
    cases = [("params", 0, 0.0, 1), *(("tokens", 1, top, 1) for top in TOP)]
    cases += [("params", 0, 0.0, -1), *(("tokens", 1, bottom, -1) for bottom in BOTTOM)]
    folds = []
    for kind, axis, share, side in cases:
        x = side * points.logs[:, axis]
        values = np.array([x[rows[0]] for rows in points.cells])
        out = x >= np.quantile(values, 1 - share, method="higher") - 1e-9
        new = not folds or (out != folds[-1].out).any()
        if new and points.varies[axis] and len(np.unique(x[~out])) > 1:
            folds.append(Fold(kind, out, REGIMES[1 if side > 0 else 2]))
    return folds


def requested(points: LossPoints, text: str) -> list[Fold]:
    """The folds that a user asks for: params, tokens, batch, cell or run in turn, or a condition.

    Raises:
        InputError: the text is neither, or leaves out no rows, or all.
    """
    columns = {"params": points.params, "tokens": points.tokens, "batch_tokens": points.batch}
    if text in ("params", "tokens", "batch"):
        x, unit = columns.get(text, points.batch), (points.seq_len or 1) if text == "batch" else 1
        folds = [Fold(f"{text}={format_tokens(round(v / unit))}", x == v) for v in np.unique(x)]
    elif text == "run":
        sizes = zip(*columns.values(), strict=True)
        names = ["params={:.4g} tokens={:.4g} batch_tokens={:.4g}".format(*row) for row in sizes]
        folds = [Fold(name, out) for name, out in zip(names, np.eye(len(names)) > 0, strict=True)]
    elif text == "cell":
        names = ["params={:.4g} tokens={:.4g}".format(*size) for size in points.sizes]
        folds = [Fold(name, points.cell == i) for i, name in enumerate(names)]
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
