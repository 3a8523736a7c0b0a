"""Forecasts of the law of loss curves: their intervals, readings, and what was not tested."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from bss.laws.functional.curves import stack
from bss.laws.functional.forecast import along, forecast, last_losses, untested
from bss.laws.functional.forecast import tested as what_was_tested
from bss.laws.functional.paths import plan_path
from bss.laws.functional.values import law_losses
from bss.schedules.batch import BatchSchedule

RATE = 4e-3


@pytest.fixture
def curves(planted_curves):
    """Makes the curves of schedules over the planted tokens, read at their end."""

    def make(*texts, tokens=planted_curves.tokens, rate=RATE):
        paths = [
            plan_path(BatchSchedule.parse(text, total=tokens), tokens, 64, rate, np.array([tokens]))
            for text in texts
        ]
        return stack(paths, 64)

    return make


def test_without_draws_the_interval_is_the_error_of_left_out_runs(planted_curves, curves):
    fit = dataclasses.replace(
        planted_curves.fit, rmse=0.5, left_out_rmse={"sgd": 0.01}, runs=5, level=0.9
    )
    value, low, high = forecast(fit, curves("1", "0:1 50%:8"))
    np.testing.assert_allclose(value, law_losses(fit.law, curves("1", "0:1 50%:8")))
    half = 0.01 * stats.t.ppf(0.95, 4)
    np.testing.assert_allclose(np.log(high / value), half, rtol=0.05)
    np.testing.assert_allclose(np.log(low / value), -half, rtol=0.05)
    first = last_losses(fit, curves("1"))[0]
    assert (first.value, first.level) == (pytest.approx(value[0, 0]), 0.9)
    seen = dataclasses.replace(fit, left_out_rmse={}, rmse=0.02, runs=1)
    _, _, wide = forecast(seen, curves("1"))
    assert np.log(wide[0, 0] / value[0, 0]) == pytest.approx(0.02 * stats.t.ppf(0.95, 1), rel=0.15)


def test_an_interval_holds_its_estimate_and_the_draws(planted_curves, curves):
    law = planted_curves.law
    draws = tuple(tuple(law._replace(L_0=law.L_0 + x)) for x in (0.05, 0.1))
    fit = dataclasses.replace(planted_curves.fit, draws=draws, rmse=0.0, level=0.9)
    value, low, high = forecast(fit, curves("2"))
    assert low[0, 0] == value[0, 0]
    assert high[0, 0] == pytest.approx(value[0, 0] + 0.1)


def test_readings_are_denser_where_a_piece_begins(planted_curves, curves):
    both = curves("4", "0:1 50%:8")
    read, tokens = along(both)
    whole = planted_curves.tokens
    steps = whole // (4 * 64)
    ends = [part * steps * 4 * 64 for part in (0.03, 0.1, 0.3, 1.0)]
    last = tokens[0][tokens[0] > 0]
    assert last[-1] == pytest.approx(whole, abs=4 * 64)
    ramp = tokens[1][tokens[1] > 0]
    assert (np.diff(ramp) > 0).all() and ramp[-1] == pytest.approx(whole, abs=512)
    if len(last) == 4:
        np.testing.assert_allclose(last, ends)
    assert read.readings.part.shape == tokens.shape
    assert {*read.readings.part[0]} == {0.03, 0.1, 0.3, 1.0}


@pytest.mark.parametrize(
    ("text", "settings", "says"),
    [
        ("4", {}, []),
        ("4", {"tokens": 1_600_000}, []),
        ("4", {"tokens": 1_590_000}, ["tokens 1.26 times the longest run"]),
        ("20", {}, []),
        ("21", {}, ["batch 21 is 1.31 times the largest measured"]),
        ("1", {"batches": (1.25, 16.0)}, []),
        ("1", {"batches": (1.26, 16.0)}, ["batch 1 is 0.794 times the smallest measured"]),
        ("4", {"rates": (1e-3, 3.21e-3)}, []),
        ("4", {"rates": (1e-3, 3.1e-3)}, ["lr 0.004 is 1.29 times the largest measured"]),
        ("4", {"rates": (5.1e-3, 6e-3)}, ["lr 0.004 is 0.784 times the smallest measured"]),
        ("4", {"since": 2_000_000}, ["the fit is of losses after 2M tokens"]),
    ],
)
def test_what_is_a_quarter_beyond_what_was_measured_is_told(
    planted_curves, curves, text, settings, says
):
    fit = dataclasses.replace(planted_curves.fit, **settings)
    (told,) = untested(fit, curves(text))
    assert [*told] == says


def test_a_rate_that_falls_further_than_any_did_is_told(planted_curves, curves):
    def falling(to):
        tokens = planted_curves.tokens
        return curves("4", rate=lambda at: RATE * (1 - (1 - to) * np.asarray(at) / tokens))

    fit = dataclasses.replace(planted_curves.fit, lowest=0.5)
    (told,) = untested(fit, falling(0.3))
    assert len(told) == 1 and told[0].endswith("of its peak, measured to 0.5")
    assert untested(fit, falling(0.45))[0] == ()
    to_zero = dataclasses.replace(fit, lowest=0.12)
    assert untested(to_zero, falling(0.0))[0] == ()  # below a tenth, all is zero


def test_what_was_tested_is_ready_for_json(planted_curves):
    fit = dataclasses.replace(planted_curves.fit, since=7, left_out_rmse={"sgd": 0.1}, runs=3)
    told = what_was_tested(fit)
    assert told["tokens"] == {"low": 7, "high": planted_curves.tokens}
    assert told["batch"] == {"low": 1.0, "high": 16.0}
    assert (told["left_out_rmse"], told["runs"], told["rate_falls_to"]) == (0.1, 3, fit.lowest)
