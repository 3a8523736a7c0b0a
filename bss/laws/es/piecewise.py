"""The three-stage law of Zhou et al., arXiv 2601.05034 [secondary], with smooth joints.

The stages, B_min = A_1 and B_opt = E_min/S_opt are the paper's [secondary]; whether it asks
smooth joints is unknown. The joints, and what follows from them, are derived here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from bss.laws.es.law import Number
from bss.laws.es.per_target import PerTarget

EDGE = 1e-3


class StageParameters(NamedTuple):
    """S_min < S_1 < S_opt < S_2 in steps, E_min in sequences, C in sequences per step²."""

    S_min: Number
    S_1: Number
    S_opt: Number
    S_2: Number
    C: Number
    E_min: Number


@dataclass(frozen=True)
class Piecewise(PerTarget):
    """The three-stage law with C¹ knots, six free parameters (the joints are derived here).

    E(S) = B_m1/(S − S_min) + B_0        S_min < S < S_1   inverse-linear stage
           C·(S − S_opt)² + E_min        S_1 ≤ S ≤ S_2     transition stage
           A_1·S + A_0                   S > S_2           linear stage
    """

    formula = "E = B_m1/(S - S_min) + B_0, then C·(S - S_opt)² + E_min, then A_1·S + A_0"
    parameters = StageParameters
    units = (*[(1, -1)] * 4, (-1, 2), (1, 0))
    batches = ("B_min", "B_opt")
    least = 8
    starts = tuple(
        product((0.0,), (-0.7, 0.0, 0.7), (0.3, 0.8), (0.3, 0.8), (0.3, 0.9), (0.15, 0.6))
    )
    lower = (-5.0, -5.0, *[EDGE] * 4)
    upper = (5.0, 5.0, *[1 - EDGE] * 4)

    def shape(self, theta: Any, data: Mapping[str, Any]) -> StageParameters:
        """The law from a box in which every point is admissible (derived here).

        theta = (log E_min, log B_opt, u, v, g, w), the last four in (0, 1): u = S_1/S_opt,
        v = S_min/S_1, g = B_min over the smaller of B_opt and the smallest batch that reached the
        target, w = how far S_2 lies on the way from S_opt to the point where A_0 vanishes. With
        β = B_min/B_opt: S_2/S_opt = 1 + 2w(1/β − 1), C·S_opt²/E_min = β²/(4w(1 − β)) and
        A_0/E_min = (1 − β)(1 − w) > 0.
        """
        log_E, log_B, u, v, g, w = theta
        met = (data["reached"] > 0) & (data["weight"] > 0)
        smallest = jnp.where(met, data["batch"], jnp.inf).min()
        E_min, B_opt = jnp.exp(log_E), jnp.exp(log_B)
        beta = g * jnp.minimum(1.0, smallest / B_opt)
        S_opt = E_min / B_opt
        S_2 = S_opt * (1 + 2 * w * (1 / beta - 1))
        C = E_min / S_opt**2 * beta**2 / (4 * w * (1 - beta))
        return StageParameters(S_opt * u * v, S_opt * u, S_opt, S_2, C, E_min)

    def sequences(self, p: StageParameters, batch: Number, target: Number = None) -> Number:
        """E at a batch in closed form (derived here); infinite up to B_min.

        A_0 > 0 makes E/S strictly decreasing, so that each batch above B_min = A_1 meets the law
        once: on a quadratic in the first two stages, on a line in the last.
        """
        B_m1, B_0, A_1, A_0 = outer_stages(p)
        batch_1 = (p.C * (p.S_1 - p.S_opt) ** 2 + p.E_min) / p.S_1
        batch_2 = (p.C * (p.S_2 - p.S_opt) ** 2 + p.E_min) / p.S_2
        sum_1 = p.S_min + B_0 / batch
        product_1 = (B_0 * p.S_min - B_m1) / batch
        first = 0.5 * (sum_1 + jnp.sqrt(jnp.maximum(sum_1**2 - 4 * product_1, 1e-300)))
        sum_2 = p.S_opt + 0.5 * batch / p.C
        product_2 = p.S_opt**2 + p.E_min / p.C
        middle = product_2 / (sum_2 + jnp.sqrt(jnp.maximum(sum_2**2 - product_2, 1e-300)))
        met = batch > A_1
        last = A_0 / jnp.where(met, batch - A_1, 1.0)
        steps = jnp.where(batch > batch_1, first, jnp.where(batch < batch_2, last, middle))
        return jnp.where(met, batch * steps, jnp.inf)

    def quantities(self, p: StageParameters, target: Number = None) -> dict[str, np.ndarray]:
        """S_min, E_min, S_opt, B_min and B_opt."""
        S_min, _, S_opt, S_2, C, E_min = (np.asarray(value) for value in p)
        steps = {"S_min": S_min, "E_min": E_min, "S_opt": S_opt}
        return steps | {"B_min": 2 * C * (S_2 - S_opt), "B_opt": E_min / S_opt}

    def stages(self, p: StageParameters, target: float) -> dict[str, float]:
        """S_min, the knots S_1 and S_2, and S_opt."""
        names = ("S_min", "S_1", "S_opt", "S_2")
        return {name: float(getattr(p, name)) for name in names}


def outer_stages(p: StageParameters) -> tuple[Number, Number, Number, Number]:
    """B_m1, B_0, A_1 and A_0 of the outer stages, which C¹ joints imply (derived here)."""
    left, right = p.S_opt - p.S_1, p.S_2 - p.S_opt
    reach = p.S_1 - p.S_min
    B_m1 = 2 * p.C * left * reach**2
    B_0 = p.E_min + p.C * left**2 - 2 * p.C * left * reach
    return B_m1, B_0, 2 * p.C * right, p.E_min - p.C * (p.S_2**2 - p.S_opt**2)
