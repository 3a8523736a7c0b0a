"""A lopsided valley of tokens over batches, as a law of one target (derived here).

It knows where the fewest tokens are and how E rises on both sides, and no stages: what is left
where no law of E(S) holds.
"""

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from bss.laws.es.law import Number
from bss.laws.es.per_target import PerTarget
from bss.laws.minimum import asymmetric_bowl


class ValleyParameters(NamedTuple):
    """E_min in sequences at B_opt in sequences; h, and the powers u above it and v below."""

    E_min: Number
    B_opt: Number
    h: Number
    u: Number
    v: Number


@dataclass(frozen=True)
class LopsidedValley(PerTarget):
    """E = E_min·(1 + h·φ(x)), x = log B/B_opt, φ(x) = (v·e^(ux) + u·e^(−vx))/(u + v) − 1."""

    formula = "E = E_min·(1 + h·φ(log B/B_opt)), φ(x) = (v·e^(ux) + u·e^(-vx))/(u + v) - 1"
    parameters = ValleyParameters
    units = ((1, 0), (0, 1), *[(0, 0)] * 3)
    batches = ("B_opt",)
    least = 5
    starts = tuple((0.0, b, *rest) for b, *rest in product((-1.5, 0, 1.5), (-1, 1), (0,), (-1, 0)))
    lower = (-5.0, -7.0, -12.0, np.log(0.05), np.log(0.05))
    upper = (5.0, 7.0, 8.0, 0.0, np.log(4.0))

    def sequences(self, p: ValleyParameters, batch: Number, target: Number = None) -> Number:
        """E at a batch."""
        return p.E_min * (1 + p.h * asymmetric_bowl(jnp.log(batch / p.B_opt), p.u, p.v, jnp))

    def quantities(self, p: ValleyParameters, target: Number = None) -> dict[str, np.ndarray]:
        """E_min, S_opt and B_opt."""
        E_min, B_opt = np.asarray(p.E_min), np.asarray(p.B_opt)
        return {"E_min": E_min, "S_opt": E_min / B_opt, "B_opt": B_opt}
