"""The study of the second moment: what it trains, what it judges."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.stats import LR_PHASES
from bss.sweeps.cost import estimate_cost
from bss.sweeps.setup import planned_run
from bss.values import from_dict
from configs.second_moment import SIZES, STEP, TOKENS, get_config
from experiments.second_moment import analysis, run
from experiments.second_moment import losses as losses_of
from experiments.second_moment.run import Study

PHASES = ("constant", "averaged", "decayed")
RATES = (1e-3, 2e-3, 4e-3)
MEANS = {STEP: [0.014, 0.0, 0.004, 0.03, 0.1, 0.2], TOKENS: [0.0, 0.004, 0.02, 0.05, 0.15, 0.3]}


def study(part="rules") -> Study:
    """A part as its config asks for it."""
    return from_dict(Study, json.loads(get_config(part).to_json()))


def config(part="rules"):
    """A part's config as its record has it."""
    return json.loads(get_config(part).to_json())


def finals(scatter=0.003, chosen=2e-3):
    """A planted contenders.csv: two seeds at every rate, ten at the best; loss 1.8 and MEANS."""
    rng, rows = np.random.default_rng(1), []
    for rule, means in MEANS.items():
        for batch, mean in zip((1, 2, 4, 8, 16, 32), means, strict=True):
            for seed, rate in [(s, r) for s in range(12) for r in RATES if s < 2 or r == chosen]:
                for phase in PHASES:
                    level = 1.8 + mean + 0.03 * (rate != chosen) + 0.02 * seed
                    losses = level + np.array([0.001, scatter]) * rng.normal(size=2)
                    row = {"name": f"{rule} · {batch}", "rule": rule, "role": "constant"}
                    row |= {"batch": str(batch), "seed": seed, "peak_lr": rate}
                    row |= LR_PHASES[phase].columns
                    rows.append(row | dict(zip(("eval_loss", "test_loss"), losses, strict=True)))
    return pd.DataFrame(rows)


@pytest.mark.parametrize("part", SIZES)
def test_every_part_can_be_planned(part):
    asked = study(part)
    base = planned_run(asked.setup)
    found = run.contenders(asked, base, {arm.name: arm.rates for arm in asked.arms}, asked.seeds)
    assert len(found) == len(asked.seeds) * sum(len(arm.rates) for arm in asked.arms)
    for contender in found:
        assert contender.run.plan().tokens > 0.99 * asked.tokens
        assert contender.run.parent is None
    assert estimate_cost([contender.run for contender in found]).runs == len(found)


def test_the_rules_keep_beta2_per_step_and_per_token():
    asked = study()
    base = planned_run(asked.setup)
    one = {arm.name: arm.rates[:1] for arm in asked.arms}
    beta2s = {
        c.name: c.run.plan().at(0).settings.beta2 for c in run.contenders(asked, base, one, (0,))
    }
    assert {beta2s[f"{STEP} · {batch}"] for batch in (1, 2, 4, 8, 16, 32)} == {0.95}
    assert beta2s[f"{TOKENS} · 1"] == pytest.approx(0.99368, abs=1e-5)
    assert beta2s[f"{TOKENS} · 32"] == pytest.approx(0.8165, abs=1e-4)


def test_a_rate_at_an_end_is_followed_by_one_beyond_it_until_it_is_bracketed():
    table = finals()
    table = table.loc[table["seed"] < 2]
    asked = dict.fromkeys(table["name"], RATES)
    assert not any(run.beyond(table, asked).values())
    lower = table.assign(eval_loss=table["eval_loss"] + table["peak_lr"])
    lower = lower.loc[lower["peak_lr"] >= 2e-3]
    found = run.beyond(lower, asked)
    assert all(rates == [1e-3] for rates in found.values())
    settled = dict.fromkeys(asked, ())
    assert not any(run.beyond(lower, settled).values())


def test_the_seeds_that_choose_are_not_judged():
    kept = losses_of.judged(finals(), config())
    assert set(kept["seed"]) == set(range(2, 12))
    assert set(kept["peak_lr"]) == {2e-3} and set(kept["trials"]) == {3}


RESULTS = Path(__file__).parents[2] / "results/second_moment"


def test_the_best_rule_is_chosen_on_other_seeds():
    parts = [losses_of.read_part(RESULTS / name) for name in ("rules_h100", "slower")]
    losses = analysis.with_best_rule(*parts)
    table = losses["best rule of each batch", "constant"]
    rules = [some for (rule, phase), some in losses.items() if phase == "constant"]
    for batch, row in table.iterrows():
        assert any(row.equals(some.loc[batch, row.index]) for some in rules if batch in some.index)
    for some in analysis.half_lives(*parts).values():
        assert some.groupby("batch")["above"].min().to_numpy() == pytest.approx(0)
