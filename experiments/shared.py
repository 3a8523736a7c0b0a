"""Tables of critical batch sizes that several experiments share."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from bss.laws import CriticalFit


def critical_table(fits: Mapping[str, CriticalFit]) -> pd.DataFrame:
    """Return every fitted critical batch size with its intervals, in the unit of its design."""
    tables = {name: fit.summary() for name, fit in fits.items()}
    return pd.concat(tables, names=["design", ""]).reset_index("design").reset_index(drop=True)


def laws_table(fits: Mapping[str, CriticalFit]) -> pd.DataFrame:
    """Return the exponents of every law with intervals; `note` has the reason if not resolved."""
    rows: list[dict[str, Any]] = []
    for name, fit in fits.items():
        for law_name, law in fit.laws.items():
            for variable, exponent in zip(law.variables, law.exponents, strict=True):
                row = {"design": name, "law": law_name, "variable": variable}
                row |= {"exponent": exponent.value, "low": exponent.low, "high": exponent.high}
                row |= {"coefficient": law.coefficient.value, "unit": law.unit}
                rows.append(row | {"points": law.points, "note": fit.joint_refused})
        if not fit.laws:
            rows.append({"design": name, "points": 0, "note": "; ".join(fit.warnings)})
    return pd.DataFrame(rows)
