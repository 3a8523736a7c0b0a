"""Tables of least squares' critical batches, as text; claims.py says what they show."""

import numpy as np
import pandas as pd

from bss.theory.critical import LAST_POINTS, CriticalPoint, CriticalTable
from experiments.critical_theory.claims import PROCEDURE, key_of, task_name

DIFFERS = {"overhead": "r = {:.0%}", "rate_cap": "cap {:g}", "average": "average: {}"}


def quoted(table: pd.DataFrame, points: pd.DataFrame) -> dict[str, CriticalTable]:
    """The tasks under the quoted procedure, by their powers, as the figure takes them."""
    rows = table.to_dict("records")
    tables = {}
    for row in (row for row in rows if key_of(row, PROCEDURE) == key_of(rows[0], PROCEDURE)):
        here = [p for p in points.to_dict("records") if key_of(p) == key_of(row)]
        drawn = tuple(CriticalPoint(p["data"], p["risk"], p["cbs"]) for p in here)
        exponent = (row[name] for name in ("exponent", "low", "high", "theory"))
        tables[task_name(row)] = CriticalTable(drawn, *exponent)
    return tables


def exponents(table: pd.DataFrame) -> pd.DataFrame:
    """Exponents with the 95% interval of the scatter about a line; theory's [procedure, task]."""
    rows = table.to_dict("records")
    first = rows[0]
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        texts = [DIFFERS[key].format(row[key]) for key in DIFFERS if row[key] != first[key]]
        plain = ", ".join(text.format(first[key]) for key, text in DIFFERS.items())
        name = ", ".join(texts) or f"quoted: {plain}"
        ends = f"{row['exponent']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
        text = f"{ends}; {row['theory']:.3f}".replace("-", "−")
        cells.setdefault(task_name(row), {})[name] = text
    return pd.DataFrame(cells)


def last_budgets(points: pd.DataFrame) -> str:
    """The budgets that exponents are read from, as text."""
    powers = np.log2(np.unique(points["data"]))[-LAST_POINTS:]
    return f"2^{powers[0]:.0f} to 2^{powers[-1]:.0f}"
