"""Forecasts of the law of loss curves: their intervals, readings, and what was not tested."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.laws import planted_schedules
from benchmarks.laws.__main__ import measures, schedules
from bss.errors import InputError
from bss.laws import fit_curve, predict_schedule
from bss.laws.base import Options
from bss.laws.functional.data import curves_of, plan_path, stack
from bss.laws.functional.law import law_losses
from bss.laws.functional.values import forecast, last_losses, untested
from bss.schedules.batch import BatchSchedule
from bss.theory.regression import Task, stable_rate

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
        planted_curves.fit, rmse=0.5, cv_errors={"sgd": 0.01}, runs=5, level=0.9
    )
    value, low, high = forecast(fit, curves("1", "0:1 50%:8"))
    np.testing.assert_allclose(value, law_losses(fit.law, curves("1", "0:1 50%:8")))
    half = 0.01 * stats.t.ppf(0.95, 4)
    np.testing.assert_allclose(np.log(high / value), half, rtol=0.05)
    np.testing.assert_allclose(np.log(low / value), -half, rtol=0.05)
    first = last_losses(fit, curves("1"))[0]
    assert (first.value, first.level) == (pytest.approx(value[0, 0]), 0.9)
    seen = dataclasses.replace(fit, cv_errors={}, rmse=0.02, runs=1)
    _, _, wide = forecast(seen, curves("1"))
    assert np.log(wide[0, 0] / value[0, 0]) == pytest.approx(0.02 * stats.t.ppf(0.95, 1), rel=0.15)


def test_the_interval_of_what_no_run_had_is_wider(planted_curves, curves):
    known = {"cv_errors": {"sgd": 0.01}, "runs": 5, "max_lr_over_batch": RATE}
    known |= {"budgets": (planted_curves.tokens,), "peak_lrs": (RATE,)}
    fit = dataclasses.replace(planted_curves.fit, **known)

    def width(*texts, **changes):
        _, low, high = forecast(fit, curves(*texts, **changes))
        return np.log(high / low)[0, 0]

    seen = width("1")
    assert width("1", tokens=3 * planted_curves.tokens) == pytest.approx(1.25 * seen)
    several = dataclasses.replace(fit, peak_lrs=(RATE, RATE / 4))
    fit, one_peak = several, fit
    assert width("1", rate=RATE * 1.1) == pytest.approx(seen)
    for rate in (RATE * 1.5, RATE / 1.5):
        assert width("1", rate=rate) == pytest.approx(1.25 * seen)
    nearly_one = dataclasses.replace(fit, peak_lrs=(RATE, RATE / 1.1))
    assert not nearly_one.peaks_vary and not one_peak.peaks_vary and several.peaks_vary
    fit = one_peak
    assert seen < width("1", rate=RATE * 1.1) < width("1", rate=RATE * 1.5)
    assert 1.25 * seen < width("1", rate=RATE * 1.5) < width("1", rate=RATE * 3)


def test_where_p_is_unidentified_noise_grows_between_peaks_as_under_sgd(planted_curves, curves):
    """By the law with p = 1 that is equal at the fitted peak."""
    law = planted_curves.law
    wrong = law._replace(p=3.0, A_0=law.A_0 * RATE**-2, A_1=law.A_1 * RATE**-2)
    p = dataclasses.replace(planted_curves.fit.parameters["p"], value=None)
    changes = {"law": wrong, "draws": (), "peak_lrs": (RATE,)}
    changes |= {"parameters": planted_curves.fit.parameters | {"p": p}}
    fit = dataclasses.replace(planted_curves.fit, **changes)
    for rate in (RATE / 2, RATE, 2 * RATE):
        found = forecast(fit, curves("2", rate=rate))[0]
        np.testing.assert_allclose(found, law_losses(law, curves("2", rate=rate)))


def test_an_interval_holds_its_estimate_and_the_draws(planted_curves, curves):
    law = planted_curves.law
    draws = tuple(tuple(law._replace(L_0=law.L_0 + x)) for x in (0.05, 0.1))
    fit = dataclasses.replace(planted_curves.fit, draws=draws, rmse=0.0, level=0.9)
    value, low, high = forecast(fit, curves("2"))
    assert low[0, 0] == value[0, 0]
    assert high[0, 0] == pytest.approx(value[0, 0] + 0.1)


@pytest.mark.parametrize(
    ("text", "settings", "says"),
    [
        ("4", {}, []),
        ("4", {"tokens": 1_600_000}, []),
        ("4", {"tokens": 1_590_000}, ["tokens 2e+06 is 1.26 times the largest measured"]),
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

    fit = dataclasses.replace(planted_curves.fit, min_lr_over_peak=0.5)
    (told,) = untested(fit, falling(0.3))
    assert len(told) == 1 and told[0].endswith("of its peak, measured to 0.5")
    assert untested(fit, falling(0.45))[0] == ()
    to_zero = dataclasses.replace(fit, min_lr_over_peak=0.12)
    assert untested(to_zero, falling(0.0))[0] == ()  # below a tenth, all is zero


def test_the_library_answers_and_refuses_as_the_command_does(planted_curves, curves):
    fit, tokens = planted_curves.fit, planted_curves.tokens
    one = predict_schedule(fit, BatchSchedule.parse("4"), tokens, RATE)
    assert one == last_losses(fit, curves("4"))[0]
    far = BatchSchedule.parse("4"), 10 * tokens, RATE
    with pytest.raises(
        InputError, match=r"tested for: tokens 2e\+07 is 10 times the largest measured; ask within"
    ):
        predict_schedule(fit, *far)
    assert (predict_schedule(fit, *far, extrapolate=True).value or 9) < (one.value or 0)
    unlike = planted_curves.table(("128",))
    found = fit.predict(pd.concat([unlike, planted_curves.table(("4",))], ignore_index=True))
    assert found["note"].iloc[0].startswith("batch 128")
    assert found["note"].iloc[-1] == ""
    assert found["loss"].iloc[-1] == pytest.approx(one.value, rel=1e-6)
    assert (found["loss_low"] <= found["loss"]).all() and (
        found["loss"] <= found["loss_high"]
    ).all()
    lost = dataclasses.replace(fit, status="not converged")
    with pytest.raises(InputError, match="fit: it did not converge"):
        predict_schedule(lost, BatchSchedule.parse("4"), tokens, RATE, extrapolate=True)


@pytest.mark.slow
def test_intervals_hold_the_ends_of_schedules_by_another_law():
    """Of 36 a seed, the ends that `bss predict` answers; two seeds that no choice has seen."""
    told = [one for seed in (21, 23) for one in schedules(seed)]
    answered = [answer for kind, answer in told if kind != "noisier than measured"]
    assert len(answered) > 50
    assert 0.78 < dict(x[:2] for x in measures("schedules", answered))["coverage"] < 1
    new = [answer for kind, answer in told if kind.startswith("new")]
    assert len(new) > 20
    assert dict(x[:2] for x in measures("schedules", new))["coverage"] > 0.7


@pytest.mark.slow
def test_runs_of_one_loss_each_predict_other_ends():
    """By their whole paths: nothing is read of a run but its end."""
    rng, task = np.random.default_rng(3), Task(0.6, 2.0, 128, 1.0)
    peak = 0.2 * stable_rate(task, 2)
    more = [(b, "constant", 2.0, 0.5) for b in ("2", "16")] + [("8", "wsd", 1.0, 2.0)]
    more += [("0:2 80%:16", "constant", 1.0, 1.0), ("2", "wsd", 1.0, 0.5)]
    shapes = [*planted_schedules.PILOTS, *more]
    runs = pd.concat([planted_schedules.run(task, *one, peak, rng) for one in shapes])
    end = runs["tokens"] == runs.groupby("run")["tokens"].transform("max")
    fit = fit_curve(runs.assign(loss=runs["loss"].where(end)), options=Options(40))
    assert fit.identified
    assert fit.losses == fit.runs == len(shapes)
    unseen = [
        planted_schedules.run(task, batch, ending, *at, peak, rng, ends=True)
        for batch, ending in (("4", "cosine"), ("8", "wsd"), ("0:2 25%:4 75%:16", "constant"))
        for at in ((1.0, 1.0), (2.0, 1.0), (3.3, 0.5))
    ]
    table = pd.concat([one.assign(run=f"{i}") for i, one in enumerate(unseen)])
    told = last_losses(fit, curves_of(table, every_row=True))
    losses = table.groupby("run", sort=False)["measured"].last()
    held = [one.low <= loss <= one.high for one, loss in zip(told, losses, strict=True)]
    assert sum(held) >= 7
