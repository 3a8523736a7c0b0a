"""Least squares in a box, from many starts and for many resamples at once; shared by every law.

A fixed number of Levenberg-Marquardt iterations, vectorized over problems (bootstrap resamples,
targets, left-out batches) and over starts, in float64. Iterates are projected onto the box. A law
with a positive parameter fits its logarithm. A parameter whose bounds are equal is fixed, so that
members of a family share one compiled program. If the cost is nearly flat along a curve, geodesic
acceleration bends the steps along the curve (Transtrum and Sethna, arXiv 1201.5885).
"""

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bss.errors import InputError
from bss.jitting import jit
from bss.laws.problem import Residual, Solution

TOLERANCE = 1e-4  # cosine of residuals and derivatives: at it, costs agree to 1e-8
CHUNK = 8  # starts that descend together: bounds the memory of the curves' derivatives
ROUND = 10  # iterations between looks at what has converged
EVERY = 8  # rounds that every start gets before the best one ends the search
SIDE_BY_SIDE = min(os.cpu_count() or 1, 4)  # each holds the derivatives of a block
AHEAD = 0.1  # part of a step at which the curve is evaluated, as in the paper
BENT = 0.75  # trusted size of the acceleration, in steps, as in the paper


def solve(
    residual: Residual,
    starts: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    data: Any,
    *,
    iterations: int = 60,  # laws of few parameters converge in fewer
    rounds: int = 1,
    accelerated: bool = False,
) -> Solution:
    """Minimize the sum of squared residuals of R problems, each from K starts.

    Starts descend in padded blocks of one size, so that a law's fit, its left-out batches and its
    bootstrap share one compiled program. Blocks are smaller with several rounds, which bounds the
    memory. One block descends per core, at most four together.

    Args:
        residual: (parameters [P], one problem's data) -> residuals [N]. It must be a module-level
            function: programs are cached by it and by the shapes of the arguments.
        starts: [R, K, P] or [K, P] for all problems alike.
        lower: [P] or [R, P]; equal to `upper` if a parameter is fixed.
        upper: [P] or [R, P].
        data: pytree of arrays, each with a leading axis R.
        iterations: steps tried from each start in a round; a rejected one counts.
        rounds: how many at most. A start that has converged ends, and a problem whose best start
            has converged after EVERY rounds.
        accelerated: by geodesic acceleration, for one more evaluation of residuals in each.

    Raises:
        InputError: if no start of a problem has finite residuals.
    """
    problems = np.arange(len(jax.tree.leaves(data)[0]))
    starts = np.broadcast_to(starts, (len(problems), *np.shape(starts)[-2:]))
    lower = np.broadcast_to(lower, starts[:, 0].shape)
    upper = np.broadcast_to(upper, starts[:, 0].shape)
    problem_of_start = np.repeat(problems, starts.shape[1])
    count = len(problem_of_start)
    theta = np.array(starts, float).reshape(count, -1)
    cost = np.full(starts.shape[:2], np.inf)
    converged = np.zeros(starts.shape[:2], bool)
    best = np.zeros_like(problems)
    # A law with one round has few derivatives, so larger blocks save calls.
    block = CHUNK if rounds > 1 or count <= CHUNK else 8 * CHUNK

    def descend(rows: np.ndarray) -> list[np.ndarray]:
        padded = np.resize(rows, block)
        of_rows = jax.tree.map(
            lambda leaf: np.asarray(leaf)[problem_of_start[padded]], (lower, upper, data)
        )
        with jax.enable_x64(True):
            parts = _solve(residual, iterations, accelerated, *float64((theta[padded], *of_rows)))
            return [np.asarray(part)[: len(rows)] for part in parts]

    active = np.arange(count)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for number in range(1, rounds + 1):
            blocks = np.split(active, range(block, len(active), block))
            for rows, parts in zip(blocks, pool.map(descend, blocks), strict=True):
                theta[rows], cost.flat[rows], converged.flat[rows] = parts
            best = np.where(np.isnan(cost), np.inf, cost).argmin(axis=1)
            is_solved = converged[problems, best] & (number >= EVERY)
            active = active[~converged.flat[active] & ~is_solved[problem_of_start[active]]]
            if not len(active):
                break
    theta = theta.reshape(starts.shape)[problems, best]
    cost = cost[problems, best]
    if not np.isfinite(cost).all():
        raise InputError("fit: no start gives finite residuals; check the data for extreme values")
    at_bound = ((theta <= lower) | (theta >= upper)) & (lower != upper)
    return Solution(theta, cost, converged[problems, best], at_bound)


def repeated(data: Any, count: int, **changed: np.ndarray) -> Any:
    """Return one problem's data by name for `count` problems, and those that differ, [count, ...].

    Data that all problems share are broadcast, not copied.
    """
    return jax.tree.map(lambda x: np.broadcast_to(x, (count, *np.shape(x))), data) | changed


def linearize(
    residual: Residual, parameters: np.ndarray, data: Any
) -> tuple[np.ndarray, np.ndarray]:
    """One problem's residuals [...] and their derivatives [..., P] at its parameters [P]."""
    with jax.enable_x64(True):
        values, slopes = _linearize(residual, *float64((parameters, data)))
        return np.asarray(values), np.asarray(slopes)


def float64(tree: Any) -> Any:
    """A tree of arrays for JAX; called, as what is done with it, under `jax.enable_x64`."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float64)), tree)


@functools.partial(jit, static_argnums=0)
def _linearize(residual: Residual, parameters: jax.Array, data: Any) -> tuple[jax.Array, jax.Array]:
    return residual(parameters, data), jax.jacfwd(residual)(parameters, data)


@functools.partial(jit, static_argnums=(0, 1, 2))
def _solve(
    residual: Residual, iterations: int, accelerated: bool, *problems: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return descents from starts [Q, P], with bounds and data that have the same leading axis."""
    return jax.vmap(functools.partial(_descend, residual, iterations, accelerated))(*problems)


def _descend(
    residual: Residual,
    iterations: int,
    accelerated: bool,
    start: jax.Array,
    lower: jax.Array,
    upper: jax.Array,
    data: Any,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Levenberg-Marquardt from one start; the iterate stays in the box."""

    def bend(best: _Iterate, step: jax.Array) -> jax.Array:
        ahead = residual(best.theta + AHEAD * step, data)
        return 2 / AHEAD * ((ahead - best.values) / AHEAD - step @ best.slopes)

    def iterate(
        carry: tuple[jax.Array, _Iterate, jax.Array], _: None
    ) -> tuple[tuple[jax.Array, _Iterate, jax.Array], jax.Array]:
        candidate, best, damping = carry
        values, push = jax.linearize(lambda theta: residual(theta, data), candidate)
        trial = _Iterate(candidate, jnp.sum(values**2) / 2, values, jax.vmap(push)(basis))
        better = trial.cost < best.cost
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), trial, best)
        # Bold after a success, careful after a failure; the ends are those of float64.
        damping = jnp.clip(jnp.where(better, damping / 5, damping * 4), 1e-10, 1e12)
        step, stationary = _propose(best, damping, lower, upper, bend if accelerated else None)
        return (jnp.clip(best.theta + step, lower, upper), best, damping), stationary

    basis = jnp.eye(start.size)
    start = jnp.clip(start, lower, upper)
    rows = jax.eval_shape(residual, start, data).size
    nothing = _Iterate(start, jnp.asarray(jnp.inf), jnp.zeros(rows), jnp.zeros((start.size, rows)))
    nearly_newton = jnp.asarray(1e-2)  # share of the diagonal by which the first step is damped
    carry = (start, nothing, nearly_newton)
    (_, best, _), stationary = jax.lax.scan(iterate, carry, length=iterations)
    return best.theta, best.cost, stationary[-1]


class _Iterate(NamedTuple):
    """Parameters [P], cost, residuals [N] and their derivatives [P, N]."""

    theta: jax.Array
    cost: jax.Array
    values: jax.Array
    slopes: jax.Array


def _propose(
    best: _Iterate,
    damping: jax.Array,
    lower: jax.Array,
    upper: jax.Array,
    bend: Callable[[_Iterate, jax.Array], jax.Array] | None = None,
) -> tuple[jax.Array, jax.Array]:
    """The damped step, and whether residuals are orthogonal to every free derivative.

    `bend` returns the second derivative of the residuals along a step, which accelerates it.
    """
    gradient = best.slopes @ best.values
    fixed = ((best.theta <= lower) & (gradient >= 0)) | ((best.theta >= upper) & (gradient <= 0))
    slopes = jnp.where(fixed[:, None], 0.0, best.slopes)
    gradient = jnp.where(fixed, 0.0, gradient)
    normal = slopes @ slopes.T
    size = jnp.diagonal(normal)
    # A derivative that vanishes must leave the system regular and its parameter in place.
    scale = jnp.where(size > 0, size, 1.0)
    damped = normal + jnp.diag(scale * damping)
    step = -_solved(damped, gradient)
    if bend is not None:
        bent = -_solved(damped, slopes @ bend(best, step))
        trusted = jnp.sum(scale * bent**2) <= BENT**2 * jnp.sum(scale * step**2)
        step += jnp.where(trusted, bent / 2, 0.0)
    small = TOLERANCE * jnp.sqrt(2 * best.cost) + 1e-10  # of a fit that is exact
    return step, jnp.all(jnp.abs(gradient) <= small * jnp.sqrt(size))


def _solved(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    """Solve a small positive definite system, which needs no pivots, by Gauss-Jordan.

    In a loop of few operations, which compiles in a third of the time of a factorization in full.
    """
    count = jnp.arange(vector.size)[:, None]

    def eliminate(i: jax.Array, system: jax.Array) -> jax.Array:
        row = system[i][None] / system[i, i]
        return jnp.where(count == i, row, system - system[:, i][:, None] * row)

    system = jnp.concatenate([matrix, vector[:, None]], axis=1)
    return jax.lax.fori_loop(0, vector.size, eliminate, system)[:, -1]
