"""Tables of the exact least-squares recursion and of the theory of arXiv 2410.21676.

Nothing is sampled: residuals about a line come from budgets and batch sizes that are finite.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from bss.theory.critical import CriticalPoint, CriticalTable

TASK = ["capacity", "source"]
PROCEDURE = ["overhead", "rate_cap", "rates", "average", "tail", "per_octave"]
DIFFERS = {"overhead": "r = {:.0%}", "rate_cap": "cap {:g}", "average": "average: {}"}


def first_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the first procedure."""
    return table.merge(table[PROCEDURE].head(1), on=PROCEDURE)


def task_name(row: dict[str, Any]) -> str:
    """Return a task as text."""
    return f"a = {row['capacity']:g}, b = {row['source']:g}"


def _of(points: pd.DataFrame, row: Mapping[Any, Any]) -> pd.DataFrame:
    """Return the critical batch sizes of a task and procedure."""
    return points.merge(pd.DataFrame([row])[[*TASK, *PROCEDURE]])


def curves(table: pd.DataFrame, points: pd.DataFrame) -> dict[str, CriticalTable]:
    """Return the tasks under the first procedure by name, as the figure takes them."""
    tables = {}
    for row in first_rows(table).to_dict("records"):
        here = _of(points, row)[["data", "risk", "cbs"]].itertuples(index=False, name=None)
        drawn = tuple(CriticalPoint(*at) for at in here)
        exponent = (row[name] for name in ("exponent", "low", "high", "theory"))
        tables[task_name(row)] = CriticalTable(drawn, *exponent)
    return tables


def exponents(table: pd.DataFrame) -> pd.DataFrame:
    """Return exponents with the 95% interval of the residuals about a line, and the theory's."""
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
