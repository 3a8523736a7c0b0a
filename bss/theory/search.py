"""A minimum over one variable: a grid, then a continuous search around its best point."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar


def minimum(
    function: Callable[[float], float], grid: np.ndarray, values: np.ndarray
) -> tuple[float, float]:
    """Return the place and value of the lowest point found, the grid's own points included.

    Args:
        function: A function of one variable.
        grid: [N], ascending, fine enough that the minimum lies next to the best point.
        values: [N], the function there.
    """
    best = int(np.argmin(values))
    bounds = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    refined: Any = minimize_scalar(
        function, bounds=bounds, method="bounded", options={"xatol": 1e-9}
    )
    if refined.fun < values[best]:
        return float(refined.x), float(refined.fun)
    return float(grid[best]), float(values[best])
