"""The page's answers for random settings are those of `bss advise`, to 1e-9."""

import itertools

import numpy as np
import pytest

from bss.advice import recommend
from bss.advice.of_fit import PUBLISHED, fit_advice
from bss.advice.sources import EUROLLM, TABLE, calibration, pool
from bss.exports import export
from bss.exports.base import functions
from bss.files import read_json
from bss.laws import LossFit
from bss.rules import RULES, SCALINGS, Change, Hyperparameters, Setting
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve

SEQ_LENS = (512, 2048, 4096, 8192)


@pytest.fixture(scope="module")
def fit():
    return LossFit.from_dict(read_json(PUBLISHED, ""))


@pytest.fixture(scope="module")
def settings(fit):
    generator = np.random.default_rng(5)
    drawn = []
    for i in range(200):
        inside = i % 4  # three quarters within what some source measured
        low, high = (5e7, 3e9) if inside else (1e6, 1e12)
        params = np.exp(generator.uniform(np.log(low), np.log(high)))
        per_param = np.exp(generator.uniform(np.log(2), np.log(2000)))
        params, tokens = round(params), round(params * per_param)
        drawn.append((params, tokens, int(generator.choice(SEQ_LENS))))
    drawn[:3] = [(int(at.params), int(at.tokens), 2048) for at in fit.optima[:3]]
    return drawn


@pytest.fixture(scope="module")
def found(evaluate, settings):
    asked = [dict(zip(("params", "tokens", "seqLen"), one, strict=True)) for one in settings]
    return evaluate(settings=asked)["found"]


def same(found, expected):
    """Numbers, in any order of nesting, are equal to 1e-9; None is equal to None."""
    pair = (np.asarray(one, dtype=float) for one in (found, expected))
    np.testing.assert_allclose(*pair, rtol=1e-9, atol=1e-12)


def test_best_batches_intervals_and_costs(settings, found, fit, monkeypatch):
    read_once = "bss.advice.advice.published"
    monkeypatch.setattr(read_once, lambda setting: fit_advice(fit, setting))
    known = 0
    for setting, at in zip(settings, found, strict=True):
        expected, advice = recommend(Setting(*setting)), at["advice"]
        ends = [getattr(expected.batch, end) for end in ("value", "low", "high")]
        same([advice[end] for end in ("value", "low", "high")], ends)
        assert (advice["inRange"], advice["sequences"]) == (expected.in_range, expected.sequences)
        assert expected.pooled is not None
        beyond, found_beyond = expected.extrapolation, advice["extrapolation"]
        assert (beyond is None) == (found_beyond is None)
        if beyond:
            assert beyond.source == found_beyond["source"]
            keys = ("factor", "params", "tokens")
            same([found_beyond[key] for key in keys], [getattr(beyond, key) for key in keys])
        for one in advice["sources"]:
            predicted = expected.pooled.predictions[one["name"]]
            keys = ("params", "tokens", "lr", "beta2")
            same([one[key] for key in keys], [getattr(predicted, key) for key in keys])
        shares = {one["name"]: one["share"] for one in advice["weights"]}
        assert shares.keys() == expected.pooled.weights.keys()
        for name, share in expected.pooled.weights.items():
            same(shares[name], share)
        ratios = [end and end * expected.batch.value for end in expected.losses.tolerance()]
        same(advice["tolerance"], ratios)
        costs = [expected.losses.loss_at(factor) for factor in (0.5, 1.0, 2.0, 4.0)]
        same([one["loss"] for one in at["costs"]], costs)
        known += costs[0] is not None
    assert 40 < known < 180  # both kinds


def test_receipts(settings, found, fit, monkeypatch):
    monkeypatch.setattr("bss.advice.of_fit.read_fit", lambda *_: fit)
    near = 0
    for setting, at in zip(settings[::4], found[::4], strict=True):
        advice = recommend(Setting(*setting))
        size = 1.5 * advice.sequences * setting[2]
        if size > setting[1]:
            continue
        expected, page = advice.with_receipt(size).receipt, at["receipt"]
        for name, key in (("loss", "loss"), ("tokens", "tokens"), ("steps", "steps")):
            same([row[key] for row in page["rows"]], [row[name] for row in expected.rows])
        ends = [getattr(expected.largest, end) for end in ("value", "low", "high")]
        same(page["largest"], ends)
        same(page["ratio"], expected.ratio)
        assert (page["place"] is None) == (expected.losses_of == "")
        near += page["place"] is not None
    assert 5 < near < 45


def test_the_published_table_by_itself(settings, found, fit):
    compared = 0
    for (params, tokens, _), at in zip(settings, found, strict=True):
        if alone := at["advice"]["alone"]:
            best = fit.best_batch(params, tokens)
            ends = [best.value, best.low, best.high]
            same([alone[end] for end in ("value", "low", "high")], ends)
            compared += 1
    assert compared > 40


def test_rules_and_their_ranges(settings, found):
    for setting, at in zip(settings, found, strict=True):
        rules = {one["name"]: one for one in at["advice"]["rules"]}
        for name in rules.keys() & RULES.keys():
            expected = RULES[name](Setting(*setting))
            same(rules[name]["batchTokens"], expected.batch_tokens)
            same(rules[name]["lr"], expected.lr)
            assert rules[name]["inRange"] == (not RULES[name].outside(Setting(*setting)))
    shown = {name for name, rule in RULES.items() if rule.batch and not rule.needs}
    assert rules.keys() - RULES.keys() == {TABLE, EUROLLM} and shown <= rules.keys()


def test_scaled_learning_rates(found):
    reference = Hyperparameters(1.0, lr=3e-4)
    scaled = {one["name"]: one["lr"] for one in found[0]["rates"]}
    assert {"sqrt", "linear"} <= scaled.keys()
    for name, lr in scaled.items():
        same(lr, SCALINGS[name](reference, Change(4.0)).lr)


def test_ramps_follow_the_optimum_of_every_budget(settings, found):
    constants, sources = calibration()
    several = 0
    for (params, _, seq_len), at in zip(settings, found, strict=True):
        if not at["advice"]["sequences"]:
            continue
        schedule = BatchSchedule(*zip(*at["stages"], strict=True))
        for start, (one, two) in zip(
            schedule.starts[1:], itertools.pairwise(schedule.batches), strict=True
        ):
            assert two == 2 * one
            ends = (Setting(params, start * factor, seq_len) for factor in (0.99, 1.01))
            before, after = (pool(sources, end, constants).batch.value / seq_len for end in ends)
            assert before < one * 2**0.5 < after
            several += 1
        assert schedule.batches[-1] == pytest.approx(at["advice"]["sequences"], rel=0.13)
    assert several > 100


def test_ramps_in_the_notation_of_trainers(settings, found):
    for (_, tokens, seq_len), at in zip(settings, found, strict=True):
        schedule, texts = BatchSchedule(*zip(*at["stages"], strict=True)), at["texts"]
        plan = resolve(schedule, tokens, seq_len)
        assert texts["bss"] == str(schedule)
        assert texts["Megatron-LM"] in export(plan, "megatron")
        assert texts["Levanter"] in export(plan, "levanter")
        assert texts["Python lists"] in functions(plan)
