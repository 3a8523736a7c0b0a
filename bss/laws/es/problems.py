"""How each law E(S) is put to the shared fitter: parameters, box, starts and residuals.

Residuals are losses relative to the target. On the surface that is its loss at the observed (S, B)
against the target; for the laws of a single target it is the error in log E at the run's exact
batch times −dL/dlog E / L. A target that was not reached says E(B) > tokens consumed: its
residual is one-sided.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from bss.errors import InputError
from bss.laws.es.design import Design
from bss.laws.es.models import (
    Hyperbola,
    Piecewise,
    Surface,
    hyperbola_sequences,
    piecewise_sequences,
    surface_loss,
)
from bss.laws.fitting.solve import Residual

EDGE = 1e-3


@dataclass(frozen=True)
class Problem:
    """R problems of one law over rows [M], ready for `fit.solve`.

    Attributes:
        residual: the law's residual function.
        starts: [R, K, P].
        lower: [R, P].
        upper: [R, P].
        data: arrays [R, M] (and [R] where one value serves a problem).
        rows: [R, M], the design's row behind each of them; padding has weight 0.
        law: (parameters [..., P], one problem's data) -> the law in steps and sequences.
    """

    residual: Residual
    starts: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    data: dict[str, np.ndarray]
    rows: np.ndarray
    law: Callable[[np.ndarray, dict[str, Any]], Any]


def problem_of(
    law: str,
    design: Design,
    targets: np.ndarray,
    *,
    m: float | None = 1.0,
    B_phi: float | None = 0.0,
) -> Problem:
    """The problem of a law by its name; the surface takes all targets at once.

    Raises:
        InputError: too few targets for the surface.
    """
    if law == "hyperbola":
        return hyperbola_problem(design, targets)
    if law == "piecewise":
        return piecewise_problem(design, targets)
    return surface_problem(design, m, B_phi)


def surface_problem(design: Design, m: float | None, B_phi: float | None) -> Problem:
    """One problem over all targets; an exponent or clock that is None is fitted."""
    if len(design.targets) < 2:
        raise InputError(
            "points: one target is reached; the surface needs at least 2, and 3 to fix L_0, "
            "so give more targets or choose the hyperbola"
        )
    reached = design.reached
    S_unit = float(np.exp(np.log(design.steps[reached]).mean()))
    B_unit = float(np.exp(np.log(design.batch).mean()))
    steps, batch = design.steps / S_unit, design.batch / B_unit
    m_box = (0.2, 3.0) if m is None else (m, m)
    phi_box = (0.0, 300.0) if B_phi is None else (B_phi / B_unit,) * 2
    top, bottom = design.targets[0], design.targets[-1]
    lower = np.array([0.0, -12.0, np.log(0.02), -15.0, m_box[0], phi_box[0]])
    upper = np.array([bottom * (1 - 1e-4), 12.0, np.log(5.0), 8.0, m_box[1], phi_box[1]])
    starts = []
    for share in (0.0, 0.5, 0.8, 0.95):
        for alpha in (0.2, 0.5, 1.2):
            for phi in (0.0, 1.0) if B_phi is None else phi_box[:1]:
                power = 1.0 if m is None else m
                clock = 1 / np.sqrt(1 + phi / batch)
                floor = share * bottom
                terms = np.stack([(steps * clock) ** -alpha, batch**-power], axis=1)[reached]
                scale = np.linalg.lstsq(terms, design.target[reached] - floor, rcond=None)[0]
                a, b = np.log(np.maximum(scale, 1e-2 * (top - floor)))
                starts.append([floor, a, np.log(alpha), b, power, phi])
    data = {
        "steps": steps,
        "batch": batch,
        "observed": design.target,
        "reached": reached.astype(float),
        "weight": 1 / design.target,
        "S_unit": np.array(S_unit),
        "B_unit": np.array(B_unit),
    }

    return Problem(
        surface_residual,
        np.array([starts]),
        lower[None],
        upper[None],
        {key: value[None] for key, value in data.items()},
        np.arange(len(batch))[None],
        surface_law,
    )


def surface_law(theta: np.ndarray, data: dict[str, Any]) -> Surface:
    """The surface of fitted parameters, in steps and sequences."""
    L_0, log_a, log_alpha, log_b, m, phi = np.moveaxis(theta, -1, 0)
    alpha = np.exp(log_alpha)
    a = np.exp(log_a) * data["S_unit"] ** alpha
    return Surface(L_0, a, alpha, np.exp(log_b) * data["B_unit"] ** m, m, phi * data["B_unit"])


def surface_residual(theta, data):
    """Loss of the surface over target, minus 1; one-sided where the target was not reached."""
    law = Surface(theta[0], jnp.exp(theta[1]), jnp.exp(theta[2]), jnp.exp(theta[3]), *theta[4:])
    error = surface_loss(law, data["steps"], data["batch"]) - data["observed"]
    return data["weight"] * jnp.where(data["reached"] > 0, error, jnp.minimum(error, 0.0))


def target_rows(design: Design, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows [T, M] of each target and a mask of the real ones; short targets are padded."""
    groups = [np.flatnonzero(design.target == target) for target in targets]
    width = max(len(group) for group in groups)
    rows = np.array([np.pad(group, (0, width - len(group)), mode="edge") for group in groups])
    mask = np.array([np.arange(width) < len(group) for group in groups])
    return rows, mask


def _per_target(design: Design, targets: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """Rows of each target, and their data in units of its best run's sequences and batch."""
    rows, mask = target_rows(design, targets)
    reached = design.reached[rows] & mask
    tokens = np.where(reached, design.sequences[rows], np.inf)
    best = np.take_along_axis(rows, tokens.argmin(axis=1)[:, None], axis=1)[:, 0]
    E_unit, B_unit = design.sequences[best], design.batch[best]
    batch = design.batch[rows] / B_unit[:, None]
    data = {
        "batch": batch,
        "observed": np.log(design.sequences[rows] / E_unit[:, None]),
        "reached": reached.astype(float),
        "weight": design.slope[rows] / design.target[rows] * mask,
        "smallest": np.where(reached, batch, np.inf).min(axis=1),
        "E_unit": E_unit,
        "B_unit": B_unit,
    }
    return rows, data


def hyperbola_problem(design: Design, targets: np.ndarray) -> Problem:
    """One problem per target; parameters log E_min and log S_min."""
    rows, data = _per_target(design, targets)
    starts = np.array([[-0.5, slope] for slope in (-6.0, -3.0, -1.0)])

    count = len(targets)
    return Problem(
        hyperbola_residual,
        np.tile(starts, (count, 1, 1)),
        np.tile([-12.0, -12.0], (count, 1)),
        np.tile([3.0, 5.0], (count, 1)),
        data,
        rows,
        hyperbola_law,
    )


def hyperbola_law(theta: np.ndarray, data: dict[str, Any]) -> Hyperbola:
    """The hyperbola of fitted parameters, in steps and sequences."""
    E_min, S_min = np.exp(np.moveaxis(theta, -1, 0))
    return Hyperbola(E_min * data["E_unit"], S_min * data["E_unit"] / data["B_unit"])


def hyperbola_residual(theta, data):
    """Error in log E times −dL/dlog E / L."""
    law = Hyperbola(*jnp.exp(theta))
    return _loss_error(jnp.log(hyperbola_sequences(law, data["batch"])), data)


def piecewise_problem(design: Design, targets: np.ndarray) -> Problem:
    """One problem per target; the six parameters are those of `piecewise_from_shape`."""
    rows, data = _per_target(design, targets)
    shapes = [
        [0.0, shift, u, v, g, w]
        for shift in (-0.7, 0.0, 0.7)
        for u in (0.3, 0.8)
        for v in (0.3, 0.8)
        for g in (0.3, 0.9)
        for w in (0.15, 0.6)
    ]

    count = len(targets)
    return Problem(
        piecewise_residual,
        np.tile(np.array(shapes), (count, 1, 1)),
        np.tile([-5.0, -5.0] + [EDGE] * 4, (count, 1)),
        np.tile([5.0, 5.0] + [1 - EDGE] * 4, (count, 1)),
        data,
        rows,
        piecewise_law,
    )


def piecewise_law(theta: np.ndarray, data: dict[str, Any]) -> Piecewise:
    """The three-stage law of fitted parameters, in steps and sequences."""
    shape = piecewise_from_shape(np.moveaxis(theta, -1, 0), data["smallest"])
    steps = data["E_unit"] / data["B_unit"]
    return Piecewise(
        S_min=shape.S_min * steps,
        S_1=shape.S_1 * steps,
        S_opt=shape.S_opt * steps,
        S_2=shape.S_2 * steps,
        C=shape.C * data["E_unit"] / steps**2,
        E_min=shape.E_min * data["E_unit"],
    )


def piecewise_from_shape(shape, smallest) -> Piecewise:
    """The three-stage law from a box in which every point is admissible (derived here).

    shape = (log E_min, log B_opt, u, v, g, w), the last four in (0, 1): u = S_1/S_opt,
    v = S_min/S_1, g = B_min over the smaller of B_opt and the smallest batch that reached the
    target, w = how far S_2 lies on the way from S_opt to the point where A_0 vanishes. With
    β = B_min/B_opt: S_2/S_opt = 1 + 2w(1/β − 1), C·S_opt²/E_min = β²/(4w(1 − β)) and
    A_0/E_min = (1 − β)(1 − w) > 0.
    """
    xp = jnp if not isinstance(shape, np.ndarray) else np
    log_E, log_B, u, v, g, w = shape
    E_min, B_opt = xp.exp(log_E), xp.exp(log_B)
    beta = g * xp.minimum(1.0, smallest / B_opt)
    S_opt = E_min / B_opt
    S_2 = S_opt * (1 + 2 * w * (1 / beta - 1))
    C = E_min / S_opt**2 * beta**2 / (4 * w * (1 - beta))
    return Piecewise(S_opt * u * v, S_opt * u, S_opt, S_2, C, E_min)


def piecewise_residual(theta, data):
    """Error in log E times −dL/dlog E / L."""
    law = piecewise_from_shape(theta, data["smallest"])
    return _loss_error(jnp.log(piecewise_sequences(law, data["batch"])), data)


def _loss_error(log_law, data):
    error = jnp.where(jnp.isfinite(log_law), log_law, 50.0) - data["observed"]
    return data["weight"] * jnp.where(data["reached"] > 0, error, jnp.minimum(error, 0.0))
