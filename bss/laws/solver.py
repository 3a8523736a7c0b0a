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

TOLERANCE = 1e-4  # cosine of residuals and derivatives: at it, costs agree to 1e-8
CHUNK = 8  # starts that descend together: bounds the memory of the curves' derivatives
ROUND = 10  # iterations between looks at what has converged
EVERY = 8  # rounds that every start gets before the best one ends the search
SIDE_BY_SIDE = min(os.cpu_count() or 1, 4)
AHEAD, BENT = 0.1, 0.75  # part of a step, and trusted size of the acceleration, as in the paper
Residual = Callable[[jax.Array, Any], jax.Array]


class Solution(NamedTuple):
    """The best of all starts, for each of R problems.

    Attributes:
        parameters, cost: [R, P], and [R], half the sum of squared residuals.
        converged: [R], whether the cosine of the residuals with every free derivative is < 1e-4.
        at_bound: [R, P], whether a parameter ended on a bound (False if it is fixed).
    """

    parameters: np.ndarray
    cost: np.ndarray
    converged: np.ndarray
    at_bound: np.ndarray

    def best(self) -> "Solution":
        """Return the one of lowest cost, if all are solutions to one problem."""
        return Solution(*(array[[np.argmin(self.cost)]] for array in self))


def solve(
    residual: Residual,
    starts: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    data: Any,
    *,
    iterations: int = 60,
    accelerated: bool = False,
) -> Solution:
    """Minimize the sum of squared residuals of R problems, each from K starts.

    Args:
        residual: (parameters [P], one problem's data) -> residuals [N]. It must be a module-level
            function: programs are cached by it and by the shapes of the arguments.
        starts: [R, K, P] or [K, P] for all problems alike.
        lower: [P] or [R, P]; equal to `upper` if a parameter is fixed.
        upper: [P] or [R, P].
        data: pytree of arrays, each with a leading axis R.
        iterations: steps tried from each start; a rejected one counts.
        accelerated: by geodesic acceleration, for one more evaluation of residuals in each.

    Raises:
        InputError: if no start of a problem has finite residuals.
    """
    problems, parameters = len(jax.tree.leaves(data)[0]), np.shape(starts)[-1]
    starts = np.broadcast_to(starts, (problems, *np.shape(starts)[-2:]))
    bounds = [np.broadcast_to(bound, (problems, parameters)) for bound in (lower, upper)]
    each = starts.shape[1]
    rows = np.repeat(np.arange(problems), each)
    descend = functools.partial(_solve, residual, iterations, accelerated)
    parts = _in_blocks(descend, starts.reshape(-1, parameters), (*bounds, data), rows)
    thetas, costs, ends = (part.reshape(problems, each, *part.shape[1:]) for part in parts)
    best = np.argmin(np.where(np.isnan(costs), np.inf, costs), axis=1)
    theta, cost, converged = (part[np.arange(problems), best] for part in (thetas, costs, ends))
    if not np.isfinite(cost).all():
        raise InputError("fit: no start gives finite residuals; check the data for extreme values")
    fixed = bounds[0] == bounds[1]
    at_bound = ((theta <= bounds[0]) | (theta >= bounds[1])) & ~fixed
    return Solution(theta, cost, converged, at_bound)


def solve_in_rounds(
    residual: Residual,
    starts: np.ndarray,
    box: tuple[np.ndarray, np.ndarray],
    data: dict[str, Any],
    changed: dict[str, np.ndarray] | None = None,
    *,
    rounds: int,
    accelerated: bool = False,
) -> Solution:
    """Descend from each of Q starts by itself, ROUND iterations in each round.

    Chunks of CHUNK starts bound the memory, and let any number share one compiled program; as many
    as there are cores, at most four, descend side by side. One that has converged gives its place.

    Args:
        residual, data, accelerated: as in `solve`, of one problem, the data by name.
        starts: [Q, P].
        box: lower and upper bounds [P].
        changed: data by name, [Q, ...], if they differ between starts, as in a bootstrap.
        rounds: how many at most for a start; where the data are not changed, all end once the best
            has converged after EVERY of them.

    `Solution.best` picks one of the solutions.
    """
    count, left = len(starts), np.arange(len(starts))
    theta, tried = np.array(starts, float), np.zeros(count, int)
    none = np.zeros(count, bool)
    solutions = Solution(theta, np.full(count, np.inf), none, np.zeros_like(theta, bool))

    def descend(here: np.ndarray) -> Solution:
        rows = np.resize(here, CHUNK)
        every = jax.tree.map(lambda value: np.broadcast_to(value, (CHUNK, *value.shape)), data)
        every |= {key: values[rows] for key, values in (changed or {}).items()}
        each = residual, theta[rows][:, None], *box, every
        return solve(*each, iterations=ROUND, accelerated=accelerated)

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        while len(left):
            now = left[: SIDE_BY_SIDE * CHUNK]
            chunks = [now[i : i + CHUNK] for i in range(0, len(now), CHUNK)]
            for here, part in zip(chunks, pool.map(descend, chunks), strict=True):
                for array, new in zip(solutions, part, strict=True):
                    array[here] = new[: len(here)]
            tried[now] += 1
            left = np.setdiff1d(left, now[solutions.converged[now] | (tried[now] >= rounds)])
            best = solutions.converged[np.argmin(solutions.cost)]
            if changed is None and best and tried.max() >= EVERY:
                break
    return solutions


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


@functools.partial(jax.jit, static_argnums=0)
def _linearize(residual: Residual, parameters: jax.Array, data: Any):
    return residual(parameters, data), jax.jacfwd(residual)(parameters, data)


def _in_blocks(
    descend: Callable[..., Any], starts: np.ndarray, problems: tuple, rows: np.ndarray
) -> list[np.ndarray]:
    """A descent from each of Q starts [Q, P], of the problems [Q] (bounds, data) in `rows`.

    In blocks of one size, padded, so that a law's fit, its left-out batches and its bootstrap share
    one compiled program.
    """
    block = CHUNK if len(starts) <= CHUNK else 8 * CHUNK
    solved = []
    with jax.enable_x64(True):
        for first in range(0, len(starts), block):
            here = np.resize(np.arange(first, min(first + block, len(starts))), block)
            problem = rows[here]
            mine = jax.tree.map(lambda leaf: np.asarray(leaf)[problem], problems)  # noqa: B023
            parts = descend(*float64((starts[here], *mine)))
            solved.append([np.asarray(part)[: len(starts) - first] for part in parts])
    return [np.concatenate(parts) for parts in zip(*solved, strict=True)]


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _solve(residual: Residual, iterations: int, accelerated: bool, *problems: Any):
    """Return descents from starts [Q, P], with bounds and data that have the same leading axis."""
    return jax.vmap(functools.partial(_descend, residual, iterations, accelerated))(*problems)


def _descend(residual, iterations, accelerated, start, lower, upper, data):
    """Levenberg-Marquardt from one start; the iterate stays in the box."""

    def bend(best, step):
        ahead = residual(best.theta + AHEAD * step, data)
        return 2 / AHEAD * ((ahead - best.values) / AHEAD - step @ best.slopes)

    def iterate(carry, _):
        candidate, best, damping = carry
        values, push = jax.linearize(lambda theta: residual(theta, data), candidate)
        trial = _Iterate(candidate, 0.5 * jnp.sum(values**2), values, jax.vmap(push)(basis))
        better = trial.cost < best.cost
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), trial, best)
        damping = jnp.clip(jnp.where(better, damping / 5, damping * 4), 1e-10, 1e12)
        step, stationary = _propose(best, damping, lower, upper, bend if accelerated else None)
        return (jnp.clip(best.theta + step, lower, upper), best, damping), stationary

    basis = jnp.eye(start.size)
    start = jnp.clip(start, lower, upper)
    rows = jax.eval_shape(residual, start, data).size
    nothing = _Iterate(start, jnp.asarray(jnp.inf), jnp.zeros(rows), jnp.zeros((start.size, rows)))
    carry = (start, nothing, jnp.asarray(1e-2))
    (_, best, _), stationary = jax.lax.scan(iterate, carry, length=iterations)
    return best.theta, best.cost, stationary[-1]


class _Iterate(NamedTuple):
    """Parameters [P], cost, residuals [N] and their derivatives [P, N]."""

    theta: jax.Array
    cost: jax.Array
    values: jax.Array
    slopes: jax.Array


def _propose(best: _Iterate, damping, lower, upper, bend=None):
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
    small = TOLERANCE * jnp.sqrt(2 * best.cost) + 1e-10
    return step, jnp.all(jnp.abs(gradient) <= small * jnp.sqrt(size))


def _solved(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    """Solve a small positive definite system, which needs no pivots, by Gauss-Jordan.

    In a loop of few operations, which compiles in a third of the time of a factorization in full.
    """
    count = jnp.arange(vector.size)[:, None]

    def eliminate(i, system):
        row = system[i][None] / system[i, i]
        return jnp.where(count == i, row, system - system[:, i][:, None] * row)

    system = jnp.concatenate([matrix, vector[:, None]], axis=1)
    return jax.lax.fori_loop(0, vector.size, eliminate, system)[:, -1]
