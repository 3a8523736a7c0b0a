"""Effective tokens: a batch off the best one wastes a share of the data (derived here).

L = L_0 + (A·N^-a + G·D_eff^-g)^k with D_eff = D/(1 + h·φ(x)), x = log(B/B*), B* = B_0·D^q·N^r and
φ(x) = (v·e^(ux) + u·e^(-vx))/(u + v) - 1, which is 0 at its minimum x = 0 and rises as B^u above
and as B^-v below. The best batch is B*.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from bss.laws.final_loss.forms.form import EXPONENT, NONE, POWER, SIZE, CentredPoints, Form
from bss.points.lopsided import lopsided

SLOPE = (0.05, 4.0)


@dataclass(frozen=True)
class EffectiveTokens(Form):
    """The form; B_star is B* at the reference."""

    name: str = "effective tokens"
    formula: str = (
        "L = L_0 + (A·N^-a + G·D_eff^-g)^k, D_eff = D/(1 + h·φ(log B/B*)), B* = B_star·D^q·N^r"
    )
    names = ("L_0", "k", "A", "a", "G", "g", "h", "u", "v", "B_star", "q", "r")
    logs = frozenset({"A", "G", "h", "B_star"})

    def loss(self, theta, n, d, b, xp=np):
        """Nats, by the formula."""
        L_0, k, A, a, G, g, h, u, v, B_star, q, r = theta
        x = b - B_star - q * d - r * n
        wasted = xp.log1p(xp.exp(h) * lopsided(x, u, v, xp))
        return L_0 + (xp.exp(A - a * n) + xp.exp(G - g * (d - wasted))) ** k

    def box(self, design: CentredPoints) -> tuple[np.ndarray, np.ndarray]:
        """What the table does not vary is held."""
        low, high = design.logs[:, 2].min(), design.logs[:, 2].max()
        bounds = {"L_0": design.floor_bounds, "k": POWER}
        bounds |= dict.fromkeys("AG", SIZE) | dict.fromkeys("ag", EXPONENT)
        bounds |= {"h": (-12.0, 5.0), "u": SLOPE, "v": SLOPE, "B_star": (low - 2, high + 2)}
        bounds |= {"q": (-0.5, 1.5), "r": (-1.0, 1.5)}
        models, budgets = design.varies
        if not models:
            bounds |= {"A": (NONE, NONE), "a": (1.0, 1.0), "r": (0.0, 0.0)}
        if not budgets:
            bounds |= {"g": (1.0, 1.0), "q": (0.0, 0.0)}
        return self.in_order(bounds)

    def starts(self, design: CentredPoints, weight: np.ndarray) -> np.ndarray:
        """Least squares for A and G at each of a grid of the rest."""
        lower, _ = self.box(design)
        n, d, b = design.logs.T
        cells = [np.flatnonzero(design.cell == cell) for cell in range(design.cell.max() + 1)]
        least, tried = [rows[np.argmin(design.loss[rows])] for rows in cells], []
        floors = design.loss.min() * np.linspace(0.3, 0.95, 4)
        grid = itertools.product(
            floors, (0.4, 0.7, 1.0), (0.3, 0.7), (0.3, 0.7), (-2.0, -0.5), (0.5, 1.0), (0.3, 0.6)
        )
        for floor, k, a, g, h, u, q in grid:
            B_star = float(np.median([b[i] - q * d[i] for i in least]))
            wasted = np.log1p(np.exp(h) * lopsided(b - B_star - q * d, u, u))
            columns = np.exp(-np.stack([a * n, g * (d - wasted)], axis=1))
            columns *= lower[[2, 4]] > NONE
            (A, G), error = design.sizes_at(weight, columns, floor, k)
            tried.append(([floor, k, A, a, G, g, h, u, u, B_star, q, 0.0], error))
        return self.best_of(tried, design)


EFFECTIVE = EffectiveTokens()
