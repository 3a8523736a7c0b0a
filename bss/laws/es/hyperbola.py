"""The hyperbola of McCandlish et al., arXiv 1812.06162: no batch is best, small ones cost least."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bss.laws.es.law import Number
from bss.laws.es.per_target import PerTarget


class HyperbolaParameters(NamedTuple):
    """E_min in sequences, S_min in steps."""

    E_min: Number
    S_min: Number


@dataclass(frozen=True)
class Hyperbola(PerTarget):
    """(E/E_min − 1)(S/S_min − 1) = 1; the critical batch is B_crit = E_min/S_min."""

    formula = "(E/E_min - 1)(S/S_min - 1) = 1"
    parameters = HyperbolaParameters
    units = ((1, 0), (1, -1))
    batches = ("B_crit",)
    least = 3
    starts = ((-0.5, -6.0), (-0.5, -3.0), (-0.5, -1.0))
    lower = (-12.0, -12.0)
    upper = (3.0, 5.0)

    def sequences(self, p: HyperbolaParameters, batch: Number, target: Number = None) -> Number:
        """E at a batch: E_min + S_min·B, the hyperbola with S = E/B put in."""
        return p.E_min + p.S_min * batch

    def quantities(self, p: HyperbolaParameters, target: Number = None) -> dict[str, np.ndarray]:
        """S_min, E_min in the limit of small batches, and B_crit."""
        E_min, S_min = (np.asarray(value) for value in p)
        return {"S_min": S_min, "E_min": E_min, "B_crit": E_min / S_min}
