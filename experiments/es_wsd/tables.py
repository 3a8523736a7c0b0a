"""What the notebook shows of E(S) beside its claims: tables of the committed results."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from bss.laws import EsFit
from bss.points.crossings import optima

OPTIMUM = ["target_loss", "batch", "low", "high", "bound"]


def fits_of(entries: Mapping[str, Any]) -> dict[str, EsFit]:
    """Fitted laws by name, from fits.json."""
    return {law: EsFit.from_dict(entry) for law, entry in entries.items()}


def identified(fits: Mapping[str, EsFit], comparison: Mapping[str, Any]) -> dict[str, EsFit]:
    """The laws that some target identifies, the one that predicts left-out batches best first."""
    ranks = {row["law"]: rank for rank, row in enumerate(comparison["table"])}
    known = [law for law, fit in fits.items() if any(f.status == "converged" for f in fit.fits)]
    return {law: fits[law] for law in sorted(known, key=lambda law: ranks.get(law, len(ranks)))}


def optimum_table(points: pd.DataFrame) -> pd.DataFrame:
    """The measured optimum of each target with 2 standard errors, in sequences.

    An end that a bound leaves open is NaN.
    """
    rows = []
    for optimum in optima(points):
        low, high = (math.nan if end is None else end for end in optimum.ends)
        rows.append((optimum.target_loss, 2**optimum.log2_batch.value, low, high, optimum.bound))
    return pd.DataFrame(rows, columns=pd.Index(OPTIMUM))


def law_optimum(fit: EsFit) -> pd.DataFrame:
    """A law's B_opt at each target that identifies it, with the fit's interval."""
    rows = []
    for target in fit.fits:
        at = target.batches.get("B_opt")
        if target.status == "converged" and at is not None and at.value is not None:
            rows.append((target.target_loss, at.value, at.low, at.high, ""))
    return pd.DataFrame(rows, columns=pd.Index(OPTIMUM))


def errors_table(laws: Mapping[str, Any]) -> pd.DataFrame:
    """Rms errors of laws at left-out interior batches, in nats: [law, E(S)]."""
    return pd.DataFrame(
        {
            key: {row["law"]: row["interior_loss"] for row in entry["comparison"]["table"]}
            for key, entry in laws.items()
        }
    )
