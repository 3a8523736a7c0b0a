"""A loss surface L(S, B) that describes all targets at once, and its family (derived here).

Its residual is the loss at the observed (S, B) over the target, minus 1; one-sided where the
target was not reached.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from bss.errors import InputError
from bss.laws.es.design import Design
from bss.laws.es.law import Law, Number, Problem, residuals


class SurfaceParameters(NamedTuple):
    """L_0 in nats, a with S in steps, b in nats·sequences^m, B_phi in sequences."""

    L_0: Number
    a: Number
    alpha: Number
    b: Number
    m: Number
    B_phi: Number


@dataclass(frozen=True)
class Surface(Law):
    """L(S, B) = L_0 + a·[S / sqrt(1 + B_phi/B)]^−α + b/B^m (derived here).

    m = 1 and B_phi = 0 is what the functional scaling law gives for SGD at constant LR and batch,
    with α its source exponent and b proportional to the LR. B_phi > 0 is an "Adam clock": a step
    makes less progress where gradient noise dominates.

    Attributes:
        m: batch exponent; None fits it.
        B_phi: scale of the Adam clock in sequences; None fits it, 0 turns it off.
    """

    m: float | None = 1.0
    B_phi: float | None = 0.0

    formula = "L = L_0 + a·S^-alpha + b/B^m"
    parameters = SurfaceParameters
    batches = ("B_min", "B_opt")
    least = 1
    joint = True

    @property
    def free(self) -> int:
        """SurfaceParameters that are fitted."""
        return 4 + (self.m is None) + (self.B_phi is None)

    @property
    def least_judged(self) -> int:
        """As many batches as parameters."""
        return self.free

    @property
    def family(self) -> "Surface":
        """The plain surface: m and B_phi are among the parameters of a fit."""
        return Surface("surface")

    def problem(self, design: Design, targets: np.ndarray) -> Problem:
        """One problem over all targets."""
        if len(design.targets) < 2:
            raise InputError(
                "points: one target is reached; the surface needs at least 2, and 3 to fix L_0, "
                "so give more targets or choose the hyperbola"
            )
        S_unit = float(np.exp(np.log(design.steps[design.reached]).mean()))
        B_unit = float(np.exp(np.log(design.batch).mean()))
        steps, batch = design.steps / S_unit, design.batch / B_unit
        m_box = (0.2, 3.0) if self.m is None else (self.m, self.m)
        phi_box = (0.0, 300.0) if self.B_phi is None else (self.B_phi / B_unit,) * 2
        bottom = design.targets[-1]
        data = {"steps": steps, "batch": batch, "observed": design.target}
        data |= {"reached": design.reached.astype(float), "weight": 1 / design.target}
        return Problem(
            loss_error,
            np.array([self._starts(design, steps, batch, phi_box)]),
            np.array([[0.0, -12.0, np.log(0.02), -15.0, m_box[0], phi_box[0]]]),
            np.array([[bottom * (1 - 1e-4), 12.0, np.log(5.0), 8.0, m_box[1], phi_box[1]]]),
            {key: value[None] for key, value in data.items()},
            np.arange(len(batch))[None],
            np.array([[S_unit, B_unit]]),
        )

    def _starts(
        self, design: Design, steps: np.ndarray, batch: np.ndarray, phi_box: tuple[float, ...]
    ) -> list[list[float]]:
        """Grids of L_0, α and B_phi, with a and b by linear least squares."""
        top, bottom = design.targets[0], design.targets[-1]
        power = 1.0 if self.m is None else self.m
        phis = (0.0, 1.0) if self.B_phi is None else phi_box[:1]
        starts = []
        for share, alpha, phi in product((0.0, 0.5, 0.8, 0.95), (0.2, 0.5, 1.2), phis):
            floor = share * bottom
            progress = steps / np.sqrt(1 + phi / batch)
            terms = np.stack([progress**-alpha, batch**-power], axis=1)[design.reached]
            scale = np.linalg.lstsq(terms, design.target[design.reached] - floor, rcond=None)[0]
            a, b = np.log(np.maximum(scale, 1e-2 * (top - floor)))
            starts.append([floor, a, np.log(alpha), b, power, phi])
        return starts

    def decoded(self, theta: np.ndarray, problem: Problem, index: int) -> SurfaceParameters:
        """The parameters in steps and sequences."""
        S_unit, B_unit = problem.units[index]
        L_0, log_a, log_alpha, log_b, m, phi = np.moveaxis(theta, -1, 0)
        alpha = np.exp(log_alpha)
        a = np.exp(log_a) * S_unit**alpha
        b = np.exp(log_b) * B_unit**m
        return SurfaceParameters(L_0, a, alpha, b, m, phi * B_unit)

    def loss(self, p: SurfaceParameters, steps: Number, batch: Number) -> Number:
        """The loss in nats after `steps` at a constant batch."""
        progress = steps * self.clock(p, batch)
        return p.L_0 + p.a * progress**-p.alpha + p.b * batch**-p.m

    def clock(self, p: SurfaceParameters, batch: Number) -> Number:
        """Progress of one step at a batch: 1 where gradient noise is small."""
        return (1 + p.B_phi / batch) ** -0.5

    def sequences(self, p: SurfaceParameters, batch: Number, target: Number = None) -> Number:
        """E in sequences at which the surface meets a loss; infinite where it never does."""
        excess = target - p.L_0 - p.b * batch**-p.m
        met = excess > 0
        progress = (p.a / jnp.where(met, excess, 1.0)) ** (1 / p.alpha)
        return jnp.where(met, batch * progress / self.clock(p, batch), jnp.inf)

    def quantities(self, p: SurfaceParameters, target: Number = None) -> dict[str, np.ndarray]:
        """Asymptotes and minimum of E(S), for target losses above L_0 (derived here).

        With Δ = L − L_0: S_min = (a/Δ)^{1/α}, B_min = (b/Δ)^{1/m}. For B_phi = 0 the minimum is at
        B_opt = (1 + m/α)^{1/m}·B_min; otherwise it is the root of a monotone function of log B,
        bisected. Arguments broadcast as NumPy arrays.
        """
        p = SurfaceParameters(*(np.asarray(value, np.float64) for value in p))
        excess = np.asarray(target, np.float64) - p.L_0
        B_min = (p.b / excess) ** (1 / p.m)
        ratio = p.m / p.alpha
        low, high = np.zeros_like(B_min), np.log1p(2 * ratio) / p.m + np.zeros_like(B_min)
        for _ in range(60):
            middle = (low + high) / 2
            noise = np.exp(-p.m * middle)
            half_clock = 0.5 * p.B_phi / (B_min * np.exp(middle) + p.B_phi)
            rising = 1 - half_clock > ratio * noise / (1 - noise)
            low, high = np.where(rising, low, middle), np.where(rising, middle, high)
        B_opt = B_min * np.exp((low + high) / 2)
        progress = (p.a / (excess - p.b * B_opt**-p.m)) ** (1 / p.alpha)
        S_opt = progress / self.clock(p, B_opt)
        S_min = (p.a / excess) ** (1 / p.alpha) + np.zeros_like(B_min)
        steps = {"S_min": S_min, "E_min": B_opt * S_opt, "S_opt": S_opt}
        return steps | {"B_min": B_min, "B_opt": B_opt}

    def stages(self, p: SurfaceParameters, target: float) -> dict[str, float]:
        """S_min and S_opt."""
        quantities = self.quantities(p, target)
        return {name: float(quantities[name]) for name in ("S_min", "S_opt")}


def loss_error(theta: Any, data: Mapping[str, Any]) -> Any:
    """Residuals [M] of fitted numbers [6]: all members of the family share it."""
    p = SurfaceParameters(theta[0], *jnp.exp(theta[1:4]), *theta[4:])
    error = Surface("surface").loss(p, data["steps"], data["batch"]) - data["observed"]
    return residuals(error, data)
