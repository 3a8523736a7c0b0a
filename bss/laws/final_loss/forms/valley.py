"""One model and one budget: a lopsided valley in log B, which says nothing of any other.

L = L_0 + h·φ(x), x = log(B/B*), with the φ of effective tokens. Few batches hardly tell its two
slopes, so both are drawn weakly to a usual one (derived here).
"""

from dataclasses import dataclass

import numpy as np

from bss.laws.final_loss.forms.effective import SLOPE
from bss.laws.final_loss.forms.form import CentredPoints, Form
from bss.points.lopsided import lopsided

USUAL = np.log(0.7)
DRAWN = 1e-3  # nats for a factor of e between a slope and the usual one
SPAN = np.log(16.0)  # by which the best batch may lie beyond those measured


@dataclass(frozen=True)
class ValleyForm(Form):
    """The form; L_0 is the loss at the best batch B_star."""

    name: str = "valley"
    formula: str = "L = L_0 + h·φ(log B/B_star), φ(x) = (v·e^(ux) + u·e^(-vx))/(u + v) - 1"
    names = ("L_0", "h", "u", "v", "B_star")
    logs = frozenset({"h", "u", "v", "B_star"})

    def loss(self, theta, n, d, b, xp=np):
        """Nats, by the formula."""
        L_0, h, u, v, B_star = theta
        return L_0 + xp.exp(h) * lopsided(b - B_star, xp.exp(u), xp.exp(v), xp) + 0.0 * (n + d)

    def errors(self, theta, data):
        """Errors of the loss, weighted, and how far the slopes are from the usual one."""
        import jax.numpy as jnp

        return jnp.concatenate([super().errors(theta, data), DRAWN * (theta[2:4] - USUAL)])

    def box(self, design: CentredPoints) -> tuple[np.ndarray, np.ndarray]:
        """The best batch lies within a factor of 16 of those measured."""
        b, least = design.logs[:, 2], float(design.loss.min())
        slopes = np.log(SLOPE)
        lower = [0.0, np.log(1e-6), slopes[0], slopes[0], b.min() - SPAN]
        return np.array(lower), np.array([2 * least, 3.0, slopes[1], slopes[1], b.max() + SPAN])

    def starts(self, design: CentredPoints, weight: np.ndarray) -> np.ndarray:
        """About the parabola, where it opens upwards, and about every batch."""
        b, loss = design.logs[:, 2], design.loss
        starts = [[loss.min(), -3.0, USUAL, USUAL, at] for at in np.unique(b)]
        curve, slope, level = np.polyfit(b, loss, 2, w=np.maximum(weight, 1e-9))
        if curve > 0:
            least = -slope / (2 * curve)
            height = np.log(2 * curve) - 2 * USUAL
            starts.append([level + slope * least / 2, height, USUAL, USUAL, least])
        return np.clip(np.array(starts), *self.bounds(design))


VALLEY = ValleyForm()
