"""Power laws of model, data, steps and batch, alone or under an outer exponent.

additive: L = L_0 + A·N^-a + C·S^-c + M·B^-m (arXiv 2607.01487); joint: data and an outer exponent
with it, L = L_0 + (A·N^-a + G·D^-g + C·S^-c + M·B^-m)^k; separate: L = L_0 + (A·N^-a + G·D^-g)^k
+ C·S^-c + M·B^-m, whose first terms are those of arXiv 2608.07222. S = D/B are steps. The best
batch, B ∝ D^(c/(c+m)), depends on no N in any of them (derived here).
"""

import itertools
from dataclasses import dataclass

import numpy as np

from bss.laws.final_loss.forms.form import (
    EXPONENT,
    NONE,
    POWER,
    SIZE,
    Design,
    Form,
    floor_bounds,
    in_order,
    kept_starts,
    sizes_at,
    weighted,
)

NAMES = ("L_0", "k", "A", "a", "G", "g", "C", "c", "M", "m")
SLOW, FAST = (0.3, 0.8), (0.4, 0.9)


@dataclass(frozen=True)
class PowerForm(Form):
    """A member of the family.

    Attributes:
        name, formula: as of every form.
        data_term: whether G·D^-g and the outer exponent are free.
        inside: 1 where steps and batch stand under the outer exponent, else 0.
    """

    data_term: bool
    inside: float
    names = NAMES
    logs = frozenset({"A", "G", "C", "M"})
    shape = frozenset({"C", "c", "M", "m"})

    @property
    def residual(self):
        """As of every form; one program for all members."""
        return power_residual

    @property
    def data(self) -> dict[str, np.ndarray]:
        """Which member it is."""
        return {"inside": np.array(self.inside)}

    def loss(self, theta, n, d, b, xp=np):
        """As of every form."""
        return _loss(theta, n, d, b, self.inside, xp)

    def box(self, design: Design) -> tuple[np.ndarray, np.ndarray]:
        """As of every form."""
        bounds = {"L_0": floor_bounds(design), "k": POWER}
        bounds |= dict.fromkeys("AGCM", SIZE) | dict.fromkeys("agcm", EXPONENT)
        models, budgets = design.varies
        if not models:
            bounds |= {"A": (NONE, NONE), "a": (1.0, 1.0)}
        if not (budgets and self.data_term):
            bounds |= {"G": (NONE, NONE), "g": (1.0, 1.0)}
        if not self.data_term:
            bounds["k"] = (1.0, 1.0)
        return in_order(bounds, NAMES)

    def starts(self, design: Design, weight: np.ndarray) -> np.ndarray:
        """Non-negative least squares for the sizes, at each of a grid of L_0, k and exponents."""
        lower, upper = self.box(design)
        n, d, b = design.logs.T
        floors = design.loss.min() * np.linspace(0.3, 0.95, 4)
        powers = (0.4, 0.7, 1.0) if self.data_term else (1.0,)
        found, errors = [], []
        data_exponents = SLOW if self.data_term else (1.0,)
        grid = itertools.product(floors, powers, SLOW, data_exponents, FAST, FAST)
        for floor, k, a, g, c, m in grid:
            outer = k if self.inside else 1.0
            columns = np.exp(-np.stack([a * n, g * d, c * (d - b), m * b], axis=1))
            columns *= lower[[2, 4, 6, 8]] > NONE
            logs, error = sizes_at(design, weight, columns, floor, outer)
            if not self.inside:
                logs[:2] /= k
            found.append([floor, k, logs[0], a, logs[1], g, logs[2], c, logs[3], m])
            errors.append(error)
        return kept_starts(found, errors, (lower, upper))


def power_residual(theta, data):
    """Errors of the loss, weighted."""
    import jax.numpy as jnp

    n, d, b = data["logs"].T
    return weighted(_loss(theta, n, d, b, data["inside"], jnp) - data["loss"], data)


def _loss(theta, n, d, b, inside, xp):
    L_0, k, A, a, G, g, C, c, M, m = theta
    slow = xp.exp(A - a * n) + xp.exp(G - g * d)
    fast = xp.exp(C - c * (d - b)) + xp.exp(M - m * b)
    return L_0 + xp.maximum(slow + inside * fast, 1e-30) ** k + (1 - inside) * fast


ADDITIVE = PowerForm("additive", "L = L_0 + A·N^-a + C·S^-c + M·B^-m", False, 1.0)
JOINT = PowerForm("joint", "L = L_0 + (A·N^-a + G·D^-g + C·S^-c + M·B^-m)^k", True, 1.0)
SEPARATE = PowerForm("separate", "L = L_0 + (A·N^-a + G·D^-g)^k + C·S^-c + M·B^-m", True, 0.0)
