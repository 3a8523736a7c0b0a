"""Power laws of model, data, steps and batch, alone or under an outer exponent.

additive: L = L_0 + A·N^-a + C·S^-c + M·B^-m (arXiv 2607.01487); joint: data and an outer exponent
with it, L = L_0 + (A·N^-a + G·D^-g + C·S^-c + M·B^-m)^k; separate: L = L_0 + (A·N^-a + G·D^-g)^k
+ C·S^-c + M·B^-m, whose first terms are those of arXiv 2608.07222. S = D/B are steps. The best
batch, B ∝ D^(c/(c+m)), depends on no N in any of them (derived here).
"""

import itertools
from dataclasses import dataclass

import numpy as np

from bss.laws.final_loss.forms.form import EXPONENT, NONE, POWER, SIZE, CentredPoints, Form

SLOW, FAST = (0.3, 0.8), (0.4, 0.9)


@dataclass(frozen=True)
class PowerForm(Form):
    """A member of the family.

    Attributes:
        name, formula: which member.
        data_term: whether G·D^-g and the outer exponent are free.
        inside: 1 where steps and batch stand under the outer exponent, else 0.
    """

    data_term: bool
    inside: float
    names = ("L_0", "k", "A", "a", "G", "g", "C", "c", "M", "m")
    logs = frozenset({"A", "G", "C", "M"})

    @property
    def residual(self):
        """One program for all members."""
        return power_residual

    @property
    def data(self) -> dict[str, np.ndarray]:
        """Which member it is."""
        return {"inside": np.array(self.inside)}

    def loss(self, theta, n, d, b, xp=np):
        """Nats, by the formula."""
        L_0, k, A, a, G, g, C, c, M, m = theta
        slow = xp.exp(A - a * n) + xp.exp(G - g * d)
        fast = xp.exp(C - c * (d - b)) + xp.exp(M - m * b)
        inner = xp.maximum(slow + self.inside * fast, 1e-30)
        return L_0 + inner**k + (1 - self.inside) * fast

    def box(self, design: CentredPoints) -> tuple[np.ndarray, np.ndarray]:
        """What the table does not vary is held."""
        bounds = {"L_0": design.floor_bounds, "k": POWER}
        bounds |= dict.fromkeys("AGCM", SIZE) | dict.fromkeys("agcm", EXPONENT)
        models, budgets = design.varies
        if not models:
            bounds |= {"A": (NONE, NONE), "a": (1.0, 1.0)}
        if not (budgets and self.data_term):
            bounds |= {"G": (NONE, NONE), "g": (1.0, 1.0)}
        if not self.data_term:
            bounds["k"] = (1.0, 1.0)
        return self.in_order(bounds)

    def starts(self, design: CentredPoints, weight: np.ndarray) -> np.ndarray:
        """Non-negative least squares for the sizes, at each of a grid of L_0, k and exponents."""
        lower, _ = self.box(design)
        n, d, b = design.logs.T
        floors = design.loss.min() * np.linspace(0.3, 0.95, 4)
        powers = (0.4, 0.7, 1.0) if self.data_term else (1.0,)
        data_exponents, tried = SLOW if self.data_term else (1.0,), []
        grid = itertools.product(floors, powers, SLOW, data_exponents, FAST, FAST)
        for floor, k, a, g, c, m in grid:
            outer = k if self.inside else 1.0
            columns = np.exp(-np.stack([a * n, g * d, c * (d - b), m * b], axis=1))
            columns *= lower[[2, 4, 6, 8]] > NONE
            logs, error = design.sizes_at(weight, columns, floor, outer)
            if not self.inside:
                logs[:2] /= k
            tried.append(([floor, k, logs[0], a, logs[1], g, logs[2], c, logs[3], m], error))
        return self.best_of(tried, design)


def power_residual(theta, data):
    """Errors of the loss, weighted, of the member that the data tell."""
    return PowerForm("", "", True, data["inside"]).errors(theta, data)


ADDITIVE = PowerForm("additive", "L = L_0 + A·N^-a + C·S^-c + M·B^-m", False, 1.0)
JOINT = PowerForm("joint", "L = L_0 + (A·N^-a + G·D^-g + C·S^-c + M·B^-m)^k", True, 1.0)
SEPARATE = PowerForm("separate", "L = L_0 + (A·N^-a + G·D^-g)^k + C·S^-c + M·B^-m", True, 0.0)
