"""Predictions of fitted laws E(S) that are known by hand: tokens, losses and best batches."""

import json
from dataclasses import replace

import numpy as np
import pytest

from bss.errors import InputError
from bss.laws.base import BestBatch, Estimate
from bss.laws.es.predict import best, lack_of_fit, reach
from bss.laws.es.values import (
    ASKED,
    AVERAGED,
    NONE_CHOSEN,
    Comparison,
    EsFit,
    OutlierRun,
    predicted_loss,
    tokens_to_target,
)
from bss.laws.resampling import RunEffects
from tests.laws.es.known import HYPERBOLAS, SEQ_LEN, hyperbola_fit, surface_fit, target_fit

BATCH = 16.0


def tokens(loss, batch=BATCH):
    E_min, S_min = HYPERBOLAS[loss]
    return (E_min + S_min * batch) * SEQ_LEN


def test_the_scatter_of_runs_is_weighed_by_its_freedom():
    scatter = (RunEffects(0.3, 0.4, 2.0, 9.0), RunEffects(0.0, 0.1, 6.0, 1.0))
    error, freedom = lack_of_fit(replace(hyperbola_fit(), scatter=scatter))
    assert (error, freedom) == (pytest.approx(((2 * 0.25 + 6 * 0.01) / 8) ** 0.5), 8.0)


def test_tokens_to_a_target_between_targets_are_on_a_line_in_the_loss():
    fit = hyperbola_fit()
    for loss in HYPERBOLAS:
        assert tokens_to_target(fit, [BATCH], loss)[0] == pytest.approx(tokens(loss))
        assert reach(fit, loss, BATCH)["tokens"].value == pytest.approx(tokens(loss))
    middle = reach(fit, 1.9, BATCH)
    assert middle["tokens"].value == pytest.approx((tokens(2.0) * tokens(1.8)) ** 0.5)
    ratio = pytest.approx((tokens(2.0) * tokens(1.8)) ** 0.5 / BATCH / SEQ_LEN)
    assert middle["steps"].value == ratio
    beyond = reach(fit, 2.1, BATCH)["tokens"].value
    assert beyond == pytest.approx(tokens(2.0) ** 1.5 / tokens(1.8) ** 0.5)


def test_best_batches_between_targets_are_on_a_line_in_the_loss():
    fit = hyperbola_fit()
    assert best(fit, 1.8)["B_opt"] == fit.fits[1].best
    between = best(fit, 1.85)
    assert [*between] == ["B_crit", "B_opt", "E_min"]
    assert between["B_opt"].value == pytest.approx(25**0.75 * 20**0.25)
    assert between["B_opt"].low == pytest.approx(18.75**0.75 * 15**0.25)
    E_min = between["E_min"].value
    assert E_min == pytest.approx((2e4**0.75 * 9e3**0.25) * SEQ_LEN)
    assert between["B_crit"].high is None and between["B_crit"].low is not None
    far = best(fit, 1.0)
    # Beyond the outer targets ends may cross; an estimate lies in its interval all the same.
    for at in (*far.values(), *best(fit, 2.2).values()):
        assert (at.low or 0) <= (at.value or 0) <= (at.high or np.inf)


def test_a_batch_that_a_near_target_does_not_tell_is_not_told_between():
    none = BestBatch(None, 5.0, None, status="end", note="unidentified: at an end")
    first, second, third = hyperbola_fit().fits
    fit = replace(hyperbola_fit(), fits=(first, replace(second, batches={"B_opt": none}), third))
    assert best(fit, 1.95)["B_opt"] == none and set(best(fit, 1.95)) == {"B_opt", "E_min"}
    assert best(replace(fit, fits=(first,)), 1.1)["B_opt"] == first.best
    why = "unidentified: 2 batches reach this loss"
    lost = replace(second, status=why, intervals={}, batches={"B_opt": none}, measured=none)
    with pytest.raises(InputError, match=r"loss: 1.8 is unidentified: 2 batches reach this loss"):
        best(replace(fit, fits=(lost,)), 1.8)
    by_runs = replace(lost, measured=first.measured, batches={"B_crit": first.batches["B_crit"]})
    assert set(best(replace(fit, fits=(by_runs,)), 1.8)) == {"B_crit"}
    assert best(replace(fit, fits=(replace(lost, status="converged"),)), 1.8)["B_opt"] == none
    measured = replace(lost, intervals={"E_min": Estimate(1.0)})
    assert best(replace(fit, fits=(measured,)), 1.8)["E_min"].value == 1.0


def test_losses_of_a_law_per_target_are_on_a_line_in_log_tokens():
    fit = hyperbola_fit()
    for loss in HYPERBOLAS:
        assert predicted_loss(fit, round(tokens(loss)), BATCH) == pytest.approx(loss, abs=1e-6)
    middle = round((tokens(2.0) * tokens(1.8)) ** 0.5)
    assert predicted_loss(fit, middle, BATCH) == pytest.approx(1.9, abs=1e-6)
    beyond = round(tokens(1.6) ** 2 / tokens(1.8))
    assert predicted_loss(fit, beyond, BATCH) == pytest.approx(1.4, abs=1e-6)
    before = round(tokens(2.0) ** 2 / tokens(1.8))
    assert predicted_loss(fit, before, BATCH) == pytest.approx(2.2, abs=1e-6)
    one = replace(fit, fits=fit.fits[:1])
    assert predicted_loss(one, round(2 * tokens(2.0)), BATCH) == pytest.approx(2 - np.log(2))
    assert predicted_loss(one, 1, BATCH) > 2
    joint = predicted_loss(surface_fit(), 10**6, BATCH)
    assert joint == pytest.approx(1.2 + 10 * (10**6 / BATCH / SEQ_LEN) ** -0.35 + 2.6 / BATCH)
    mean = predicted_loss(surface_fit(level_with=(fit,)), 10**6, BATCH)
    assert mean == pytest.approx((joint + predicted_loss(fit, 10**6, BATCH)) / 2)
    for count in (0, -1):
        with pytest.raises(InputError, match=f"tokens: {count} given"):
            predicted_loss(fit, count, BATCH)
    lost = replace(fit, fits=(target_fit(2.0, parameters={}),))
    with pytest.raises(InputError, match="hyperbola law is unidentified at every target; add bat"):
        predicted_loss(lost, 10**6, BATCH)


def test_a_run_that_does_not_fit_is_told_in_a_line():
    run = OutlierRun("b8s1", 8.0, 2.2, -0.1234, 9.6, 1.25)
    assert str(run) == (
        "run b8s1, batch 8: 0.123 below the others in log tokens to 2.2, 10 times the scatter; "
        "without it B_opt moves by +25% (--drop 'run=b8s1')"
    )
    above = str(replace(run, off=0.05, moves=None))
    assert "0.050 above the others" in above and "B_opt" not in above


def test_a_fit_is_named_and_has_an_error_by_how_its_law_was_chosen():
    table = ({"law": "surface", "interior_log_E": 0.03}, {"law": "other", "interior_log_E": 0.01})
    comparison = Comparison(table, "surface", ("surface",), 0.07, ())
    fit = surface_fit()
    assert (fit.name, fit.law_name, fit.error, fit.choice) == ("surface", "surface", None, ASKED)
    assert replace(fit, comparison=comparison).error == 0.03
    both = replace(fit, comparison=comparison, choice=AVERAGED, level_with=(hyperbola_fit(),))
    assert (both.name, both.error) == ("surface + hyperbola", 0.07)
    assert both.averaged == (both, hyperbola_fit())
    assert replace(fit, choice=NONE_CHOSEN).name == "no"
    assert fit.at(2.0 * (1 + 1e-6)) is fit.fits[0]
    with pytest.raises(
        InputError, match=r"target_loss: 2.01 was not fitted; choose one of 2, 1.8,"
    ):
        fit.at(2.01)
    assert fit.parameters(1.7).a == 10.0 and hyperbola_fit().parameters(1.8).E_min == 2e4
    lost = replace(fit, joint=None)
    with pytest.raises(InputError, match=r"target_loss: the surface law is unidentified at 1.7"):
        lost.parameters(1.7)


def test_fits_are_read_back_from_json_with_a_key_for_each_batch():
    fit = hyperbola_fit(version="1")
    entry = fit.to_dict()
    assert set(entry["fits"][0]) >= {"B_crit", "B_opt", "measured", "intervals"}
    assert "batches" not in entry["fits"][0] and entry["schema"] == 3
    assert EsFit.from_dict(json.loads(json.dumps(entry, allow_nan=False))) == fit
    assert target_fit(2.0).best == target_fit(2.0).measured
    assert target_fit(2.0, batches={"B_opt": Estimate(3.0)}).best is None
