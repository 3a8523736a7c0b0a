"""The study of the second moment: what it trains, what it judges."""

import json

import numpy as np
import pandas as pd
import pytest

from bss.sweeps.price import price
from bss.sweeps.setup import planned_run
from bss.values import from_dict
from configs.second_moment import SIZES, STEP, TOKENS, get_config
from experiments.second_moment import __main__ as runs
from experiments.second_moment import losses as losses_of
from experiments.second_moment import power
from experiments.second_moment.study import Study

ENDINGS = ("constant", "averaged", "decay")
RATES = (1e-3, 2e-3, 4e-3)
MEANS = {STEP: [0.014, 0.0, 0.004, 0.03, 0.1, 0.2], TOKENS: [0.0, 0.004, 0.02, 0.05, 0.15, 0.3]}


def study(part="rules") -> Study:
    """A part as its config asks for it."""
    return from_dict(Study, json.loads(get_config(part).to_json()))


def planted():
    """A part with the planted losses."""
    return losses_of.Part(finals(), pd.DataFrame(), config())


def config(part="rules"):
    """A part's config as its record has it."""
    return json.loads(get_config(part).to_json())


def finals(scatter=0.003, chosen=2e-3):
    """A planted contenders.csv: two seeds at every rate, ten at the best; loss 1.8 and MEANS."""
    rng, rows = np.random.default_rng(1), []
    for rule, means in MEANS.items():
        for batch, mean in zip((1, 2, 4, 8, 16, 32), means, strict=True):
            for seed, rate in [(s, r) for s in range(12) for r in RATES if s < 2 or r == chosen]:
                for ending in ENDINGS:
                    level = 1.8 + mean + 0.03 * (rate != chosen) + 0.02 * seed
                    losses = level + np.array([0.001, scatter]) * rng.normal(size=2)
                    row = {"name": f"{rule} · {batch}", "rule": rule, "role": "constant"}
                    row |= {"batch": str(batch), "ending": ending, "seed": seed, "peak_lr": rate}
                    rows.append(row | dict(zip(("eval_loss", "test_loss"), losses, strict=True)))
    return pd.DataFrame(rows)


@pytest.mark.parametrize("part", SIZES)
def test_every_part_can_be_planned_and_shares_trunks(part):
    asked = study(part)
    base = planned_run(asked.setup)
    found = runs.contenders(asked, base, {arm.name: arm.rates for arm in asked.arms}, asked.seeds)
    assert len(found) == len(asked.seeds) * sum(len(arm.rates) for arm in asked.arms)
    for contender in found:
        assert contender.run.plan().tokens > 0.99 * asked.tokens
        several = len(contender.run.schedule.batch.batches) > 1
        assert (contender.run.parent is not None) == several
    assert price([contender.run for contender in found]).runs == len(found)


def test_the_rules_keep_beta2_per_step_and_per_token():
    asked = study()
    base = planned_run(asked.setup)
    one = {arm.name: arm.rates[:1] for arm in asked.arms}
    beta2s = {
        c.name: c.run.plan().at(0).settings.beta2 for c in runs.contenders(asked, base, one, (0,))
    }
    assert {beta2s[f"{STEP} · {batch}"] for batch in (1, 2, 4, 8, 16, 32)} == {0.95}
    assert beta2s[f"{TOKENS} · 1"] == pytest.approx(0.99368, abs=1e-5)
    assert beta2s[f"{TOKENS} · 32"] == pytest.approx(0.8165, abs=1e-4)


def test_a_rate_at_an_end_is_followed_by_one_beyond_it_until_it_is_bracketed():
    table = finals()
    table = table.loc[table["seed"] < 2]
    asked = dict.fromkeys(table["name"], RATES)
    assert not any(runs.beyond(table, asked).values())
    lower = table.assign(eval_loss=table["eval_loss"] + table["peak_lr"])
    lower = lower.loc[lower["peak_lr"] >= 2e-3]
    found = runs.beyond(lower, asked)
    assert all(rates == [1e-3] for rates in found.values())
    settled = dict.fromkeys(asked, ())
    assert not any(runs.beyond(lower, settled).values())


def test_the_seeds_that_choose_are_not_judged():
    kept = losses_of.judged(finals(), config())
    assert set(kept["seed"]) == set(range(2, 12))
    assert set(kept["peak_lr"]) == {2e-3} and set(kept["trials"]) == {3}


def test_power_rises_with_seeds_and_falls_with_scatter():
    few, many = (power.power(np.full(6, 0.004), seeds, tables=60).mean() for seeds in (4, 12))
    assert few < many
    assert power.power(np.full(6, 0.02), 12, tables=60).mean() < many
