"""What the exact least-squares recursion shows of the theory of arXiv 2410.21676.

Nothing is sampled: the scatter about a line comes from budgets and batches that are finite. A
claim that an exponent is the theory's asks whether it is within 0.04 of it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.contests.claims import Claim, Question, judged
from bss.contests.contrasts import over_seeds
from bss.contests.effects import Line, beyond, slopes
from bss.theory.critical import LAST_POINTS, CriticalPoint, CriticalTable
from experiments.tables import Tables

TABLE = "results/critical_theory/points.csv"
NEAR = 0.04
UNIT = f"in the exponent, beyond {NEAR:g}"
TASK = ["capacity", "source"]
PROCEDURE = ["overhead", "rate_cap", "rates", "average", "tail", "per_octave"]
DIFFERS = {"overhead": "r = {:.0%}", "rate_cap": "cap {:g}", "average": "average: {}"}

BY: Any = {"unit": UNIT}
_GROWS = "The critical batch of least squares grows as D^(1 − a/min(b, 2a + 1)), within"
_LEVEL = "Where b ≤ a the critical batch does not grow with D, its exponent is below"
_TAIL = "Averaging the last half of the iterates it grows as D^(1 − a/b), within"
_SAME = "That exponent holds under other step caps and overheads, within"
IS_THEORY = Question(f"{_GROWS} {NEAR:g}", "paper", **BY)
IS_LEVEL = Question(f"{_LEVEL} {NEAR:g}", "secondary", **BY)
IS_TAIL = Question(f"{_TAIL} {NEAR:g}", "derived", **BY)
HOLDS = Question(f"{_SAME} {NEAR:g}", "derived", **BY)


def claims(results: Path) -> list[Claim]:
    """Every claim, from a results directory of this experiment."""
    tables = Tables(results)
    table = tables.read("exponents.csv")
    return [*quoted(table, tables.read("points.csv")), *varied(table)]


def quoted(table: pd.DataFrame, points: pd.DataFrame) -> list[Claim]:
    """The exponents of the quoted procedure, and of a tail's average where theory differs.

    Args:
        table: a row a task and procedure, the quoted procedure first.
        points: critical batches by task, procedure and budget.
    """
    first = first_rows(table)
    theory = table.merge(first[[*TASK, "theory"]], on=TASK)["theory_y"].to_numpy()
    alike = np.isclose(table["theory"], theory, 1e-9, 1e-9)
    tails = table.loc[(table["average"] == "tail") & ~alike]
    rows = pd.concat([first, tails]).to_dict("records")
    measured = slopes({i: _last(points, row) for i, row in enumerate(rows)})
    note = "exponent {:.3f}, theory {:.3f}; exact, so the error is the scatter about a line"
    family = []
    for i, row in enumerate(rows):
        about = note.format(measured[i].estimate, row["theory"]).replace("-", "−")
        effect = beyond(measured[i], row["theory"], NEAR)
        family.append(_question(row).asked(task_name(row), effect, TABLE, about))
    return judged(family)


def varied(table: pd.DataFrame) -> Iterator[Claim]:
    """Whether other step caps and overheads move the exponents, averaged over procedures."""
    starts = table.loc[table["average"] == "start"]
    off = {
        task: (rows["exponent"] - rows["theory"]).to_numpy(float)
        for task, rows in starts.groupby(TASK, sort=False)
    }
    near = {task: np.sign(values.mean()) * values - NEAR for task, values in off.items()}
    for task, effect in over_seeds(near).items():
        least, most = off[task].min(), off[task].max()
        note = f"{len(off[task])} procedures: {least:+.3f} to {most:+.3f} of the theory's"
        where = f"{task_name(dict(zip(TASK, task, strict=True)))}, mean over procedures"
        yield HOLDS.claim(where, effect, TABLE, note.replace("-", "−"))


def first_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the quoted procedure, that of the first."""
    return table.merge(table[PROCEDURE].head(1), on=PROCEDURE)


def task_name(row: dict[str, Any]) -> str:
    """A task by its exponents."""
    return f"a = {row['capacity']:g}, b = {row['source']:g}"


def _of(points: pd.DataFrame, row: Mapping[Any, Any]) -> pd.DataFrame:
    """The critical batches of a task and procedure."""
    return points.merge(pd.DataFrame([row])[[*TASK, *PROCEDURE]])


def _last(points: pd.DataFrame, row: Mapping[Any, Any]) -> Line:
    """Budgets and critical batches of a task and procedure, the last ones."""
    last = _of(points, row).sort_values("data").tail(LAST_POINTS)
    return last["data"].to_numpy(), last["cbs"].to_numpy()


def _question(row: dict[str, Any]) -> Question:
    """What is claimed of a task."""
    if row["average"] == "tail":
        return IS_TAIL
    return IS_LEVEL if row["source"] <= row["capacity"] else IS_THEORY


def curves(table: pd.DataFrame, points: pd.DataFrame) -> dict[str, CriticalTable]:
    """The tasks under the quoted procedure, by their powers, as the figure takes them."""
    tables = {}
    for row in first_rows(table).to_dict("records"):
        here = _of(points, row)[["data", "risk", "cbs"]].itertuples(index=False, name=None)
        drawn = tuple(CriticalPoint(*at) for at in here)
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
