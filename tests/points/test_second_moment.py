"""The rule of beta2 is read from the rows, and told beside the B_opt that belongs to it."""

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.laws.base import Options
from bss.laws.es.fit import fit_es
from bss.points.conditions import refuse_conditions
from bss.points.curve import points
from bss.points.second_moment import beta2_rule

BATCHES = np.array([1, 4, 16, 64])
LIFE = 20_000


def rows(**columns):
    return pd.DataFrame({"batch": BATCHES, "seq_len": 16, **columns})


def of_half_life(tokens):
    return (0.5 ** (BATCHES * 16 / tokens)).round(5)


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        ({}, "unknown"),
        ({"beta2": "unknown"}, "unknown"),
        ({"beta2": np.nan, "beta2_half_life": None}, "unknown"),
        ({"beta2": 0.95}, "0.95 per step"),
        ({"beta2": ["0.999"] * 4}, "0.999 per step"),
        ({"beta2_half_life": LIFE}, "half-life 20K tokens"),
        ({"beta2": 0.95, "beta2_half_life": 0}, "0.95 per step"),
        ({"beta2": of_half_life(LIFE)}, "half-life 20K tokens"),
        ({"beta2": [0.95, 0.95, 0.95, 0.99]}, "several rules"),
        ({"beta2": [0.95, 0.95, 0.95, "unknown"]}, "several rules"),
        ({"beta2": 0.0}, "0 per step"),
        ({"beta2": [0.0, 0.9, 0.9, 0.9]}, "several rules"),
    ],
)
def test_rule(columns, rule):
    table = rows(**columns)
    assert beta2_rule(table) == rule
    assert beta2_rule(table.iloc[::-1]) == rule


def test_told_beside_the_optimum(planted):
    table = planted.points(planted.laws["surface"])
    options = Options(resamples=5, draws=0)
    assert fit_es(table, "surface", options=options).answer.endswith("law; beta2 unknown)")
    fit = fit_es(table.assign(beta2=0.95), "surface", options=options)
    assert fit.answer.endswith("(surface law; beta2 0.95 per step)")
    assert fit.to_dict()["beta2"] == "0.95 per step"


@pytest.mark.parametrize("name", ["beta2", "optimizer.beta2", "adam_beta2"])
def test_a_run_table_gives_it_to_its_points(name):
    tokens = np.geomspace(1e4, 1e6, 80)
    loss = 2 + 300 * tokens**-0.5
    curves = {"tokens": tokens, "step": tokens / 64, "eval_loss": loss, "batch": 4, "seq_len": 16}
    runs = pd.DataFrame({"run": "a", **curves, name: 0.98})
    assert beta2_rule(points(runs, [2.5])) == "0.98 per step"


def test_two_values_at_one_batch_are_two_conditions():
    tokens = np.geomspace(1e4, 1e6, 80)
    curves = {"tokens": tokens, "step": tokens / 64, "batch": 4, "seq_len": 16}
    runs = pd.concat(
        pd.DataFrame({"run": f"seed {k}", **curves, "beta2": beta2, "eval_loss": 2 + 1e4 / tokens})
        for k, beta2 in enumerate((0.95, 0.99))
    )
    with pytest.raises(InputError, match="beta2"):
        refuse_conditions(runs)
