"""Planted effects, textbook numbers, and shares of simulated studies."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

from bss.errors import InputError
from bss.stats import (
    Comparison,
    compare,
    half_interval,
    holm,
    minimum_detectable_effect,
    paired,
    slope,
)


def test_a_paired_difference_is_that_of_the_paired_t_test():
    # Student 1908, Table II of sleep gained under two drugs: t = 4.06, p = 0.0028
    first = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
    second = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
    found = paired(second - first)
    assert found.mean == pytest.approx(1.58) and found.n == 10
    assert found.se and found.high
    assert found.mean / found.se == pytest.approx(4.0621, abs=1e-4)
    assert (found.p, found.low, found.high) == pytest.approx((0.00283, 0.7001, 2.4599), abs=1e-4)
    assert found.p == pytest.approx(ttest_rel(second, first).pvalue)
    assert half_interval((second - first)[:, None])[0] == pytest.approx(found.high - found.mean)


def test_differences_without_an_error_have_none():
    one = paired([0.01, np.nan])
    assert (one.mean, one.n, one.se, one.p, one.sign) == (0.01, 1, None, None, 0)
    assert math.isnan(paired([]).mean)
    assert (paired([0.01] * 3).p, paired([0.0] * 3).p) == (0.0, 1.0)
    assert np.isnan(half_interval(np.ones((1, 2)))).all()


def test_holm_is_the_textbooks():
    # Wright 1992, Biometrics 48, Table 1
    p = [0.0001, 0.0058, 0.0132, 0.0289, 0.0498, 0.0911, 0.2012, 0.5718, 0.8912, 0.9011]
    expected = [0.001, 0.0522, 0.1056, 0.2023, 0.2988, 0.4555, 0.8048, 1, 1, 1]
    np.testing.assert_allclose(holm(p), expected, atol=1e-4)
    np.testing.assert_allclose(holm(p[::-1]), expected[::-1], atol=1e-4)
    assert not len(holm([]))


@pytest.mark.slow
def test_false_findings_stay_below_five_percent_of_tables_and_an_effect_is_found():
    draw, false, found = np.random.default_rng(0), 0, 0
    names = ["reference", *"abcd"]
    pairs = [(name, "reference") for name in names[1:]]
    for _ in range(150):
        losses = draw.normal(size=(5, 6))
        null = compare(pd.DataFrame(losses, names), pairs)
        false += any(one.sign for one in null.values())
        losses[1] -= 4
        found += compare(pd.DataFrame(losses, names), pairs)["a", "reference"].sign == -1
    assert false < 0.08 * 150
    assert found > 0.9 * 150


@pytest.mark.parametrize("n", [2, 3, 8, 50])
def test_the_minimum_detectable_effect_is_detected_in_80_percent_of_studies(n):
    effect = minimum_detectable_effect(0.008, n)
    studies = np.random.default_rng(1).normal(effect, 0.008, (20_000, n))
    reach = half_interval(studies.T)
    assert np.mean(abs(studies.mean(axis=1)) > reach) == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(("sd", "n"), [(0.0, 3), (math.nan, 3), (1.0, 1)])
def test_no_effect_is_detectable_without_noise_or_pairs(sd, n):
    with pytest.raises(InputError, match="sd"):
        minimum_detectable_effect(sd, n)


@pytest.mark.slow
def test_the_interval_of_a_slope_covers_a_planted_exponent():
    x, draw = 2.0 ** np.arange(6), np.random.default_rng(2)
    found = [slope(x, x**-0.4 * np.exp(draw.normal(0, 0.1, 6))) for _ in range(2000)]
    assert np.mean([one.low < -0.4 < one.high for one in found]) == pytest.approx(0.9, abs=0.02)
    flat = slope(x, np.ones(6))
    assert (flat.value, flat.low, flat.high) == (0, 0, 0)
    two = slope([1.0, 2.0], [1.0, 4.0])
    assert (two.value, two.low, two.high) == (pytest.approx(2), -math.inf, math.inf)


def finals(shift=-0.02, rates=(1e-3,), tested=True):
    """Two constants and a schedule whose final loss is planted relative to constant 2."""
    rows = []
    for name, role, own in (("constant 1", "constant", 0.05), ("constant 2", "constant", 0.0),
                            ("ramp", "schedule", shift)):  # fmt: skip
        for lr in rates:
            for seed in range(4):
                loss = 2 + own + 0.1 * seed + 0.001 * ((seed * 7 + len(name)) % 4) + 10 * lr
                rows.append(
                    (name, "0:2", role, "decayed", "last", lr, seed, 1000, 10, loss, loss + 0.5)
                )
    columns = ["name", "batch", "role", "lr_phase", "weights", "peak_lr", "seed", "tokens", "steps"]
    table = pd.DataFrame(rows, columns=[*columns, "eval_loss", "test_loss"])
    return table if tested else table.assign(test_loss=table["test_loss"].where(table.index > 0))


@pytest.mark.parametrize(
    ("shift", "result"), [(-0.02, "lower"), (0.02, "higher"), (0.0, "inconclusive")]
)
def test_compared_runs_are_sorted_and_differ_from_the_best_constant_as_planted(shift, result):
    runs = Comparison(finals(shift)).by_phase()["decayed"]
    assert [one.loss for one in runs] == sorted(one.loss for one in runs)
    rows = {one.name: one for one in runs}
    assert rows["constant 2"].best and rows["constant 2"].difference == 0
    assert rows["ramp"].result == result and rows["constant 1"].result == "higher"
    assert rows["ramp"].difference == pytest.approx(shift, abs=0.002)
    assert rows["ramp"].loss > 2.4  # the test loss


def test_each_compared_run_keeps_its_best_peak_lr():
    table = finals(rates=(2e-3, 1e-3), tested=False)
    with pytest.raises(InputError, match=r"'constant 1'.* seed 0"):
        Comparison(table).phase("decayed")
    tuned = Comparison(table).tuned()
    assert set(tuned.table["peak_lr"]) == {1e-3} and set(tuned.table["trials"]) == {2}
    assert tuned.column == "test_loss" and Comparison(table).column == "eval_loss"


def test_without_a_constant_or_a_second_seed_a_difference_has_no_error():
    table = finals()
    alone = Comparison(table.loc[table["role"] == "schedule"]).phase("decayed")
    assert alone[0].result == "inconclusive" and math.isnan(alone[0].difference)
    one = Comparison(table.loc[table["seed"] == 0]).phase("decayed")
    assert {row.error for row in one if not row.best} == {None}
    assert {row.result for row in one} == {"best constant", "inconclusive"}
