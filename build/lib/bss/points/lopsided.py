"""How a valley rises from its least, to each side by a power of the batch of its own."""

from typing import Any

import numpy as np


def lopsided(x: Any, up: Any, down: Any, xp: Any = np) -> Any:
    """φ(x) = (v·e^(ux) + u·e^(−vx))/(u + v) − 1, least at φ(0) = 0 (derived here).

    Args:
        x: log(B/B*), of any shape.
        up, down: the powers u above B* and v below it, of shapes that broadcast with x.
        xp: numpy or jax.numpy.
    """
    return (down * xp.exp(up * x) + up * xp.exp(-down * x)) / (up + down) - 1
