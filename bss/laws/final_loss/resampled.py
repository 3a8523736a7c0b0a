"""What other tables of the kind would have given: a wild bootstrap of whole cells (derived here).

Each (N, D) keeps its errors about the law, noise and lack of fit alike, times one draw. What the
fit took from them is given back first, and few cells are made up for as Student's t does.
"""

import numpy as np
from scipy import stats

from bss.laws.final_loss.averaged import freedom
from bss.laws.final_loss.fitted import FittedForm
from bss.laws.final_loss.forms import FORMS, Form
from bss.laws.final_loss.forms.form import FLOOR, CentredPoints
from bss.laws.final_loss.solved import design_weight, losses, slopes, solved
from bss.laws.fitting.estimate import SPANS, Estimate, Options, interval, too_wide
from bss.laws.fitting.solve import Solution

FEWEST_CELLS = 6  # from which errors are resampled by cells, else by rows
KEPT_DRAWS = 200
LEAST_LEFT = 0.05  # share of an error that a fit leaves, below which it says nothing


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
    lower, upper = form.box(design)
    estimates = {}
    for i, name in enumerate(form.names):
        value, spread = theta[i], draws[:, i]
        if name in form.logs:
            value, spread = np.exp(value), np.exp(spread)
        if name == "B_star":
            value, spread = (x * np.exp(design.centres[2]) for x in (value, spread))
        estimate, note = interval(float(value), spread, level=level), ""
        if lower[i] == upper[i]:
            note = "held: the table does not vary what would tell it"
        elif solution.at_bound[0, i] and name == "L_0" and theta[i] > 0:
            note = f"at its floor, {FLOOR:g} of the least loss: {theta[i]:.4g} nats"
        elif solution.at_bound[0, i] and name != "L_0":
            note = "unidentified: ended at a bound of the fit"
        elif name in form.logs and too_wide(estimate):
            note = f"unidentified: {SPANS}"
        estimates[name] = Estimate(None, level=level, note=note) if note else estimate
    return estimates
