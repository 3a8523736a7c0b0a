"""How the law of loss curves is put to the shared fitter: parameters, box, starts, residuals.

Residuals are errors of log loss, linear in the tails past 1e-3 as the Huber loss of Li et al.
(arXiv 2509.19189). Parameters are chosen so that each is seen by itself (derived here): signal and
noise by their sizes at the end of the longest run, where the noise is that of a constant schedule
of the mean rate and batch.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import nnls

from bss.errors import InputError, check
from bss.laws.constraints import FREE, Constraints
from bss.laws.functional import law as curve_law
from bss.laws.functional.curves import Curves, unidentified_by_design
from bss.laws.functional.law import CurveLaw, Pieces
from bss.laws.solver import float64

HUBER = 1e-3
NAMES = ("L_0", "signal", "s", "T_0", "noise", "feedback", "c_K", "q", "p", "m", "B_phi")
CLOCKS = ("sgd", "adam")
POWERS = ("0.5", "0.1")  # of the rate in time, which are tried beside 1
_BOX = {
    "signal": (np.log(1e-6), np.log(1e3)),
    "s": (np.log(0.02), np.log(5.0)),
    "T_0": (np.log(1e-6), np.log(1.0)),
    "noise": (np.log(1e-9), np.log(1e2)),
    "feedback": (0.0, 30.0),
    "c_K": (np.log(0.1), np.log(1e5)),
    "q": (0.3, 4.0),
    "p": (0.0, 3.0),
    "m": (0.1, 3.0),
    "B_phi": (0.0, 300.0),
}
# What a parameter is held at where the runs cannot tell it: noise is forgotten at once.
_HELD = {"c_K": np.log(1e5), "q": 2.0, "feedback": 0.0, "p": 1.0, "m": 1.0, "B_phi": 0.0}
KEPT_STARTS = 6


@dataclass(frozen=True)
class CurveProblem:
    """The law's problem over some curves: bounds [P], and data of one problem.

    Attributes:
        reasons: names in `CurveLaw` that the runs cannot identify, which are held, and why.
        held: what a user holds.
        data: arrays in units of the longest run's time and mean rate and batch.
        units: of time, rate and batch.
    """

    reasons: dict[str, str]
    lower: np.ndarray
    upper: np.ndarray
    data: dict[str, Any]
    units: tuple[float, float, float]
    held: Constraints = FREE


def curve_problem(curves: Curves, clock: str, held: Constraints = FREE) -> CurveProblem:
    """Units, box and data.

    Args:
        curves: what is fitted.
        clock: "sgd" holds m = 1 and B_phi = 0; "adam" fits them where they are identified. Both fit
            p where rates vary. "adam^0.5" is adam with Σ η^0.5 for a time.
        held: what a user holds, of the parameters of `CurveLaw`.

    Raises:
        InputError: an unknown clock, a constraint that cannot be held, curves of one constant batch
            and rate, or no more losses than free parameters.
    """
    reasons = unidentified_by_design(curves)
    if {"c_K", "m", "p"} <= reasons.keys():
        raise InputError(
            "runs: one constant batch and rate in all, from which noise cannot be told apart; add "
            "runs of other batches, and some that change their batch"
        )
    name, power = clock_of(clock)
    pieces = curves.pieces
    time = float((pieces.steps * pieces.lr**power).sum(axis=1).max())
    weight = pieces.steps * pieces.batch
    used = (pieces.steps > 0) & (pieces.lr > 0)
    rate, batch = (
        float(np.exp(np.average(np.log(np.where(used, x, 1.0)), weights=weight * used)))
        for x in (pieces.lr, pieces.batch)
    )
    reasons = {name: why for name, why in reasons.items() if name not in held.ranges}
    fixed = {"feedback" if name == "A_1" else name for name in reasons}
    fixed |= {"m", "B_phi"} if name == "sgd" else set()
    box = _BOX | {name: (_HELD[name],) * 2 for name in fixed}
    box["L_0"] = (0.0, float(curves.loss[curves.weight > 0].min()) * (1 - 1e-6))
    lower, upper = np.array([box[name] for name in NAMES]).T
    units = time, rate, batch
    if held:
        names, law = CurveLaw._fields[: len(NAMES)], f"the law of curves by the {clock} clock"
        held.check(names, law)
        lower, upper = held.box(
            (lower, upper), names, lambda theta: in_units(law_of(theta, power), units), law
        )
    data = {
        "pieces": Pieces(pieces.steps * rate**power / time, pieces.lr / rate, pieces.batch / batch),
        "power": np.array(power),
        "readings": curves.readings,
        "observed": np.log(curves.loss),
        "weight": curves.weight,
    }
    free, losses = int((lower < upper).sum()), int(data["weight"].sum())
    if losses <= free:
        raise InputError(
            f"runs: {losses} losses for the {free} parameters of the law; evaluate more often, add "
            "runs, or lower since"
        )
    return CurveProblem(reasons, lower, upper, data, units, held)


def clock_of(clock: str) -> tuple[str, float]:
    """A clock's name, and the power of the rate in its time: "adam^0.5" has (adam, 0.5)."""
    name, marked, power = clock.partition("^")
    known = f"one of {', '.join(CLOCKS)}, or with a power of the rate from 0 to 1, as adam^0.5"
    try:
        number = float(power) if marked else 1.0
    except ValueError:
        number = -1.0
    check(name in CLOCKS and 0 <= number <= 1, "clock", clock, known)
    return name, number


def law_of(theta: Any, power: Any = 1.0, xp: Any = np) -> CurveLaw:
    """The law of fitted parameters [P] (or [P, ...]), in the problem's units."""
    L_0, signal, s, T_0, noise, feedback, c_K, q, p, m, B_phi = theta
    s, T_0, c_K = xp.exp(s), xp.exp(T_0), xp.exp(c_K)
    first = (1 + 1 / T_0) ** s
    held = CurveLaw(L_0, 0.0, s, T_0, 0.0, 0.0, c_K, q, p, m, B_phi, power)
    A_0 = xp.exp(noise) / curve_law.kernel_total(held, 1.0)
    return held._replace(c_1=xp.exp(signal) * first, A_0=A_0, A_1=A_0 * feedback * first)


def in_units(law: CurveLaw, units: tuple[float, float, float]) -> CurveLaw:
    """The law in steps, sequences and the rates given, from the problem's units."""
    time, rate, batch = units
    scale = rate**-law.p * batch**law.m / time
    A_0, A_1, B_phi = law.A_0 * scale, law.A_1 * scale, law.B_phi * batch
    return law._replace(T_0=law.T_0 * time, A_0=A_0, A_1=A_1, c_K=law.c_K / time, B_phi=B_phi)


def curve_errors(theta, data):
    """Errors of log loss, [R, N]; 0 where there is padding."""
    law = law_of(theta, data["power"], jnp)
    loss = curve_law.curve_losses(law, data["pieces"], data["readings"])
    return (jnp.log(jnp.maximum(loss, 1e-12)) - data["observed"]) * data["weight"]


def curve_residual(theta, data):
    """The errors, [R·N], linear past HUBER in their effect (pseudo-Huber)."""
    error = curve_errors(theta, data)
    return (error * jnp.sqrt(2 / (1 + jnp.sqrt(1 + (error / HUBER) ** 2)))).ravel()


def curve_starts(problem: CurveProblem) -> np.ndarray:
    """[K, P]: the best of a grid of exponents and scales, sizes by non-negative least squares."""
    grid = {
        "s": np.log([0.2, 0.4, 0.8, 1.5]),
        "T_0": np.log([1e-3, 0.03]),
        "c_K": np.log([5.0, 50.0, 1000.0]),
        "q": [0.8, 1.5, 2.5],
        "p": [1.0],
        "m": [0.5, 1.0],
        "B_phi": [0.0, 1.0],
    }
    for name in grid:
        i = NAMES.index(name)
        if problem.lower[i] == problem.upper[i]:
            grid[name] = [problem.lower[i]]
    combined = np.array(list(itertools.product(*grid.values())))
    points = np.zeros((len(combined), len(NAMES)))
    points[:, [NAMES.index(name) for name in grid]] = combined
    with jax.enable_x64(True):
        signal, noise = map(np.asarray, _terms(*float64((points, problem.data))))
    used = problem.data["weight"] > 0
    loss = np.exp(problem.data["observed"][used])
    costs = []
    for k in range(len(points)):
        columns = np.column_stack([np.ones(len(loss)), signal[k][used], noise[k][used]])
        sizes, cost = nnls(columns / loss[:, None], np.ones(len(loss)))
        logs = np.log(np.maximum(sizes[1:], 1e-4))
        points[k, [0, NAMES.index("signal"), NAMES.index("noise")]] = sizes[0], *logs
        costs.append(cost)
    best = points[np.argsort(costs)[:KEPT_STARTS]]
    with_feedback = best[:2].copy()
    with_feedback[:, NAMES.index("feedback")] = 1.0
    return np.clip(np.concatenate([best, with_feedback]), problem.lower, problem.upper)


@jax.jit
def _terms(points, data):
    """Signal and noise of unit size at each point [K, P], [K, R, N]."""

    def terms(theta):
        law = law_of(theta, data["power"], jnp)  # of sizes e^0 = 1
        signal, noise, _ = curve_law.curve_terms(law, data["pieces"], data["readings"])
        return law.c_1 * signal, law.A_0 * noise

    return jax.lax.map(terms, points)
