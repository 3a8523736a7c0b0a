"""Coverage and bias of a fitted L_0."""

import math
from typing import Any

import numpy as np
import pandas as pd

from bss.laws import EsFit
from bss.laws.es import LAWS

SURFACES = tuple(name for name, law in LAWS.items() if law.joint)


def estimate_row(
    seed: int, law: str, fit: EsFit, true_loss: float, reached: float
) -> dict[str, Any]:
    """Return one seed's L_0 under one law in nats, with its interval and what it covers.

    Args:
        seed: The seed.
        law: Name of the law.
        fit: Its fit.
        true_loss: Entropy of the language.
        reached: Lowest loss of the reference runs.
    """
    estimate = fit.joint_intervals["L_0"]
    low = -math.inf if estimate.low is None else estimate.low
    high = math.inf if estimate.high is None else estimate.high
    errors = np.array(fit.rows["relative_loss"])
    return {
        "seed": seed,
        "law": law,
        "L_0": estimate.value,
        "low": low,
        "high": high,
        "level": estimate.level,
        "truth": true_loss,
        "covers": low <= true_loss <= high,
        "reached": reached,
        "covers_reached": low <= reached <= high,
        "rms_relative_residual": float(np.sqrt(np.mean(errors**2))),
        "warnings": "; ".join(fit.warnings),
    }


def summarize(estimates: pd.DataFrame) -> pd.DataFrame:
    """Return coverage and bias of each law over seeds, in nats.

    `bias` is the mean of L_0 minus the entropy, and `standard_error` that of this mean over seeds.
    `bias_to_reached` is the mean of L_0 minus the lowest loss of the reference runs.
    """
    rows = []
    for law, group in estimates.groupby("law", sort=False):
        L_0 = group["L_0"]
        rows.append(
            {
                "law": law,
                "covered": group["covers"].sum(),
                "covered_reached": group["covers_reached"].sum(),
                "seeds": len(group),
                "bias": (L_0 - group["truth"]).mean(),
                "bias_to_reached": (L_0 - group["reached"]).mean(),
                "standard_error": L_0.sem(),
                "median_width": (group["high"] - group["low"]).median(),
                "rms_relative_residual": group["rms_relative_residual"].mean(),
            }
        )
    return pd.DataFrame(rows)
