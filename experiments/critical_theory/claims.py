"""What the exact least-squares recursion shows of the theory of arXiv 2410.21676.

Nothing is sampled: the scatter about a line comes from budgets and batches that are finite. A
claim that an exponent is the theory's asks whether it is within 0.04 of it.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.points.claims import Claim, Source, claim
from bss.points.contrasts import Contrast, judge, over_seeds
from bss.points.effects import Line, beyond, slopes
from bss.theory.critical import LAST_POINTS

TABLE = "results/critical_theory/points.csv"
NEAR = 0.04
UNIT = f"in the exponent, beyond {NEAR:g}"
TASK = ["capacity", "source"]
PROCEDURE = ["overhead", "rate_cap", "rates", "average", "tail", "per_octave"]

IS_THEORY = (
    f"The critical batch of least squares grows as D^(1 − a/min(b, 2a + 1)), within {NEAR:g}"
)
IS_LEVEL = f"Where b ≤ a the critical batch does not grow with D, its exponent is below {NEAR:g}"
IS_TAIL = f"Averaging the last half of the iterates it grows as D^(1 − a/b), within {NEAR:g}"
HOLDS = f"That exponent holds under other step caps and overheads, within {NEAR:g}"


def claims(results: Path) -> list[Claim]:
    """Every claim, from a results directory of this experiment."""
    table = pd.read_csv(results / "exponents.csv")
    return [*quoted(table, pd.read_csv(results / "points.csv")), *varied(table)]


def quoted(table: pd.DataFrame, points: pd.DataFrame) -> list[Claim]:
    """The exponents of the quoted procedure, and of a tail's average where theory differs.

    Args:
        table: a row a task and procedure, the quoted procedure first.
        points: critical batches by task, procedure and budget.
    """
    rows = table.to_dict("records")
    pinned = _key(rows[0], PROCEDURE)
    first = [row for row in rows if _key(row, PROCEDURE) == pinned]
    theory = {_key(row, TASK): row["theory"] for row in first}
    tails = [row for row in rows if row["average"] == "tail"]
    rows = first + [row for row in tails if not _same(row["theory"], theory[_key(row, TASK)])]
    plain = slopes({i: _last(points, row) for i, row in enumerate(rows)})
    found = judge({i: beyond(plain[i], row["theory"], NEAR) for i, row in enumerate(rows)})
    note = "exponent {:.3f}, theory {:.3f}; exact, so the error is the scatter about a line"
    return [
        _claim(row, found[i], note.format(plain[i].estimate, row["theory"]).replace("-", "−"))
        for i, row in enumerate(rows)
    ]


def varied(table: pd.DataFrame) -> list[Claim]:
    """Whether other step caps and overheads move the exponents, averaged over procedures."""
    off: dict[tuple, list[float]] = {}
    for row in table.to_dict("records"):
        if row["average"] == "start":
            off.setdefault(_key(row, TASK), []).append(row["exponent"] - row["theory"])
    sides = {task: np.sign(np.mean(values)) for task, values in off.items()}
    near = {task: sides[task] * np.array(values) - NEAR for task, values in off.items()}
    made = []
    for task, effect in over_seeds(near).items():
        values = off[task]
        note = f"{len(values)} procedures: {min(values):+.3f} to {max(values):+.3f} of the theory's"
        where = f"{_named(*task)}, mean over procedures"
        made.append(_asked(HOLDS, "derived", where, effect, note.replace("-", "−")))
    return made


def _key(row: dict[str, Any], columns: Sequence[str]) -> tuple:
    return tuple(row[column] for column in columns)


def _same(value: float, other: float) -> bool:
    return math.isclose(value, other, abs_tol=1e-9)


def _last(points: pd.DataFrame, row: dict[str, Any]) -> Line:
    """Budgets and critical batches of a task and procedure, the last ones."""
    keys = [*TASK, *PROCEDURE]
    here = [at for at in points.to_dict("records") if _key(at, keys) == _key(row, keys)]
    last = sorted(here, key=lambda at: at["data"])[-LAST_POINTS:]
    return np.array([at["data"] for at in last]), np.array([at["cbs"] for at in last])


def _claim(row: dict[str, Any], effect: Contrast, note: str) -> Claim:
    where = _named(row["capacity"], row["source"])
    if row["average"] == "tail":
        return _asked(IS_TAIL, "derived", where, effect, note)
    if row["source"] <= row["capacity"]:
        return _asked(IS_LEVEL, "secondary", where, effect, note)
    return _asked(IS_THEORY, "paper", where, effect, note)


def _asked(statement: str, source: Source, where: str, effect: Contrast, note: str) -> Claim:
    return claim(statement, source, where, effect, sign=-1, unit=UNIT, table=TABLE, note=note)


def _named(capacity: float, source: float) -> str:
    return f"a = {capacity:g}, b = {source:g}"
