"""The three-term law of final losses, L = L_0 + A·N^−a + C·S^−c + M·B^−m (arXiv 2607.01487).

The fit starts from every exponent of a grid, with a loss function that grows like the error's
size; rows far off its residuals' scale (divergence, a learning rate that was never tuned) are then
set aside and told, and the rest is fitted by least squares. Intervals are by a residual bootstrap
of these, whose noise variance is itself drawn.
"""

import itertools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.optimize import nnls

from bss.errors import InputError
from bss.laws.final_loss.points import LossPoints, loss_points
from bss.laws.final_loss.values import Law, Optimum, TableFit, final_loss, optimal_batch
from bss.laws.fitting.bootstrap import draw_noise, rms, robust_scale
from bss.laws.fitting.estimate import Estimate, Options, interval
from bss.laws.fitting.solve import Solution, solve

EXPONENTS = (0.15, 0.4, 0.9)
EXPONENT_RANGE = (0.01, 4.0)
ROBUST_SCALE = 0.01
LEAST_SQUARES = 1e6
OUTLIER = 5.0
PADDING = 64


def fit_table(table: pd.DataFrame, *, options: Options | None = None) -> TableFit:
    """Fit the three-term law to final losses.

    Args:
        table: as `bss.laws.final_loss.points.check_losses` gives it.
        options: how intervals are made.

    Raises:
        InputError: fewer than three batches, or no more points than parameters.
    """
    options = options or Options(resamples=300)
    level = options.level
    points, warnings = loss_points(table)
    problem = _problem(points)
    _check_design(points, problem)
    robust = _solved(problem, np.ones((1, len(points.loss))), ROBUST_SCALE)
    outliers = _outliers(_errors(problem, robust.parameters[0]))
    found = _solved(problem, np.where(outliers, 0.0, 1.0)[None])
    theta = found.parameters[0]
    errors = _errors(problem, theta)
    draws = _bootstrap(problem, theta, errors, outliers, options)
    law, spread = _law(problem, theta), _law(problem, draws)
    intervals = {
        key: Estimate(None, level=level, note="unidentified: one model size")
        if np.isnan(value)
        else interval(float(value), getattr(spread, key), level=level)
        for key, value in law._asdict().items()
    }
    exponent = interval(law.c / (law.c + law.m), spread.c / (spread.c + spread.m), level=level)
    optima = _optima(points, law, spread, level)
    warnings += _warnings(points, problem, outliers, found, optima)
    by, held_out = _held_out(points, problem, outliers, theta)
    return TableFit(
        law=law,
        intervals=intervals,
        rmse=rms(errors[~outliers]),
        max_error=float(np.abs(errors[~outliers]).max()),
        B_opt_exponent=exponent,
        optima=optima,
        held_out=held_out,
        held_out_by=by,
        points=points,
        outliers=outliers,
        status="converged" if found.converged[0] else "not converged",
        level=level,
        resamples=options.resamples,
        warnings=tuple(warnings),
    )


class _Problem(NamedTuple):
    """Logarithms about their centres [n, 3] of N, S, B; the centres; the box of θ.

    θ is L_0, and per term the logarithm of its size at the centre, and its exponent.
    """

    logs: np.ndarray
    centres: np.ndarray
    loss: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    sizes_vary: bool

    @property
    def free(self) -> int:
        """How many parameters are fitted."""
        return int((self.lower < self.upper).sum())


def _problem(points: LossPoints) -> _Problem:
    logs = np.log(np.stack([points.params, points.tokens / points.batch, points.batch], axis=1))
    centres = (logs.min(axis=0) + logs.max(axis=0)) / 2
    sizes_vary = bool(np.ptp(logs[:, 0]) > np.log(1.5))
    lower = np.array([0.0, *np.tile([np.log(1e-9), EXPONENT_RANGE[0]], 3)])
    upper = np.array([points.loss.min(), *np.tile([np.log(1e3), EXPONENT_RANGE[1]], 3)])
    if not sizes_vary:
        lower[1:3] = upper[1:3] = (-100.0, 1.0)
    return _Problem(logs - centres, centres, points.loss, lower, upper, sizes_vary)


def residual(theta, data):
    """Errors of the loss, weighted; linear in the tails past the data's `scale` (pseudo-Huber)."""
    sizes, exponents = theta[1::2], theta[2::2]
    terms = jnp.exp(sizes[None] - exponents[None] * data["logs"])
    error = data["loss"] - theta[0] - terms.sum(axis=1)
    soft = jnp.sqrt(2 / (1 + jnp.sqrt(1 + (error / data["scale"]) ** 2)))
    return data["weight"] * error * soft


def _solved(
    problem: _Problem,
    weight: np.ndarray,
    scale: float = LEAST_SQUARES,
    starts: np.ndarray | None = None,
    losses: np.ndarray | None = None,
) -> Solution:
    """One fit per row of weights [R, n]; from the grid of exponents, or from starts [R, K, 7]."""
    problems, points = weight.shape
    # Rows of no weight make tables of like size share one compiled program.
    spare = ((0, 0), (0, -points % PADDING))
    losses = np.broadcast_to(problem.loss if losses is None else losses, weight.shape)
    logs = np.broadcast_to(problem.logs, (problems, *problem.logs.shape))
    data = {
        "logs": np.pad(logs, (*spare, (0, 0))),
        "loss": np.pad(losses, spare),
        "weight": np.pad(weight, spare),
        "scale": np.full(problems, scale),
    }
    starts = _starts(problem) if starts is None else starts
    return solve(residual, starts, problem.lower, problem.upper, data, iterations=80)


def _starts(problem: _Problem) -> np.ndarray:
    """[K, 7]: non-negative least squares for the sizes of the terms, at each set of exponents."""
    starts = []
    for exponents in itertools.product(EXPONENTS, repeat=3):
        terms = np.exp(-np.array(exponents) * problem.logs)
        columns = np.column_stack([np.ones(len(terms)), terms])
        # Outliers must not place the start: their loss is cut at a high quantile.
        sizes, _ = nnls(columns, np.minimum(problem.loss, np.quantile(problem.loss, 0.9)))
        logs = np.log(np.maximum(sizes[1:], 1e-3))
        starts.append([sizes[0], *np.stack([logs, exponents], axis=1).ravel()])
    return np.clip(starts, problem.lower, problem.upper)


def _errors(problem: _Problem, theta: np.ndarray) -> np.ndarray:
    return problem.loss - theta[0] - np.exp(theta[1::2] - theta[2::2] * problem.logs).sum(axis=1)


def _outliers(errors: np.ndarray) -> np.ndarray:
    """Points beyond five robust standard deviations; at most a fifth of them can be."""
    centre = float(np.median(errors))
    distance = np.abs(errors - centre)
    limit = max(OUTLIER * robust_scale(errors, centre), 1e-9, float(np.quantile(distance, 0.8)))
    return distance > limit


def _bootstrap(
    problem: _Problem,
    theta: np.ndarray,
    errors: np.ndarray,
    outliers: np.ndarray,
    options: Options,
) -> np.ndarray:
    dof = max(int((~outliers).sum()) - problem.free, 1)
    noise = np.sqrt(np.sum(errors[~outliers] ** 2) / dof)
    generator = np.random.default_rng(options.seed)
    drawn = draw_noise(float(noise), dof, (options.resamples, len(errors)), generator)
    losses = problem.loss - errors + drawn
    weight = np.broadcast_to(np.where(outliers, 0.0, 1.0), losses.shape)
    return _solved(problem, weight, starts=theta[None, None], losses=losses).parameters


def _law(problem: _Problem, theta: np.ndarray) -> Law:
    """In units of params, steps and tokens; arrays where theta is [R, 7]."""
    sizes, exponents = theta[..., 1::2], theta[..., 2::2]
    A, C, M = np.moveaxis(np.exp(sizes + exponents * problem.centres), -1, 0)
    a, c, m = np.moveaxis(exponents, -1, 0)
    if not problem.sizes_vary:
        A, a = np.full_like(A, np.nan), np.full_like(a, np.nan)
    return Law(theta[..., 0], A, a, C, c, M, m)


def _optima(points: LossPoints, law: Law, spread: Law, level: float) -> tuple[Optimum, ...]:
    optima = []
    for params, tokens in sorted(set(zip(points.params, points.tokens, strict=True))):
        batches = points.batch[(points.params == params) & (points.tokens == tokens)]
        best = float(optimal_batch(law, tokens))
        given_up = final_loss(law, params, tokens, batches) - final_loss(law, params, tokens, best)
        optima.append(
            Optimum(
                params=float(params),
                tokens=float(tokens),
                batch=interval(best, optimal_batch(spread, tokens), level=level),
                bracketed=bool(batches.min() <= best <= batches.max()),
                given_up=dict(zip(batches.tolist(), given_up.tolist(), strict=True)),
            )
        )
    return tuple(optima)


def _held_out(
    points: LossPoints, problem: _Problem, outliers: np.ndarray, theta: np.ndarray
) -> tuple[str, dict[float, float]]:
    by = "params" if len(np.unique(points.params)) > 2 else "tokens"
    column = getattr(points, by)
    groups = np.unique(column)
    if len(groups) < 3:
        return by, {}
    left_out = (column == groups[:, None]) & ~outliers
    weight = np.where(left_out | outliers, 0.0, 1.0)
    fits = _solved(problem, weight, starts=theta[None, None]).parameters
    return by, {
        float(group): rms(_errors(problem, parameters)[here])
        for group, here, parameters in zip(groups, left_out, fits, strict=True)
        if here.any()
    }


def _check_design(points: LossPoints, problem: _Problem) -> None:
    batches = len(np.unique(points.batch))
    if batches < 3:
        raise InputError(f"batch: {batches} different ones; the law needs 3 or more")
    if len(points.loss) <= problem.free:
        raise InputError(
            f"table: {len(points.loss)} points of (params, tokens, batch) for {problem.free} "
            "parameters; add runs"
        )


def _warnings(
    points: LossPoints,
    problem: _Problem,
    outliers: np.ndarray,
    found: Solution,
    optima: tuple[Optimum, ...],
) -> list[str]:
    texts = []
    if not problem.sizes_vary:
        texts.append("params: one size, so that A and a are part of L_0")
    if len(np.unique(points.tokens / points.params)) == 1 or len(np.unique(points.tokens)) == 1:
        texts.append("tokens do not vary at given params: exponents in D rest on the law's form")
    texts += [
        f"set aside as an outlier: params {points.params[i]:g}, tokens {points.tokens[i]:g}, "
        f"batch {points.batch[i]:g} tokens, loss {points.loss[i]:.4g}"
        for i in np.flatnonzero(outliers)
    ]
    names = ", ".join(itertools.compress(Law._fields, found.at_bound[0]))
    if names:
        texts.append(f"{names} ended at a bound: the table does not identify it")
    if not found.converged[0]:
        texts.append("the fit did not converge")
    outside = [f"({at.params:g}, {at.tokens:g})" for at in optima if not at.bracketed]
    if outside:
        listed = ", ".join(outside[:4]) + (", …" if len(outside) > 4 else "")
        texts.append(
            f"batch not bracketed at {len(outside)} of {len(optima)} (params, tokens): B_opt is "
            f"an extrapolation at {listed}"
        )
    return texts
