"""Soonest and cheapest batch sizes against closed forms and planted laws."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.laws import fit_es
from bss.laws.base import Options
from bss.laws.es import LAWS
from bss.laws.step_time import StepTime, best_batches, token_draws
from tests.planted import hyperbola, hyperbola_at, planted_points, surface

TARGET = 2.0
HYPERBOLA = LAWS["hyperbola"]


@pytest.fixture(scope="module")
def fit():
    points = planted_points(
        lambda batch, loss: HYPERBOLA.sequences(hyperbola_at(loss), batch), seeds=3
    )
    return fit_es(points, "hyperbola", options=Options(100, draws=100))


def rows(fit, step_time, price=1.0):
    return best_batches(fit, TARGET, step_time, price).set_index("criterion")


@pytest.mark.parametrize("text", ["0.1 + 0.01*B", "100ms + 10ms*B", "1e5us+1e4us * B"])
def test_the_soonest_batch_of_a_hyperbola_is_that_of_the_formula(fit, text):
    found = rows(fit, StepTime.parse(text)).loc["time"]
    law = hyperbola_at(TARGET)
    critical = law.E_min / law.S_min
    expected = math.sqrt(critical * 10)
    assert found["batch"] == pytest.approx(expected, rel=0.1)
    assert found["low"] / 1.02 <= expected <= found["high"] * 1.02  # grid and seeds
    fitted = fit.parameters(TARGET)
    exact = math.sqrt(float(fitted.E_min / fitted.S_min) * 10)
    assert found["batch"] == pytest.approx(exact, rel=0.01)
    steps = float(fit.tokens(found["batch"], TARGET)[0]) / (found["batch"] * fit.seq_len)
    assert found["hours"] == pytest.approx(steps * (0.1 + 0.01 * found["batch"]) / 3600, rel=1e-6)


def test_fewest_tokens_are_at_the_smallest_batch_of_a_hyperbola(fit):
    found = rows(fit, StepTime.parse("0.1 + 0.01*B")).loc["tokens"]
    assert found["batch"] == min(fit.batches) and found["at_boundary"]


def test_cost_counts_devices_and_price(fit):
    batch = np.array([2, 8, 32, 128])
    devices = np.array([1, 2, 8, 32])
    table = pd.DataFrame({"batch": batch, "seconds": 0.2 + 0.001 * batch, "devices": devices})
    found, dearer = (rows(fit, StepTime.from_table(table), price) for price in (1.0, 3.0))
    assert found.loc["cost", "batch"] < found.loc["time", "batch"]
    assert dearer.loc["cost", "cost"] == pytest.approx(3 * found.loc["cost", "cost"])
    same = rows(fit, StepTime.from_table(table.drop(columns="devices")))
    assert same.loc["cost", "batch"] == same.loc["time", "batch"]


def test_the_first_column_of_the_draws_is_the_fit(fit):
    batch = np.array([3.0, 17.0])
    draws = token_draws(fit, batch, TARGET)
    assert draws.shape == (2, 101)
    np.testing.assert_allclose(draws[:, 0], fit.tokens(batch, TARGET), rtol=1e-9)


def fit_to_surface(law):
    points = planted_points(
        surface(), targets=(2.4, TARGET), batches=(2, 4, 8, 16, 32, 64, 128, 256)
    )
    return fit_es(points, law, options=Options(20, draws=20))


@pytest.mark.slow
@pytest.mark.parametrize("law", ["hyperbola", "surface"])
def test_a_draw_is_the_law_at_the_parameters_of_one_refit(law):
    fit = fit_to_surface(law)
    batch = np.array([17.0, 90.0])
    draws = fit.token_draws(batch, TARGET)
    assert draws.shape == (2, 20) and np.ptp(draws, axis=1).min() > 0
    for k in (0, 19):
        if fit.law.joint:
            one = replace(fit, joint={name: x[k] for name, x in fit.draws.items()})
        else:
            at = fit.at(TARGET)
            at = replace(at, parameters={name: x[k] for name, x in at.draws.items()})
            one = replace(fit, fits=(at,))
        np.testing.assert_allclose(draws[:, k], one.tokens(batch, TARGET), rtol=1e-12)


def test_a_loss_that_a_batch_never_reaches_takes_infinite_tokens():
    fit = fit_to_surface("surface")
    assert np.isinf(fit.token_draws(np.array([3.0]), TARGET)).all()


def test_a_fit_without_refits_has_no_interval():
    points = planted_points(surface(), batches=(2, 4, 8, 16, 32, 64))
    found = rows(fit_es(points, "hyperbola", options=Options(20)), StepTime.parse("0.1 + 0.01*B"))
    assert found.loc[["time", "cost"], "low"].isna().all() and found["batch"].notna().all()


def test_several_rows_of_a_batch_count_with_their_median():
    table = pd.DataFrame({"batch": [4, 4, 4, 8, 8], "seconds": [0.1, 0.1, 9.0, 0.3, 0.1]})
    assert StepTime.from_table(table).seconds == (0.1, 0.2)


@pytest.mark.parametrize(
    "text", ["", "fast", "0.1", "0.1 + 0.01", "1ms + 0.01*B", "-1 + 0.1*B", "0 + 0*B"]
)
def test_text_that_is_no_formula_is_refused(text):
    with pytest.raises(InputError, match="step_time"):
        StepTime.parse(text)


@pytest.mark.parametrize(
    "columns",
    [
        {"batch": [1, 2]},
        {"seconds": [1, 2]},
        {"batch": [1, 2], "seconds": [2.0, 1.0]},
        {"batch": [1, 2], "seconds": [1.0, math.nan]},
        {"batch": [1, 2], "seconds": [1.0, "2 ms"]},
        {"batch": [1, 1], "seconds": [1.0, 1.0]},
        {"batch": [-1, 2], "seconds": [1.0, 1.0]},
    ],
)
def test_a_table_that_is_no_step_time_is_refused(columns):
    with pytest.raises(InputError, match=r"table\.csv"):
        StepTime.from_table(pd.DataFrame(columns), "table.csv")


def test_step_times_outside_the_batches_measured_are_refused(fit):
    table = pd.DataFrame({"batch": [512, 1024], "seconds": [1.0, 2.0]})
    with pytest.raises(InputError, match="step_time"):
        best_batches(fit, TARGET, StepTime.from_table(table))


def test_without_a_law_tokens_follow_a_parabola_through_the_means():
    points = planted_points(hyperbola, targets=(TARGET,), batches=(16, 32, 48, 64), seeds=8)
    fit = fit_es(points, options=Options(10))
    assert fit.choice == "unselected" and not fit.at(TARGET).parameters
    found = rows(fit, StepTime.parse("0.3 + 0.01*B")).loc["time"]
    law = hyperbola_at(TARGET)
    true = math.sqrt(law.E_min / law.S_min * 30)
    assert found["batch"] == pytest.approx(true, rel=0.1)
    assert found["low"] < found["batch"] < found["high"]
    assert found["low"] < true < found["high"]  # it holds the hyperbola's, too
    again = type(fit).from_dict(fit.to_dict())
    assert rows(again, StepTime.parse("0.3 + 0.01*B")).loc["time", "batch"] == found["batch"]


def test_times_of_runs_are_per_step_or_since_the_start():
    runs = pd.DataFrame({"run": list("aaabbb"), "batch": [8] * 3 + [16] * 3, "step": [1, 3, 5] * 2})
    each = [0.2] * 3 + [0.5] * 3
    for column, values in (("step_time", each), ("seconds", np.array(each) * runs["step"] + 7)):
        found = StepTime.from_runs(runs.assign(**{column: values}), devices=2)
        assert found.batches == (8, 16) and found.devices_at(np.array([9.0])) == 2
        assert found.seconds == pytest.approx((0.2, 0.5))
    with pytest.raises(InputError, match="step_time"):
        StepTime.from_runs(runs)


def test_noise_in_times_is_no_fall():
    table = pd.DataFrame({"batch": [4, 8, 16], "seconds": [1.0, 0.98, 1.5]})
    assert StepTime.from_table(table).seconds == (1.0, 1.0, 1.5)


LAWS_OF_SETS = {"hyperbola": hyperbola, "surface": surface()}
SIZES = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)


@pytest.mark.slow
def test_soonest_batches_are_near_and_intervals_hold_in_48_planted_sets():
    """12 of each law and step time; the level is 0.9, and the ends are 2.3 standard errors off."""
    near = held = 0
    for k in range(48):
        law = [*LAWS_OF_SETS][k % 2]
        step_time = StepTime.parse(("0.1 + 0.01*B", "0.3 + 0.01*B")[k // 2 % 2])
        planted = LAWS_OF_SETS[law]
        grid = np.geomspace(SIZES[0], SIZES[-1], 2000)
        steps = np.array([float(planted(batch, TARGET)) for batch in grid]) / grid
        true = grid[np.argmin(steps * step_time(grid))]
        generator = np.random.default_rng(k)
        targets = (2.4, TARGET) if law == "surface" else (TARGET,)
        points = planted_points(planted, batches=SIZES, targets=targets, generator=generator)
        fit = fit_es(points, law, options=Options(60, seed=k, draws=60))
        found = rows(fit, step_time).loc["time"]
        near += abs(math.log(found["batch"] / true)) <= math.log(1.3)
        held += found["low"] <= true <= found["high"]
    assert near >= 44 and 39 <= held <= 47, (near, held)
