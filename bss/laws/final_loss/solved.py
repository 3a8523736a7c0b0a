"""Forms put to the shared fitter: rows weighted by the design, many weightings at once.

A row counts by how far its loss is above the best of its own (N, D), never by its residual: rows
that are that far off are of no use for the best batch, and divergence is among them (derived here).

What other tables of the kind would have given is told by a wild bootstrap of whole cells (derived
here). Each (N, D) keeps its errors about the law, noise and lack of fit alike, times one draw. What
the fit took from them is given back first, and few cells are made up for as Student's t does.
"""

import numpy as np
from scipy import stats

from bss.laws.final_loss.fitted import FittedForm
from bss.laws.final_loss.forms import FORMS, Form
from bss.laws.final_loss.forms.form import FLOOR, CentredPoints, losses
from bss.laws.final_loss.points import LossPoints
from bss.laws.fitting.constraints import FREE, Constraints
from bss.laws.fitting.estimate import SPANS, Estimate, Options, interval, too_wide
from bss.laws.fitting.solve import Solution, linearize, solve_in_rounds

PADDING = 96  # rows: tables up to this size share one compiled program
ROUNDS = 40  # of ten iterations, for a fit that is kept
REFIT_ROUNDS = 8
VARIED = 1.5  # a range that counts as a variation: (largest / smallest)
WIDE = 0.3
"""Excess, as a share of the best loss, at which a row counts half."""
FEWEST_CELLS = 6  # from which errors are resampled by cells, else by rows
KEPT_DRAWS = 200
LEAST_LEFT = 0.05  # share of an error that a fit leaves, below which it says nothing


def design_of(
    points: LossPoints, trust: np.ndarray | None = None, constraints: Constraints = FREE
) -> CentredPoints:
    """The points as forms see them, how far each [n] is trusted, and what is held."""
    logs = np.log(np.stack([points.params, points.tokens, points.batch], axis=1))
    centres = (logs.min(axis=0) + logs.max(axis=0)) / 2
    models, budgets, _ = np.ptp(logs, axis=0) > np.log(VARIED)
    varies = bool(models), bool(budgets)
    trust = np.ones(len(points.loss)) if trust is None else trust
    return CentredPoints(
        logs - centres, centres, points.loss, points.cell, varies, trust, constraints
    )


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
    return solve_in_rounds(form.residual, starts, form.bounds(design), data, changed, rounds=rounds)


def slopes(form: Form, design: CentredPoints, theta: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """[n, free], derivatives of the weighted errors by the parameters that are free and inside."""
    data = form.data | {"logs": design.logs, "loss": design.loss, "weight": weight}
    lower, upper = form.bounds(design)
    free = (lower < theta) & (theta < upper)
    return linearize(form.residual, theta, data)[1][:, free]


def best_fit(form: Form, design: CentredPoints) -> Solution:
    """The best of all starts."""
    weight = design_weight(design)
    starts = form.starts(design, weight)
    each = np.repeat(weight[None], len(starts), axis=0)
    return solved(form, design, starts, each, rounds=ROUNDS).best()


def freedom(form: Form, design: CentredPoints) -> float:
    """Degrees of freedom that a fit leaves, rows by their weights; 1 at least."""
    return max(float(np.sum(design_weight(design) ** 2)) - form.free(design), 1.0)


def with_draws(
    form: Form, design: CentredPoints, solution: Solution, options: Options
) -> FittedForm:
    """A fitted form with its bootstrap."""
    theta, weight = solution.parameters[0], design_weight(design)
    fitted = losses(form, theta, design.logs)
    group = design.cell if design.cell.max() + 1 >= FEWEST_CELLS else np.arange(len(fitted))
    errors = _unshrunk(slopes(form, design, theta, weight), design.loss - fitted, weight, group)
    errors *= _few(group.max() + 1, options.level)
    generator = np.random.default_rng(options.seed)
    drawn = generator.standard_normal((options.resamples, group.max() + 1))[:, group]
    observed = fitted + errors * drawn
    starts = np.tile(theta, (options.resamples, 1))
    weights = np.broadcast_to(weight, observed.shape)
    draws = solved(form, design, starts, weights, observed).parameters
    squares = np.sum((weight * (design.loss - fitted)) ** 2)
    return FittedForm(
        form=FORMS.name_of(form),
        reference=tuple(np.exp(design.centres).tolist()),
        theta=theta,
        draws=np.round(draws[:KEPT_DRAWS], 9),
        scatter=float(np.sqrt(squares / freedom(form, design))),
        parameters=_parameters(form, design, solution, draws, options.level),
    )


def _unshrunk(
    jacobian: np.ndarray, errors: np.ndarray, weight: np.ndarray, group: np.ndarray
) -> np.ndarray:
    """Errors [n] without what the fit took from them (CR2 of Bell and McCaffrey, 2002).

    Within a group, weighted errors are multiplied by (1 - H)^(-1/2), H the fit's hat matrix.
    """
    basis, singular, _ = np.linalg.svd(jacobian, full_matrices=False)
    basis = basis[:, singular > 1e-9 * singular.max(initial=1e-300)]
    full, grown_errors = weight > 1e-6, errors.copy()
    for one in np.unique(group[full]):
        rows = np.flatnonzero((group == one) & full)
        _, sizes, across = np.linalg.svd(basis[rows].T, full_matrices=False)
        grown = 1 / np.sqrt(np.maximum(1 - sizes**2, LEAST_LEFT)) - 1
        weighted = weight[rows] * errors[rows]
        grown_errors[rows] = (weighted + across.T @ (grown * (across @ weighted))) / weight[rows]
    return grown_errors


def _few(groups: int, level: float) -> float:
    """By how much so few independent draws are too narrow: Student's t over the normal."""
    quantile = (1 + level) / 2
    narrow = np.sqrt(groups / (groups - 1)) if groups > 1 else 1.0
    return float(narrow * stats.t.ppf(quantile, max(groups - 1, 1)) / stats.norm.ppf(quantile))


def _parameters(
    form: Form, design: CentredPoints, solution: Solution, draws: np.ndarray, level: float
) -> dict[str, Estimate]:
    """Each parameter at the reference with its interval, or why it has none."""
    theta = solution.parameters[0]
    lower, upper = form.bounds(design)
    estimates = {}
    for i, name in enumerate(form.names):
        value, spread = (form.printed(name, x, design.centres) for x in (theta[i], draws[:, i]))
        estimate, note = interval(float(value), spread, level=level), ""
        if name in design.constraints.ranges:
            pass  # its value is the user's
        elif lower[i] == upper[i]:
            note = "held: the table does not vary what would tell it"
        elif solution.at_bound[0, i] and name == "L_0" and theta[i] > 0:
            note = f"at its floor, {FLOOR:g} of the least loss: {theta[i]:.4g} nats"
        elif solution.at_bound[0, i] and name != "L_0":
            note = "unidentified: ended at a bound of the fit"
        elif name in form.logs and too_wide(estimate):
            note = f"unidentified: {SPANS}"
        estimates[name] = Estimate(None, level=level, note=note) if note else estimate
    return estimates
