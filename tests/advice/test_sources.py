"""Pooled best batch sizes: nearest points, weights, intervals, and errors at left-out optima."""

import itertools
import json
import math

import numpy as np
import pytest

from benchmarks import advice as calibrated
from bss.advice import recommend
from bss.advice.sources import (
    POOLED,
    TABLE,
    Constants,
    calibration,
    nearest,
    pool,
    power_law,
    predict,
)
from bss.rules import RULES, Hyperparameters, Rule, Setting

CONSTANTS = Constants(between=0.4, growth=0.2, exponent=0.5, params_weight=0.25)
BOX = {"params": (1e8, 1e9), "tokens": (1e9, 1e11)}
RANGES = [
    BOX,
    {"params": (1.11e8, 3.3e9), "tokens_per_param": (20, 1280)},
    {"compute": (1e17, 2e19), "tokens_per_param": (19, 69)},
    {"tokens": (4.4e8, 6.56e10), "tokens_per_param": (10.6, 17.6)},
]
SETTINGS = [(3e8, 2e10), (3e9, 1e8), (1e7, 1e13), (1e6, 1e6), (7e10, 1.5e13)]


def setting(params, tokens, **known):
    return Setting(params, tokens, 64, **known)


def flat(log2_batch, fitted=BOX):
    """A source with one best batch size in its range."""
    return power_law(log2_batch, 0.0, 0.0, fitted)


@pytest.mark.parametrize(("fitted", "at"), [*itertools.product(RANGES, SETTINGS)])
def test_the_nearest_point_of_a_range_is_that_of_a_search(fitted, at):
    n, d, distance = nearest(fitted, setting(*at), 0.25)
    grid = np.meshgrid(np.linspace(15, 45, 1501), np.linspace(15, 50, 1751), indexing="ij")
    inside = np.ones(grid[0].shape, bool)
    logs = {"params": grid[0], "tokens": grid[1], "tokens_per_param": grid[1] - grid[0]}
    logs["compute"] = grid[0] + grid[1] + math.log2(6)
    for name, (low, high) in fitted.items():
        inside &= (logs[name] >= math.log2(low)) & (logs[name] <= math.log2(high))
    apart = np.hypot(0.25 * (grid[0] - math.log2(at[0])), grid[1] - math.log2(at[1]))
    assert distance == pytest.approx(apart[inside].min(), abs=0.05)
    found = np.hypot(0.25 * (n - math.log2(at[0])), d - math.log2(at[1]))
    assert found == pytest.approx(distance, abs=1e-6)
    rule = Rule("", lambda _: Hyperparameters(1.0), fitted=fitted)
    assert (distance == 0) == (not rule.outside(setting(*at)))


def test_inside_their_ranges_sources_count_the_same():
    found = pool({"a": flat(17.0), "b": flat(19.0)}, setting(3e8, 2e10), CONSTANTS)
    assert found.inside == ("a", "b") and found.weights == pytest.approx({"a": 0.5, "b": 0.5})
    assert found.batch.value == pytest.approx(2**18)
    assert found.batch.low and found.batch.high
    # Another lab: between² for it, and between²/2 for the mean of two.
    half = 1.6449 * 0.4 * math.sqrt(1.5)
    assert math.log2(found.batch.high / found.batch.low) / 2 == pytest.approx(half, rel=1e-4)


def test_a_source_outside_its_range_is_extended_and_counts_less():
    far = {"params": (1e8, 1e9), "tokens": (1e9, 5e9)}  # 2 doublings below
    value, variance, distance = predict(flat(17.0, far), setting(3e8, 2e10), CONSTANTS)
    assert (value, distance) == pytest.approx((17 + 0.5 * 2, 2.0))
    assert variance == pytest.approx(0.4**2 + (0.2 * 2) ** 2)
    found = pool({"near": flat(17.0), "far": flat(19.0, far)}, setting(3e8, 2e10), CONSTANTS)
    assert found.inside == ("near",)
    assert found.weights["near"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("towards", [(0, -1), (1, 0), (0, 1), (1, -1), (-1, 1), (1, 1), (-1, -1)])
def test_the_interval_widens_with_the_distance_from_all_ranges(towards):
    widths = []
    for steps in range(6):
        params = 3e8 * 8.0 ** (steps * towards[0])
        tokens = 1e10 * 8.0 ** (steps * towards[1])
        found = recommend(setting(params, tokens))
        assert found.batch.low and found.batch.high
        widths.append(found.batch.high / found.batch.low)
        assert found.in_range == bool(found.pooled and found.pooled.inside)
    outside = widths[3:]  # a factor of 512 from the middle is outside all ranges
    assert outside == sorted(outside) and outside[-1] > outside[0] > widths[0]


def test_far_outside_no_rule_is_followed_beyond_its_range():
    """2.9B parameters, 128M tokens: a rule of compute alone gives 294K tokens there."""
    found = recommend(setting(2.9e9, 1.28e8))
    assert not found.in_range and found.sequences is None
    assert RULES["deepseek"](found.setting).batch_tokens == pytest.approx(294e3, rel=0.01)
    assert found.batch.value and found.batch.value < 60_000
    assert found.batch.low and found.batch.high and found.batch.high > 3.5 * found.batch.low


@pytest.mark.slow
def test_intervals_hold_the_optima_of_labs_that_differ_as_assumed():
    """Labs drawn from the model: their optima lie in at least 90% of the intervals.

    An interval also holds what the far source states, so that it holds somewhat more.
    """
    generator, held = np.random.default_rng(0), []
    far = {"params": (1e8, 1e9), "tokens": (1e9, 2.5e9)}
    for _ in range(2000):
        near, apart, own = generator.normal(size=3)
        apart *= math.hypot(0.4, 0.2 * 3)
        sources = {"near": flat(17 + 0.4 * near), "far": flat(17 - 1.5 + apart, far)}
        batch = pool(sources, setting(3e8, 2e10), CONSTANTS).batch
        assert batch.low and batch.high
        held.append(batch.low <= 2 ** (17 + 0.4 * own) <= batch.high)
    assert 0.88 <= np.mean(held) <= 0.95


@pytest.fixture(scope="module")
def optima():
    rules = {name: calibrated.rule_optima(name) for name in POOLED}
    return {TABLE: calibrated.table_optima()} | rules


@pytest.fixture(scope="module")
def sources(optima):
    return {TABLE: calibrated.table_source(optima[TABLE])[0]} | {n: RULES[n] for n in POOLED}


def test_left_out_optima_are_predicted_within_their_intervals(optima, sources):
    errors = calibrated.all_left_out(optima, sources, calibration()[0])
    row = calibrated.row("all", errors.values(), "")
    assert row["n"] == 3 * 36 and row["bounds"] == row["bounds_held"] == 5
    assert row["mean_abs_log2"] <= 0.45
    assert 0.83 <= row["in_interval"] <= 0.97
    # No wider than that needs: nine tenths of the errors would fill intervals of this width.
    z = np.concatenate([np.abs(one.error) / one.half for one in errors.values()])
    weights = np.concatenate(
        [np.full(len(one.error), 1 / len(one.error)) for one in errors.values()]
    )
    order = np.argsort(z)
    needed = z[order][np.searchsorted(np.cumsum(weights[order]) / weights.sum(), 0.9)]
    assert 0.8 <= needed <= 1.1


def test_the_committed_law_of_the_table_is_that_of_its_optima(sources):
    constants, table = calibration()
    for at in SETTINGS[:2]:
        found, again = (one(setting(*at)).batch_tokens for one in (table, sources[TABLE]))
        assert found == pytest.approx(again, rel=2e-3)
    assert table.fitted == {name: list(ends) for name, ends in sources[TABLE].fitted.items()}
    assert constants.params_weight == pytest.approx(0.229, abs=1e-3)


@pytest.mark.slow
def test_the_committed_constants_are_those_of_their_command(optima, sources):
    law = calibrated.table_source(optima[TABLE])[1]
    again = calibrated.estimate(optima, sources, law)
    assert [*again] == pytest.approx([*calibration()[0]], rel=1e-3)


def test_a_rule_of_a_user_is_one_more_source(tmp_path, monkeypatch):
    (tmp_path / "mysource.py").write_text(
        "from bss.rules import Hyperparameters, Rule\n"
        "RULE = Rule('ours', lambda s: Hyperparameters(2.0**16), fitted={'tokens': (1e9, 1e11)})\n"
        "UNKNOWN = Rule('ours', lambda s: Hyperparameters(2.0**10))\n"
        "OTHER = Rule('ours', lambda s: Hyperparameters(2.0**10), fitted={'d_model': (1, 2)})\n"
    )
    monkeypatch.chdir(tmp_path)
    names = ["mysource:RULE", "mysource:UNKNOWN", "mysource:OTHER", "step-law", "nanochat"]
    found = recommend(Setting(3e8, 2e10, 64, d_model=768), rules=names)
    assert found.pooled and found.pooled.weights.keys() == {TABLE, "mysource:RULE"}
    alone = recommend(Setting(3e8, 2e10, 64), rules=["step-law"])
    assert alone.batch.value and found.batch.value
    assert found.batch.value == pytest.approx(math.sqrt(2**16 * alone.batch.value))


def test_the_committed_constants_say_how_they_were_made():
    entry = json.loads((calibrated.ROOT / "bss/advice/calibration.json").read_text())
    assert entry["command"] == "python -m benchmarks.advice --write"


FAR = [(67e9, 2e12, 4096), (405e9, 15e12, 8192), (7e9, 2e12, 4096)]


@pytest.mark.parametrize("seed", range(3))
def test_an_interval_holds_its_sources_at_the_point_asked(seed):
    constants, table = calibration()
    sources = {TABLE: table} | {name: RULES[name] for name in POOLED}
    drawn = np.exp(
        np.random.default_rng(seed).uniform(np.log([1e6, 1e8]), np.log([1e12, 1e14]), (60, 2))
    )
    for params, tokens, seq_len in [*FAR, *((*row, 2048) for row in drawn)]:
        setting = Setting(params=round(params), tokens=round(tokens), seq_len=seq_len)
        pooled = pool(sources, setting, constants)
        for name, rule in sources.items():
            stated = rule(setting).batch_tokens
            assert name in pooled.inside or pooled.batch.low <= stated <= pooled.batch.high
        assert pooled.batch.low < pooled.batch.value < pooled.batch.high


def test_sources_within_their_ranges_do_not_widen_an_interval():
    constants, table = calibration()
    sources = {TABLE: table} | {name: RULES[name] for name in POOLED}
    at = Setting(params=300_000_000, tokens=10**10, seq_len=2048)
    pooled = pool(sources, at, constants)
    assert {*pooled.inside} == {*sources}
    half = 1.645 * math.hypot(constants.between, constants.between / 3**0.5)
    ends = [math.log2(end / pooled.batch.value) for end in (pooled.batch.low, pooled.batch.high)]
    assert ends == pytest.approx([-half, half], rel=1e-3)
