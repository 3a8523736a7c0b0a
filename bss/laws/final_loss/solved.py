"""Forms put to the shared fitter: rows weighted by the design, many weightings at once.

A row counts by how far its loss is above the best of its own (N, D), never by its residual: rows
that are that far off are of no use for the best batch, and divergence is among them (derived here).
"""

import numpy as np

from bss.laws.final_loss.forms import Form
from bss.laws.final_loss.forms.form import CentredPoints
from bss.laws.final_loss.points import LossPoints
from bss.laws.fitting.solve import Solution, linearize, solve_in_rounds

PADDING = 96  # rows: tables up to this size share one compiled program
ROUNDS = 40  # of ten iterations, for a fit that is kept
REFIT_ROUNDS = 8
VARIED = 1.5  # a range that counts as a variation: (largest / smallest)
WIDE = 0.3
"""Excess, as a share of the best loss, at which a row counts half."""


def design_of(points: LossPoints, trust: np.ndarray | None = None) -> CentredPoints:
    """The points as forms see them, and how far each [n] is trusted."""
    logs = np.log(np.stack([points.params, points.tokens, points.batch], axis=1))
    centres = (logs.min(axis=0) + logs.max(axis=0)) / 2
    models, budgets, _ = np.ptp(logs, axis=0) > np.log(VARIED)
    varies = bool(models), bool(budgets)
    trust = np.ones(len(points.loss)) if trust is None else trust
    return CentredPoints(logs - centres, centres, points.loss, points.cell, varies, trust)


def excess(design: CentredPoints) -> np.ndarray:
    """[n], how far a loss is above the least of its cell, in nats."""
    least = np.full(design.cell.max() + 1, np.inf)
    np.minimum.at(least, design.cell, np.where(design.trust > 0, design.loss, np.inf))
    return design.loss - least[design.cell]


def design_weight(design: CentredPoints) -> np.ndarray:
    """[n], near 1 up to `WIDE` times the loss above the best of the cell, then vanishing."""
    above = excess(design)
    return design.trust / (1 + (above / (WIDE * (design.loss - above))) ** 4)


def usable_rows(design: CentredPoints) -> np.ndarray:
    """[n], whether a loss is not so far above the best of its cell that it may have diverged."""
    return excess(design) <= WIDE * (design.loss - excess(design))


def solved(
    form: Form,
    design: CentredPoints,
    starts: np.ndarray,
    weight: np.ndarray,
    loss: np.ndarray | None = None,
    *,
    rounds: int = REFIT_ROUNDS,
) -> Solution:
    """A descent from each start [Q, P], of weights [Q, n] and, if given, other losses [Q, n]."""
    spare = -len(design.loss) % PADDING
    rows = ((0, 0), (0, spare))
    changed = {"weight": np.pad(weight, rows)}
    if loss is not None:
        changed["loss"] = np.pad(loss, rows)
    logs = np.pad(design.logs, (*rows[1:], (0, 0)))
    data = form.data | {"logs": logs, "loss": np.pad(design.loss, rows[1])}
    return solve_in_rounds(form.residual, starts, form.box(design), data, changed, rounds=rounds)


def slopes(form: Form, design: CentredPoints, theta: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """[n, free], derivatives of the weighted errors by the parameters that are free and inside."""
    data = form.data | {"logs": design.logs, "loss": design.loss, "weight": weight}
    lower, upper = form.box(design)
    free = (lower < theta) & (theta < upper)
    return linearize(form.residual, theta, data)[1][:, free]


def best_fit(form: Form, design: CentredPoints) -> Solution:
    """The best of all starts."""
    weight = design_weight(design)
    starts = form.starts(design, weight)
    each = np.repeat(weight[None], len(starts), axis=0)
    return solved(form, design, starts, each, rounds=ROUNDS).best()


def losses(form: Form, theta: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Nats at logarithms [..., 3] about the reference, by θ [P]; or [R, ...] by θ [R, P]."""
    parts = np.moveaxis(theta, -1, 0)
    parts = parts.reshape(*parts.shape, *(1,) * (logs.ndim - 1)) if parts.ndim > 1 else parts
    return form.loss(parts, *np.moveaxis(logs, -1, 0))
