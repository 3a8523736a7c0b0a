"""The least-squares problem of the law of loss curves, its solution and left-out errors.

Residuals are errors of log loss, linear in the tails past 1e-3 as the Huber loss of Li et al.
(arXiv 2509.19189). Parameters are chosen to be nearly independent (derived here). Signal and noise
are parametrized by their sizes at the end of the longest run. There the noise is computed for a
constant schedule at the mean learning rate and batch.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import nnls

from bss.errors import InputError, check
from bss.jitting import jit
from bss.laws import minimum
from bss.laws.functional import law as curve_law
from bss.laws.functional.data import Curves, unidentified_by_design
from bss.laws.functional.law import CurveLaw, Segments
from bss.laws.inference import folds_of, leave_out, refuse_few
from bss.laws.least_squares import LeastSquares
from bss.laws.problem import (
    Ranges,
    Scale,
    Search,
    Solution,
    narrowed,
    parse_ranges,
)
from bss.laws.resampling import rms
from bss.laws.solver import CHUNK, ROUND, float64, repeated

HUBER = 1e-3  # of log loss, as in Li et al.
NAMES = ("L_0", "signal", "s", "T_0", "noise", "feedback", "c_K", "q", "p", "m", "B_phi")
CLOCKS = ("sgd", "adam")
# Bounds: sizes over decades, exponents beyond published ones; a fit that ends at one says so.
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
FEWEST = minimum.FEWEST + 1  # runs from which each is left out: the rest identify the law
OUTLIER = 5.0  # robust standard deviations: one in 2 million by a normal distribution
# Rounds of ten iterations: many where parameters trade off, few from the solution of all runs.
SEARCH = Search(iterations=ROUND, accelerated=True, fit=200, refit=20, fold=3)
# Values of parameters that the runs cannot identify: noise is forgotten at once.
_FIXED = {"c_K": np.log(1e5), "q": 2.0, "feedback": 0.0, "p": 1.0, "m": 1.0, "B_phi": 0.0}


@dataclass(frozen=True)
class CurveProblem(LeastSquares):
    """The law's problem over some curves; runs are the unit of replication.

    Attributes:
        reasons: names in `CurveLaw` that the runs cannot identify, which are fixed, and why.
        units: time of the longest run, mean learning rate, mean batch.
        ranges: constraints of the user.
    """

    reasons: dict[str, str]
    units: tuple[float, float, float]
    ranges: Ranges

    def law(self, theta: np.ndarray) -> CurveLaw:
        """Return the law in the runs' units: floats for theta [P], arrays [Q] for [Q, P]."""
        with jax.enable_x64(True):
            law = in_units(law_of(np.moveaxis(theta, -1, 0)), self.units)
        return CurveLaw(*(np.asarray(value, np.float64)[()] for value in law))

    @property
    def is_fixed(self) -> np.ndarray:
        """Mask [P] of the fixed parameters."""
        return self.lower[0] == self.upper[0]

    @property
    def folds(self) -> np.ndarray:
        """Each run [F, 1, R, N], if the others identify the law; none otherwise."""
        runs = self.replication
        values = np.unique(runs)
        return folds_of(runs, values if len(values) >= FEWEST else ())


def curve_problem(curves: Curves, clock: str, constraints: str = "") -> CurveProblem:
    """Return the problem of curves.

    Args:
        curves: what is fitted.
        clock: time variable. "sgd" fixes m = 1 and B_phi = 0, "adam" fits them if they are
            identified. Both fit p if LRs vary.
        constraints: of the parameters of `CurveLaw`.

    Raises:
        InputError: If `clock` is unknown, a constraint cannot be met, batch size and LR never
            vary, or there are no more losses than free parameters.
    """
    check(clock in CLOCKS, "clock", clock, f"one of {', '.join(CLOCKS)}")
    reasons = unidentified_by_design(curves)
    if {"c_K", "m", "p"} <= reasons.keys():
        raise InputError(
            "runs: all have one batch and one LR, which cannot separate noise from signal; add "
            "runs with other batches, and runs that change their batch"
        )
    text = f"the law of curves with `--clock {clock}`"
    ranges = parse_ranges(constraints, CurveLaw._fields, text)
    reasons = {name: why for name, why in reasons.items() if name not in ranges}
    fixed = {"feedback" if name == "A_1" else name for name in reasons}
    if clock == "sgd":
        fixed |= {"m", "B_phi"}
    box = _BOX | {name: (_FIXED[name],) * 2 for name in fixed}
    below = 1 - 1e-6  # the lowest loss, by which a signal remains
    box["L_0"] = (0.0, float(curves.loss[curves.weight > 0].min()) * below)
    lower, upper = np.array([box[name] for name in NAMES]).T
    units, data = _scaled(curves)
    lower, upper = narrowed(lower, upper, ranges, _scales(units), text)
    refuse_few(
        int(data["weight"].sum()),
        int((lower < upper).sum()),
        "runs: {} losses",
        "the law",
        "evaluate more often, add runs, or lower since",
    )
    used = data["weight"] > 0
    return CurveProblem(
        used=used[None],
        replication=np.broadcast_to(np.arange(len(used))[:, None], used.shape)[None],
        residual=curve_residual,
        starts=curve_starts(lower, upper, data)[None],
        lower=lower[None],
        upper=upper[None],
        data=repeated(data, 1),
        errors=curve_errors,
        search=SEARCH,
        clip=OUTLIER,
        reasons=reasons,
        units=units,
        ranges=ranges,
    )


def _scaled(curves: Curves) -> tuple[tuple[float, float, float], dict[str, Any]]:
    """Return the units of a problem, and its data in them."""
    steps, lr, batch = curves.segments
    time = float((steps * lr).sum(axis=1).max())
    weight = steps * batch * (steps > 0) * (lr > 0)

    def mean(values: np.ndarray) -> float:
        """Return the geometric mean over the sequences that were trained on."""
        logs = np.log(np.where(weight > 0, values, 1.0))
        return float(np.exp(np.average(logs, weights=weight)))

    rate = mean(lr)
    size = mean(batch)
    data = {
        "segments": Segments(steps * rate / time, lr / rate, batch / size),
        "points": curves.points,
        "observed": np.log(curves.loss),
        "weight": curves.weight,
    }
    return (time, rate, size), data


def law_of(theta: Any, xp: Any = np) -> CurveLaw:
    """Return the law of fitted parameters [P] or [P, ...], in the problem's units."""
    L_0, signal, s, T_0, noise, feedback, c_K, q, p, m, B_phi = theta
    s = xp.exp(s)
    T_0 = xp.exp(T_0)
    c_K = xp.exp(c_K)
    first = (1 + 1 / T_0) ** s
    law = CurveLaw(L_0, 0.0, s, T_0, 0.0, 0.0, c_K, q, p, m, B_phi)
    A_0 = xp.exp(noise) / curve_law.kernel_total(law, 1.0)
    return law._replace(c_1=xp.exp(signal) * first, A_0=A_0, A_1=A_0 * feedback * first)


def in_units(law: CurveLaw, units: tuple[float, float, float]) -> CurveLaw:
    """Return a law of the problem's units in steps, sequences and the LRs given."""
    time, rate, batch = units
    scale = rate**-law.p * batch**law.m / time
    return law._replace(
        T_0=law.T_0 * time,
        A_0=law.A_0 * scale,
        A_1=law.A_1 * scale,
        c_K=law.c_K / time,
        B_phi=law.B_phi * batch,
    )


def _scales(units: tuple[float, float, float]) -> dict[str, Scale]:
    """Return how the parameters of `in_units` follow from one fitted number each."""
    time, _, batch = units
    logs = ("s", "T_0", "c_K")
    scaled = {"T_0": time, "c_K": 1 / time, "B_phi": batch}
    names = [name for name in NAMES if name in CurveLaw._fields]
    return {n: Scale(NAMES.index(n), scaled.get(n, 1.0), n in logs) for n in names}


def curve_errors(theta: Any, data: Any) -> Any:
    """Return errors of log loss, fitted minus measured, [R, N]; 0 for padding."""
    loss = curve_law.curve_losses(law_of(theta, jnp), data["segments"], data["points"])
    positive = jnp.maximum(loss, 1e-12)  # a loss of 0 or less, at a trial step, has no logarithm
    return (jnp.log(positive) - data["observed"]) * data["weight"]


def curve_residual(theta: Any, data: Any) -> Any:
    """Return the errors, [R·N], transformed so that their squares are a pseudo-Huber loss."""
    error = curve_errors(theta, data)
    return (error * jnp.sqrt(2 / (1 + jnp.sqrt(1 + (error / HUBER) ** 2)))).ravel()


def curve_starts(lower: np.ndarray, upper: np.ndarray, data: dict[str, Any]) -> np.ndarray:
    """Return starts [K, P] in a box [P]: the best of a grid, as many as the solver takes at once.

    Sizes are fitted to each by non-negative least squares.
    """
    # Coarse, as each start descends: factors of 2 in exponents, decades in shares of a run.
    grid = {
        "s": np.log([0.2, 0.4, 0.8, 1.5]),
        "T_0": np.log([1e-3, 0.03]),
        "c_K": np.log([5.0, 50.0, 1000.0]),
        "q": [0.8, 1.5, 2.5],
        "m": [0.5, 1.0],
        "B_phi": [0.0, 1.0],
    }
    for name in grid:
        i = NAMES.index(name)
        if lower[i] == upper[i]:
            grid[name] = [lower[i]]
    combined = np.array(list(itertools.product(*grid.values())))
    points = np.zeros((len(combined), len(NAMES)))
    points[:, NAMES.index("p")] = 1.0
    points[:, [NAMES.index(name) for name in grid]] = combined
    with jax.enable_x64(True):
        signal, noise = map(np.asarray, _terms(*float64((points, data))))
    used = data["weight"] > 0
    loss = np.exp(data["observed"][used])
    costs = []
    for k in range(len(points)):
        columns = np.column_stack([np.ones(len(loss)), signal[k][used], noise[k][used]])
        sizes, cost = nnls(columns / loss[:, None], np.ones(len(loss)))
        logs = np.log(np.maximum(sizes[1:], 1e-4))  # a size of 0 has no logarithm
        points[k, [0, NAMES.index("signal"), NAMES.index("noise")]] = sizes[0], *logs
        costs.append(cost)
    best = points[np.argsort(costs)[: CHUNK - 2]]
    with_feedback = best[:2].copy()
    with_feedback[:, NAMES.index("feedback")] = 1.0
    return np.clip(np.concatenate([best, with_feedback]), lower, upper)


@jit
def _terms(points: jax.Array, data: Any) -> tuple[jax.Array, jax.Array]:
    """Return signal and noise of unit size at each point [K, P], [K, R, N]."""

    def terms(theta: jax.Array) -> tuple[Any, Any]:
        law = law_of(theta, jnp)  # of sizes e^0 = 1
        signal, noise, _ = curve_law.curve_terms(law, data["segments"], data["points"])
        return law.c_1 * signal, law.A_0 * noise

    return jax.lax.map(terms, points)


@dataclass(frozen=True)
class Solved:
    """A problem, its solution, and errors [R] at the ends of left-out runs, or [0]."""

    problem: CurveProblem
    solution: Solution
    ends: np.ndarray

    @classmethod
    def of(cls, problem: CurveProblem) -> "Solved":
        """Solve a problem from many starts, and without each run if there are enough."""
        solution = problem.solve()
        folds = problem.folds
        if not len(folds):
            return cls(problem, solution, np.array([]))
        errors = leave_out(problem, solution, folds).errors[0]
        last = problem.used[0].sum(axis=1) - 1
        return cls(problem, solution, errors[np.arange(len(errors)), last])

    @property
    def theta(self) -> np.ndarray:
        """The fitted parameters [P]."""
        return self.solution.parameters[0]

    @property
    def cv_error(self) -> float | None:
        """Root mean square error of log loss at left-out ends."""
        return rms(self.ends) if len(self.ends) else None
