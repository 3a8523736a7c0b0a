"""Pooled best batch sizes: nearest points, weights, intervals, and errors at left-out optima."""

import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest

from benchmarks import advice as calibrated
from benchmarks import optima as measured
from bss.advice import recommend
from bss.advice.sources import (
    EUROLLM,
    TABLE,
    Constants,
    Source,
    calibration,
    measured_rule,
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


def flat(log2_batch, fitted=BOX, weight=1.0):
    """A source with one best batch size in its range."""
    return Source(power_law((log2_batch, 0.0, 0.0), fitted), weight)


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
    value, variance, distance, *_ = predict(flat(17.0, far), setting(3e8, 2e10), CONSTANTS)
    assert (value, distance) == pytest.approx((17 + 0.5 * 2, 2.0))
    assert variance == pytest.approx(0.4**2 + (0.2 * 2) ** 2)
    found = pool({"near": flat(17.0), "far": flat(19.0, far)}, setting(3e8, 2e10), CONSTANTS)
    assert found.inside == ("near",)
    assert found.weights["near"] == pytest.approx(2 / 3)


def test_a_weight_is_a_share_in_range():
    found = pool({"a": flat(17.0, weight=3.0), "b": flat(19.0)}, setting(3e8, 2e10), CONSTANTS)
    assert found.weights == pytest.approx({"a": 0.75, "b": 0.25})
    assert found.batch.value == pytest.approx(2**17.5)


def test_an_extrapolation_is_the_ratio_to_the_nearest_run():
    far = pool({"a": flat(17.0)}, setting(4e9, 2e10), CONSTANTS)
    assert far.extrapolation.source == "a" and far.extrapolation.factor == pytest.approx(4)
    assert far.extrapolation.params == pytest.approx(4)
    assert far.extrapolation.tokens == pytest.approx(1)
    below = pool({"a": flat(17.0)}, setting(3e8, 1e8), CONSTANTS)
    assert below.extrapolation.tokens == pytest.approx(0.1)
    assert below.extrapolation.factor == pytest.approx(10)
    assert pool({"a": flat(17.0)}, setting(3e8, 2e10), CONSTANTS).extrapolation is None


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
    assert not found.in_range and found.sequences == round(found.batch.value / 64)
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
    return calibrated.source_optima()


@pytest.fixture(scope="module")
def rows(optima):
    return calibrated.table_of(optima).set_index("left_out")


def test_left_out_optima_are_predicted_within_their_intervals(optima, rows):
    each = rows.loc[[*optima]]
    assert each["in_interval"].min() >= 0.85 and 0.85 <= each["in_interval"].mean() <= 0.97
    assert each["bounds"].sum() == each["bounds_held"].sum() == 8
    # A rule has no scatter, so that an interval of other labs may hold all of it.
    assert [*each.index[each["in_interval"] > 0.97]] == ["power-lines"]
    octaves = rows[rows.index.str.contains("octaves above")]
    assert len(octaves) == 10 and octaves["in_interval"].min() >= 0.85
    assert octaves["width"].iloc[5] > 1.5 * octaves["width"].iloc[0]


def test_intervals_are_no_wider_than_their_coverage_needs(optima):
    """Intervals narrower by a fifth miss too many optima of a source, so wide ones fail here."""
    constants, sources = calibrated.calibration()
    weights = {name: source.weight for name, source in sources.items()}

    def least_held(factor):
        scaled = constants._replace(between=factor * constants.between)
        left_out = calibrated.all_left_out(optima, scaled)
        return min(one.errors(scaled, weights).held.mean() for one in left_out.values())

    assert least_held(1.0) >= 0.85 > least_held(0.8)


def test_no_source_is_predicted_worse_than_by_the_best_published_rule(optima, rows):
    for name, (_, error) in calibrated.best_rules(optima).items():
        assert rows.loc[name, "mean_abs_log2"] <= error
    before = {TABLE: 0.645, "power-lines": 0.302, "deepseek": 0.326}  # with three sources
    assert all(rows.loc[name, "mean_abs_log2"] <= error for name, error in before.items())


def test_the_bounds_of_the_checks_are_held(rows):
    checks = rows.loc[["seesaw", "optimizer_batch (Adam)", "mlperf_rcp"]]
    assert checks["bounds"].tolist() == checks["bounds_held"].tolist() == [3, 2, 2]


def test_the_committed_table_is_that_of_its_command(rows):
    saved = pd.read_csv(calibrated.ROOT / "benchmarks/baselines/advice.csv", index_col="left_out")
    texts = ["pooled", "best_rule"]
    saved[texts] = saved[texts].fillna("")
    pd.testing.assert_frame_equal(saved, rows, check_dtype=False)


def test_the_committed_laws_of_the_tables_are_those_of_their_optima(optima):
    constants, sources = calibration()
    again = calibrated.all_sources(optima)
    for name, at in itertools.product((TABLE, EUROLLM), SETTINGS[:2]):
        found, fresh = (one[name].rule(setting(*at)) for one in (sources, again))
        assert found.batch_tokens == pytest.approx(fresh.batch_tokens, rel=3e-3)
        assert found.lr == pytest.approx(fresh.lr, rel=3e-3)
        assert sources[name].rule.fitted == again[name].rule.fitted
    assert constants.params_weight == pytest.approx(0.229, abs=1e-3)


@pytest.mark.slow
def test_the_committed_constants_are_those_of_their_command(optima):
    constants, weights = calibrated.estimate(optima)
    committed, sources = calibration()
    assert [*constants] == pytest.approx([*committed], rel=1e-3)
    found = [sources[name].weight for name in weights]
    assert found == pytest.approx([*weights.values()], rel=2e-2)


def test_a_best_batch_lies_between_the_neighbours_of_the_lowest_loss():
    cell = pd.DataFrame(
        {"params": 1e8, "tokens": 1e10, "seq_len": 1024, "batch": [64, 64, 128, 256, 512]}
    )
    x = np.log2([64, 64, 128, 256, 512])
    inner = measured.cell_optimum(cell.assign(loss=3 + 0.01 * (x - 7.4) ** 2, lr=1e-3))
    assert inner.value == pytest.approx(1024 * 2**7.4)
    assert (inner.low, inner.high, inner.lr) == (64 * 1024, 256 * 1024, 1e-3)
    falls = measured.cell_optimum(cell.assign(loss=-x))
    assert (falls.value, falls.low, falls.high, falls.lr) == (None, 256 * 1024, None, None)
    rises = measured.cell_optimum(cell.assign(loss=x))
    assert (rises.value, rises.low, rises.high) == (None, None, 128 * 1024)
    uneven = cell.assign(batch=[64, 64, 96, 256, 512])
    x = np.log2(uneven["batch"])
    found = measured.cell_optimum(uneven.assign(loss=3 + 0.01 * (x - 7.0) ** 2))
    assert found.value == pytest.approx(1024 * 2**7.0)


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
    assert found.pooled and found.pooled.weights.keys() == {TABLE, EUROLLM, "mysource:RULE"}
    alone = recommend(Setting(3e8, 2e10, 64), rules=["step-law"])
    assert alone.batch.value and found.batch.value
    share = found.weights["mysource:RULE"]
    value = 2 ** (16 * share) * alone.batch.value ** (1 - share)
    assert 0.1 < share < 0.5 and found.batch.value == pytest.approx(value)


def test_the_committed_constants_say_how_they_were_made():
    entry = json.loads((calibrated.ROOT / "bss/advice/calibration.json").read_text())
    assert entry["command"] == "python -m benchmarks.advice --write"


def test_a_rule_counts_as_measured_where_it_certainly_was():
    found = measured_rule("power-lines").fitted
    assert found == {**RULES["power-lines"].fitted, "tokens": (1.0, 1280 * 1.11e8)}
    assert measured_rule("deepseek").fitted == RULES["deepseek"].fitted


FAR = [(67e9, 2e12, 4096), (405e9, 15e12, 8192), (7e9, 2e12, 4096)]


@pytest.mark.parametrize("seed", range(3))
def test_an_interval_holds_its_sources_at_the_point_asked(seed):
    constants, sources = calibration()
    drawn = np.exp(
        np.random.default_rng(seed).uniform(np.log([1e6, 1e8]), np.log([1e12, 1e14]), (60, 2))
    )
    for params, tokens, seq_len in [*FAR, *((*row, 2048) for row in drawn)]:
        setting = Setting(params=round(params), tokens=round(tokens), seq_len=seq_len)
        pooled = pool(sources, setting, constants)
        for name, source in sources.items():
            stated = source.rule(setting).batch_tokens
            assert name in pooled.inside or pooled.batch.low <= stated <= pooled.batch.high
        assert pooled.batch.low < pooled.batch.value < pooled.batch.high


def test_sources_within_their_ranges_do_not_widen_an_interval():
    constants, sources = calibration()
    at = Setting(params=300_000_000, tokens=10**10, seq_len=2048)
    pooled = pool(sources, at, constants)
    assert {*pooled.inside} == {*sources}
    total = sum(source.weight for source in sources.values())
    half = 1.645 * math.hypot(constants.between, constants.between / total**0.5)
    ends = [math.log2(end / pooled.batch.value) for end in (pooled.batch.low, pooled.batch.high)]
    assert ends == pytest.approx([-half, half], rel=1e-3)
