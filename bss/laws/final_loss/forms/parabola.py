"""One model and one budget: a parabola in log B, which says nothing of any other."""

from dataclasses import dataclass

import numpy as np

from bss.laws.final_loss.forms.form import Design, Form

NAMES = ("L_0", "h", "B_star")


@dataclass(frozen=True)
class Parabola(Form):
    """The form; L_0 is the loss at the vertex B_star."""

    name: str = "parabola"
    formula: str = "L = L_0 + h·(log B/B_star)²"
    names = NAMES
    logs = frozenset({"h", "B_star"})
    shape = frozenset({"h", "B_star"})

    def loss(self, theta, n, d, b, xp=np):
        """As of every form."""
        L_0, h, B_star = theta
        return L_0 + xp.exp(h) * (b - B_star) ** 2 + 0.0 * (n + d)

    def box(self, design: Design) -> tuple[np.ndarray, np.ndarray]:
        """As of every form."""
        b, least = design.logs[:, 2], float(design.loss.min())
        lower = np.array([0.0, np.log(1e-6), b.min() - 2])
        return lower, np.array([2 * least, np.log(10.0), b.max() + 2])

    def starts(self, design: Design, weight: np.ndarray) -> np.ndarray:
        """The weighted parabola itself, where it opens upwards, and the batch of least loss."""
        b, loss = design.logs[:, 2], design.loss
        best = int(np.argmin(loss))
        found = [[loss[best], np.log(0.01), b[best]]]
        curve, slope, level = np.polyfit(b, loss, 2, w=np.maximum(weight, 1e-9))
        if curve > 0:
            vertex = -slope / (2 * curve)
            found.append([level + slope * vertex / 2, np.log(curve), vertex])
        return np.clip(np.array(found), *self.box(design))


PARABOLA = Parabola()
