"""What is claimed of least squares: on planted powers, and what the committed tables show."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.critical_theory.claims import (
    HOLDS,
    IS_LEVEL,
    IS_TAIL,
    IS_THEORY,
    claims,
    quoted,
    varied,
)

RESULTS = Path(__file__).parents[2] / "results" / "critical_theory"
PINNED = {
    "overhead": 0.2, "rate_cap": 0.5, "rates": 48, "average": "start", "tail": 0.5, "per_octave": 2,
}  # fmt: skip
THEORY = {(1.5, 2.5): 0.4, (1.5, 4.5): 0.625, (2.0, 1.5): 0.0}


def tables(off=0.0):
    """Critical batches that are the theory's powers, but for an exponent that is off."""
    rows, points = [], []
    for change in ({}, {"rate_cap": 0.25}, {"overhead": 0.1}, {"average": "tail"}):
        for (capacity, source), theory in THEORY.items():
            tail = 1 - capacity / source if source > capacity else 0.0
            expected = tail if change.get("average") == "tail" else theory
            keys = {"capacity": capacity, "source": source, **PINNED, **change}
            wobble = 0.001 * len(points) % 0.004
            rows.append({**keys, "exponent": expected + off + wobble, "theory": expected})
            for i, data in enumerate(2.0 ** np.arange(8, 15)):
                cbs = data ** (expected + off) * (1 + 0.001 * (-1) ** i)
                points.append({**keys, "data": data, "cbs": cbs})
    return pd.DataFrame(rows), pd.DataFrame(points)


def test_the_theorys_powers_are_shown():
    table, points = tables()
    found = quoted(table, points)
    assert [one.question for one in found] == [IS_THEORY, IS_THEORY, IS_LEVEL, IS_TAIL]
    assert {one.verdict for one in found} == {"shown"}
    assert {one.verdict for one in varied(table)} == {"shown"}


@pytest.mark.parametrize("off", [0.1, -0.1])
def test_other_powers_are_the_opposite(off):
    table, points = tables(off)
    assert {one.verdict for one in quoted(table, points)} == {"opposite shown"}
    assert {one.verdict for one in varied(table)} == {"opposite shown"}


def test_two_budgets_cannot_be_tested():
    table, points = tables()
    few = quoted(table, points.loc[points["data"] > 2**12])
    assert {one.verdict for one in few} == {"not testable here"}


def test_what_the_committed_tables_show():
    told = {(one.question, one.condition): one.verdict for one in claims(RESULTS)}
    assert told[IS_LEVEL, "a = 2, b = 1.5"] == "shown"
    assert told[IS_THEORY, "a = 1.5, b = 2.5"] == "undecided"
    assert told[HOLDS, "a = 1.5, b = 4.5, mean over procedures"] == "shown"
    assert len(told) == 9
