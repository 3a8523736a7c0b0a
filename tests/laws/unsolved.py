"""Fitters that descend from nowhere: starts stand for solutions, so that all around them is cheap.

What a fit makes of solutions is then arithmetic, and is told by its numbers.
"""

import numpy as np

from bss.laws.fitting.solve import Solution


def solve(residual, starts, lower, upper, data, *, iterations=60, accelerated=False):
    """`bss.laws.fitting.solve.solve`: near the middle start of each problem, no two alike."""
    count = len(next(iter(data.values())))
    starts = np.broadcast_to(starts, (count, *np.shape(starts)[-2:]))
    waves = 0.02 * np.cos(np.arange(count)[:, None] + 2 * np.arange(starts.shape[-1]))
    theta = np.clip(starts[:, starts.shape[1] // 2] + waves, lower, upper)
    bound = ((theta <= lower) | (theta >= upper)) & (np.asarray(lower) < upper)
    return Solution(theta, 0.1 + np.arange(count), np.arange(count) % 3 != 1, bound)


def solve_in_rounds(residual, starts, box, data, changed=None, *, rounds, accelerated=False):
    """The same of `solve_in_rounds`: each start, moved as its own data are."""
    starts, (lower, upper) = np.array(starts, float), box
    moved = np.zeros(len(starts))
    for values in (changed or {}).values():
        moved += np.sin(np.asarray(values).reshape(len(starts), -1).sum(axis=1))
    waves = np.cos(1 + np.arange(len(starts))[:, None] + 2 * np.arange(starts.shape[1]))
    theta = np.clip(starts + 0.02 * rounds**0.5 * waves * (1 + moved[:, None]), lower, upper)
    bound = ((theta <= lower) | (theta >= upper)) & (lower < upper)
    return Solution(theta, 1 + moved**2, np.arange(len(starts)) % 3 != 1, bound)
