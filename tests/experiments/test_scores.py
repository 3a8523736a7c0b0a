"""The papers' statements under the parts long and switch: of planted and of committed tables."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.contests.contest import Contest
from experiments.second_moment import scores

CLAIMS = json.loads((Path(__file__).parents[2] / "results/claims.json").read_text())["claims"]
STEPS = {"1": 8000, "2": 4000, "4": 2000, "8": 1000}


def test_the_family_of_six_is_judged_together():
    family = [
        one for one in CLAIMS if "to 1.63" in one["condition"] and "exponent" not in one["unit"]
    ]
    assert len(family) == 6
    lowest = min(family, key=lambda one: one["p"])
    assert lowest["p_adjusted"] == pytest.approx(6 * lowest["p"])
    verdicts = {kind: [] for kind in ("stable", "averaged")}
    for one in family:
        verdicts[one["condition"].split()[0]].append(one["verdict"])
        assert "not judged; asked after the runs" in one["note"]
    assert sorted(verdicts["stable"]) == 3 * ["shown"]
    assert sorted(verdicts["averaged"]) == ["shown", "undecided", "undecided"]


def finals(grown, scatter=0.001):
    """Constants on a parabola in log steps, and a schedule of 3,000 steps above or below it."""
    draw, rows = np.random.default_rng(1), []
    middle = np.log(2500)
    losses = {batch: 1.6 + 0.02 * (np.log(steps) - middle) ** 2 for batch, steps in STEPS.items()}
    losses["0:2 500:4"] = 1.6 + 0.02 * (np.log(3000) - middle) ** 2 + grown
    for batch, loss in losses.items():
        for seed in range(8):
            row = {"name": f"0.95 per step · {batch}", "batch": batch, "ending": "decay"}
            row |= {"role": "constant" if batch in STEPS else "schedule", "seed": seed}
            row |= {"tokens": 1000, "steps": STEPS.get(batch, 3000), "peak_lr": 2e-3}
            value = loss + 0.02 * seed + scatter * draw.normal()
            rows.append(row | {"eval_loss": value, "test_loss": value})
    return Contest(pd.DataFrame(rows))


@pytest.mark.parametrize(
    ("grown", "verdict"), [(-0.01, "shown"), (0.01, "opposite shown"), (0.0, "not shown")]
)
def test_a_schedule_is_set_beside_the_parabola_at_its_own_steps(grown, verdict):
    (one,) = scores.frontier(finals(grown))
    assert one.verdict == verdict
    assert one.effect.estimate == pytest.approx(grown, abs=0.002)
    assert "3,000 steps; batches 2, 4, 8" in one.note or "batches 1, 2, 4" in one.note


def test_three_stages_are_judged_by_seed():
    table = pd.DataFrame({"kind": "stable", "seed": range(5), "hyperbola": 0.02})
    better = table.assign(piecewise=0.01 + 1e-4 * np.arange(5))
    (one,) = scores.stages(better)
    assert (one.verdict, one.effect.n) == ("shown", 5)
    (level,) = scores.stages(table.assign(piecewise=0.02 + 1e-3 * np.array([1, -1, 2, -2, 0])))
    assert level.verdict == "undecided"
