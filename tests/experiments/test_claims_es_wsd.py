"""What the tables of E(S) under WSD claim: planted ones, and the committed ones."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.contests.contest import Contest
from experiments.es_wsd import claims, curves
from experiments.es_wsd.measure import read_laws
from experiments.tables import Tables

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "results" / "es_wsd"
CONFIG = json.loads((RESULTS / "experiment.json").read_text())["config"]


def finals(effects, seeds=8, scatter=0.01, steps=None):
    """Final losses of constants and schedules at constant rate, each about its own mean."""
    generator = np.random.default_rng(0)
    rows = []
    for name, (role, batch, loss) in effects.items():
        for seed in range(seeds):
            rows.append(
                {
                    "name": name,
                    "role": role,
                    "batch": batch,
                    "ending": "constant",
                    "seed": seed,
                    "tokens": 1_000_000,
                    "steps": (steps or {}).get(name, 1_000),
                    "eval_loss": loss + scatter * generator.normal(),
                    "test_loss": loss + scatter * generator.normal(),
                }
            )
    return pd.DataFrame(rows)


def points(crossing, seeds=8, scatter=0.005):
    """Tokens to two targets of batches 1 and 2; `crossing` is their log ratio at each."""
    generator = np.random.default_rng(1)
    rows = [
        {
            "batch": batch,
            "seed": seed,
            "target_loss": target,
            "tokens_to_target": 1e5
            * np.exp((ratio if batch == 1 else 0) + scatter * generator.normal()),
            "reached": True,
            "seq_len": 64,
        }
        for target, ratio in crossing.items()
        for batch in (1, 2, 4)
        for seed in range(seeds)
    ]
    table = pd.DataFrame(rows)
    table.loc[table["batch"] == 4, "tokens_to_target"] *= 2
    return table


def verdicts(made):
    return {(one.question, one.condition): one.verdict for one in made}


@pytest.mark.parametrize(
    ("loss", "verdict"), [(1.45, "shown"), (1.55, "opposite shown"), (1.5, "undecided")]
)
def test_a_schedule_is_judged_against_the_best_constant(loss, verdict):
    table = finals(
        {
            "constant 4": ("constant", "4", 1.5),
            "constant 8": ("constant", "8", 1.6),
            "ramp": ("schedule", "0:2 500K:8", loss),
            "late": ("late", "0:4 700K:32", 1.4),
        }
    )
    found = verdicts(claims.contenders(Contest(table), "beta2"))
    assert found[claims.FOLLOWS, "ramp, constant rate"] == verdict
    assert found[claims.SWITCHES, "late, constant rate"] == "shown"


def test_steps_that_differ_too_much_are_no_control():
    schedules = {
        "constant 3": ("average", "3", 1.5),
        "ramp": ("schedule", "0:2 500K:6", 1.4),  # its mean batch is 3
    }

    def contest(steps):
        return Contest(finals(schedules, steps=steps))

    near, far = (
        list(claims.equal_steps(contest({"constant 3": 1_000, "ramp": steps})))
        for steps in (1_050, 1_300)
    )
    assert [one.verdict for one in near] == ["shown"]
    assert [one.verdict for one in far] == ["not testable here"]
    assert "1,000 steps against 1,300" in far[0].note


def test_the_rate_at_a_change_is_compared_with_the_same_schedule():
    schedules = {
        "constant 2": ("constant", "2", 1.6),
        "ramp": ("schedule", "0:2 500K:8", 1.5),
        "ramp, LR × sqrt": ("schedule", "0:2 500K:8", 1.4),
    }
    (one,) = claims.coupling(Contest(finals(schedules)))
    assert (one.condition, one.verdict) == ("ramp, constant rate", "opposite shown")


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ({2.0: -0.1, 1.8: 0.1}, "shown"),
        ({2.0: 0.1, 1.8: -0.1}, "opposite shown"),
        ({2.0: -0.1, 1.8: -0.1}, "opposite shown"),  # as the hyperbola has it
        ({2.0: 0.0, 1.8: 0.1}, "undecided"),  # one side is not enough
    ],
)
def test_curves_cross_only_where_both_sides_are_sure(ratios, verdict):
    one = curves.crossing(points(ratios), "here", "")
    assert one.verdict == verdict


def test_one_seed_or_one_batch_crosses_nothing():
    alone = points({2.0: -0.1, 1.8: 0.1}, seeds=1)
    assert curves.crossing(alone, "here", "").verdict == "not testable here"
    one_batch = alone.loc[alone["batch"] == 1]
    assert curves.crossing(one_batch, "here", "").verdict == "not testable here"
    assert curves.above_smallest(one_batch, "here", "").verdict == "not testable here"


def test_the_smallest_batch_is_an_upper_bound_where_it_is_best():
    edge = curves.above_smallest(points({2.0: -0.1, 1.8: -0.1}), "here", "")
    assert edge.verdict == "opposite shown"
    assert "at most 1 sequence (64 tokens)" in edge.note
    inside = curves.above_smallest(points({2.0: -0.1, 1.8: 0.1}), "here", "")
    assert (inside.verdict, "at most" in inside.note) == ("shown", False)


def test_a_smallest_batch_that_missed_the_target_is_not_deleted():
    table = points({2.0: -0.1, 1.8: 0.1})
    smallest = (table["batch"] == table["batch"].min()) & (table["target_loss"] == 1.8)
    table.loc[smallest, "reached"] = False
    for judged in (curves.crossing, curves.above_smallest):
        one = judged(table, "here", "")
        assert (one.verdict, one.effect.high) == ("shown", None)
        assert one.condition.endswith("at least")
    table.loc[smallest, "tokens_to_target"] *= 0.5  # it stopped before the others arrived
    assert curves.above_smallest(table, "here", "").verdict == "undecided"


def test_the_committed_tables_decide_what_both_tests_show():
    table = pd.read_csv(RESULTS / "contenders.csv")
    contest = Contest(table)
    found = verdicts([*claims.contenders(contest, ""), *claims.coupling(contest)])
    follows = {key: told for key, told in found.items() if key[0] == claims.FOLLOWS}
    assert set(follows.values()) == {"undecided"}
    assert len(follows) == 9
    late = {told: verdict for (name, told), verdict in found.items() if name == claims.SWITCHES}
    assert late["late 1 → 8, constant rate"] == "shown"
    assert late["late 1 → 8, averaged weights"] == "undecided"
    assert late["the surface's own optimum 1 → 64, decayed"] == "opposite shown"
    assert found[claims.KEPT, "late 4 → 32, constant rate"] == "shown"
    assert found[claims.KEPT, "B_opt along the stable loss, constant rate"] == "undecided"


def test_the_committed_curves_neither_cross_nor_rise_surely():
    laws = read_laws(RESULTS)
    made = curves.claims(pd.read_csv(RESULTS / "points.csv"), laws, CONFIG)
    assert {one.verdict for one in made} == {"undecided", "not testable here"}
    rises = [one for one in made if one.statement == "B_opt rises as the loss falls"]
    assert [one.verdict for one in rises] == 3 * ["undecided"] + 3 * ["not testable here"]
    assert all(one.condition.endswith("at least") for one in rises[:3])
    (b_min,) = (one for one in made if one.question == curves.B_MIN)
    assert "15 of 15 cases, so B_min is below 1 sequence (64 tokens)" in b_min.note


def test_the_demo_is_one_seed_with_another_second_moment():
    made = claims.one_seed(Tables(ROOT / "results" / "demo"))
    assert {one.verdict for one in made} == {"not testable here"}
    assert all("beta2 is 0.95 per step" in one.note for one in made)
    told = curves.betas(CONFIG["setup"])
    assert "7,000 tokens: 0.994 at batch 1, 0.816 at batch 32, 0.667 at batch 64" in told


def test_a_law_that_agrees_with_the_best_batch_claims_nothing():
    table = pd.DataFrame(
        {
            "rates": "shared",
            "horizon": [100, 100, 100, 200, 200, 200],
            "batch": [1, 2, 4] * 2,
            "best": [True, False, False] * 2,
            "law_best": [True, False, False, False, True, False],
            "excess": [0, 0.1, 0.2, 0, 0.1, 0.2],
            "excess_error": [0, 0.002, 0.002] * 2,
        }
    )
    (one,) = claims.horizons(table, 3, CONFIG)
    assert one.condition == "horizon 200, rate 0.004 for all, batch 2"
    assert one.verdict == "shown"
    assert next(claims.horizons(table.assign(excess_error=np.nan), 1, CONFIG)).verdict == (
        "not testable here"
    )


@pytest.mark.slow
def test_the_hyperbola_predicts_best_in_every_seed():
    laws = read_laws(RESULTS)
    found = curves.law(pd.read_csv(RESULTS / "points.csv"), laws, CONFIG)
    assert [one.verdict for one in found] == 6 * ["shown"]
