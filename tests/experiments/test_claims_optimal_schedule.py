"""Verdicts on the theory's computations: of planted tables, and of the committed ones."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.contests.claims import judged
from bss.theory.exponents import Powers
from experiments.optimal_schedule import claims as theory

RESULTS = Path(__file__).parents[2] / "results" / "optimal_schedule"
HARD, EASY = Powers(0.3, 4.0), Powers(1.0, 2.0)


def verdicts(found, words=""):
    """By condition, of the claims whose statement has these words."""
    return {one.condition: one.verdict for one in found if words in one.statement}


def switches(exponent: float, easy: float) -> pd.DataFrame:
    data = 2.0 ** np.arange(12, 25)
    bent = np.exp(0.01 * np.sin(np.arange(13)))
    after = data**exponent * bent
    hard = pd.DataFrame({**vars(HARD), "data": data, "switch_data": data - after})
    return pd.concat([hard, pd.DataFrame({**vars(EASY), "data": data, "switch_data": easy})])


def test_a_planted_switch_is_judged_by_its_exponent():
    exact = judged(theory.switches(switches(HARD.exponents.switch, 0.0)))
    assert set(verdicts(exact).values()) == {"shown"}
    assert len(exact) == 4
    other = judged(theory.switches(switches(0.9, 50.0)))
    assert set(verdicts(other, "γ < 1").values()) == {"shown"}
    assert set(verdicts(other, "is the theory's").values()) == {"opposite shown"}
    assert set(verdicts(other, "at once").values()) == {"opposite shown"}
    linear = judged(theory.switches(switches(1.0, 0.0)))
    assert set(verdicts(linear, "γ < 1").values()) == {"undecided"}


def test_the_worst_point_of_a_law_is_what_counts():
    points = {"schedule": "one", "exact": np.ones(50), "law": np.full(50, 1.01)}
    table = pd.DataFrame({**vars(HARD), **points})
    assert set(verdicts(judged(theory.law(table, table))).values()) == {"shown"}
    off = table.assign(law=table["law"].mask(table.index == 7, 1.06))
    found = verdicts(judged(theory.law(table, off)))
    assert found[f"{HARD}, 1 batch schedules, at worst 6.0%"] == "opposite shown"
    assert found[f"{HARD}, 1 learning-rate schedules, at worst 1.0%"] == "shown"


def test_a_task_that_waits_longer_is_not_the_faster():
    before = 2.0 ** np.arange(7, 14)
    bent = np.exp(0.02 * np.sin(np.arange(7)))
    rows = [
        pd.DataFrame({**vars(powers), "steps_before": before, "wait": before**power * bent})
        for powers, power in ((HARD, 1.5), (EASY, 0.5))
    ]
    gaps = pd.DataFrame({**vars(HARD), "delay": before, "gap": before**-0.75 * bent})
    found = judged(theory.times(pd.concat(rows)))
    assert verdicts(found, "Harder tasks") == {"kernel regression": "opposite shown"}
    assert set(verdicts(found, "grow more slowly").values()) == {"shown", "opposite shown"}
    found = judged(theory.gaps(gaps))
    assert set(verdicts(found, "falls with the theory's power").values()) == {"shown"}
    steep = judged(theory.gaps(gaps.assign(gap=before**-1.0 * bent)))
    assert set(verdicts(steep, "falls with the theory's power").values()) == {"opposite shown"}


@pytest.mark.parametrize(("late", "verdict"), [(0.9, "shown"), (1.1, "opposite shown")])
def test_late_and_early_are_compared_at_equal_data(late, verdict):
    names = ["constant 1", "constant 8", "switch at 10%", "switch at 30%", "switch at 70%"]
    names += ["switch at 90%", "4 stages of equal data", "best switch", "the law's optimum"]
    risks = [1.2, 1.05, 1, 1, late, late, 0.9, 0.85, 0.85]
    table = pd.DataFrame({**vars(HARD), "schedule": names, "risk": risks, "data": 2**18})
    found = judged(theory.early_and_late(table))
    assert set(verdicts(found, "than an earlier one").values()) == {verdict}
    assert set(verdicts(found, "its two batches").values()) == {verdict}
    # What is the best switch itself is not compared with it.
    assert list(verdicts(found, "Several stages").values()) == ["opposite shown"]


def test_the_committed_verdicts():
    found = theory.claims(RESULTS)
    counted = pd.Series([one.verdict for one in found]).value_counts().to_dict()
    assert counted["undecided"] == 1  # hard catch-up times: within their limit, but few points
    assert verdicts(found, "Harder tasks") == {"kernel regression": "shown"}
    assert set(verdicts(found, "powers of the data").values()) == {"shown"}
    late = verdicts(found, "A late switch ends lower than an earlier one")
    assert {c: v for c, v in late.items() if "hard" in c and v != "shown"} == {}
    assert {v for c, v in late.items() if "easy" in c} == {"opposite shown"}
    limit = verdicts(found, "limit") | verdicts(found, "exponent of late switches")
    assert limit == {
        f"{HARD}, 65,536 to 4,194,304: 0.393, theory 0.400": "undecided",
        f"{EASY}, 128 to 1,024: 1.607, theory 2.000": "opposite shown",
    }
