"""What a design identifies of a law's batches, and a bound where it does not (derived here)."""

import numpy as np

from bss.laws.es.design import Design
from bss.laws.fitting.estimate import Estimate


def identified(
    name: str, estimate: Estimate, rows: Design, target: float, E_min: float
) -> Estimate:
    """The estimate of a batch, or a bound with a note where the design does not identify it.

    B_min is an extrapolation unless some batch below 1.5·B_min reached the target; each batch
    that did bounds it from above. B_opt, as any other, needs batches on both sides that reached the
    target, or consumed more than E_min tokens without doing so. B_crit needs a batch within a
    factor of 2 on both sides.

    Args:
        name: "B_min", "B_opt", "B_crit" or another.
        estimate: as fitted.
        rows: the design.
        target: target loss.
        E_min: in sequences.
    """
    here = rows.target == target
    value, level = estimate.value or 0.0, estimate.level
    if name == "B_min":
        smallest = rows.reaching(target)[0]
        if smallest < 1.5 * value:
            return estimate
        note = f"unidentified: the smallest batch that reached the loss, {smallest:g}, is above 1.5"
        return Estimate(None, None, float(smallest), level, f"{note} B_min")
    spent = rows.sequences > E_min
    measured = np.unique(rows.batch[here & (rows.reached | spent)])
    margin = 2.0 if name == "B_crit" else 1.0
    if value * margin < measured[0]:
        note = f"unidentified: below the smallest batch measured, {measured[0]:g}"
        return Estimate(None, None, float(measured[0]), level, note)
    if value > measured[-1] * margin:
        note = f"unidentified: above the largest batch measured, {measured[-1]:g}"
        return Estimate(None, float(measured[-1]), None, level, note)
    return estimate
