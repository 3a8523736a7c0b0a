"""Predictions of fitted laws E(S) that are known by hand: tokens, losses and best batches."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.laws.base import BestBatch, Estimate
from bss.laws.es.values import (
    CROSS_VALIDATED,
    REQUESTED,
    UNSELECTED,
    Comparison,
    EsFit,
)
from bss.laws.resampling import RunEffects
from tests.laws.es.known import HYPERBOLAS, SEQ_LEN, hyperbola_fit, surface_fit, target_fit

BATCH = 16.0


def tokens(loss, batch=BATCH):
    E_min, S_min = HYPERBOLAS[loss]
    return (E_min + S_min * batch) * SEQ_LEN


def test_the_scatter_of_runs_is_weighed_by_its_freedom():
    scatter = (RunEffects(0.3, 0.4, 2.0, 9.0), RunEffects(0.0, 0.1, 6.0, 1.0))
    error, freedom = replace(hyperbola_fit(), scatter=scatter).lack_of_fit
    assert (error, freedom) == (pytest.approx(((2 * 0.25 + 6 * 0.01) / 8) ** 0.5), 8.0)


def test_tokens_to_a_target_between_targets_are_on_a_line_in_the_loss():
    fit = hyperbola_fit()
    for loss in HYPERBOLAS:
        assert fit.tokens([BATCH], loss)[0] == pytest.approx(tokens(loss))
    table = pd.DataFrame({"batch": BATCH, "target_loss": [2.0, 1.9, 2.1]}, index=[5, 6, 7])
    found = fit.predict(table)
    middle = (tokens(2.0) * tokens(1.8)) ** 0.5
    beyond = tokens(2.0) ** 1.5 / tokens(1.8) ** 0.5
    assert found["tokens"].tolist() == pytest.approx([tokens(2.0), middle, beyond])
    assert found["steps"].tolist() == pytest.approx((found["tokens"] / BATCH / SEQ_LEN).tolist())
    assert (found["tokens_low"] <= found["tokens"]).all() and (
        found["tokens_high"] >= found["tokens"]
    ).all()
    assert found.index.tolist() == [5, 6, 7]
    assert found["note"].tolist() == ["", "", "loss 2.1: outside the measured 1.6 to 2"]
    bare = replace(fit, fits=tuple(replace(at, draws={}) for at in fit.fits)).predict(table)
    assert bare["tokens_low"].isna().all() and bare["note"].str.startswith("no interval").all()


def test_best_batches_between_targets_are_on_a_line_in_the_loss():
    fit = hyperbola_fit()
    assert fit.best_batches(1.8)["B_opt"] == fit.fits[1].best
    between = fit.best_batches(1.85)
    assert [*between] == ["B_crit", "B_opt", "E_min"]
    assert between["B_opt"].value == pytest.approx(25**0.75 * 20**0.25)
    assert between["B_opt"].low == pytest.approx(18.75**0.75 * 15**0.25)
    E_min = between["E_min"].value
    assert E_min == pytest.approx((2e4**0.75 * 9e3**0.25) * SEQ_LEN)
    assert between["B_crit"].high is None and between["B_crit"].low is not None
    far = fit.best_batches(1.0)
    # Beyond the outer targets ends may cross; an estimate lies in its interval all the same.
    for at in (*far.values(), *fit.best_batches(2.2).values()):
        assert (at.low or 0) <= (at.value or 0) <= (at.high or np.inf)


def test_a_batch_that_a_near_target_does_not_tell_is_not_told_between():
    none = BestBatch(None, 5.0, None, status="end", note="unidentified: at an end")
    first, second, third = hyperbola_fit().fits
    fit = replace(hyperbola_fit(), fits=(first, replace(second, batches={"B_opt": none}), third))
    assert fit.best_batches(1.95)["B_opt"] == none and set(fit.best_batches(1.95)) == {
        "B_opt",
        "E_min",
    }
    assert replace(fit, fits=(first,)).best_batches(1.1)["B_opt"] == first.best
    why = "unidentified: 2 batches reach this loss"
    lost = replace(second, status=why, intervals={}, batches={"B_opt": none}, measured=none)
    with pytest.raises(InputError, match=r"loss: 1.8 is unidentified: 2 batches reach this loss"):
        replace(fit, fits=(lost,)).best_batches(1.8)
    by_runs = replace(lost, measured=first.measured, batches={"B_crit": first.batches["B_crit"]})
    assert set(replace(fit, fits=(by_runs,)).best_batches(1.8)) == {"B_crit"}
    assert replace(fit, fits=(replace(lost, status="converged"),)).best_batch(1.8) == none
    measured = replace(lost, intervals={"E_min": Estimate(1.0)})
    assert replace(fit, fits=(measured,)).best_batches(1.8)["E_min"].value == 1.0


def test_losses_of_a_law_per_target_are_on_a_line_in_log_tokens():
    fit = hyperbola_fit()
    for loss in HYPERBOLAS:
        assert fit.losses(BATCH, round(tokens(loss)))[0] == pytest.approx(loss, abs=1e-6)
    middle = round((tokens(2.0) * tokens(1.8)) ** 0.5)
    assert fit.losses(BATCH, middle)[0] == pytest.approx(1.9, abs=1e-6)
    beyond = round(tokens(1.6) ** 2 / tokens(1.8))
    assert fit.losses(BATCH, beyond)[0] == pytest.approx(1.4, abs=1e-6)
    before = round(tokens(2.0) ** 2 / tokens(1.8))
    assert fit.losses(BATCH, before)[0] == pytest.approx(2.2, abs=1e-6)
    one = replace(fit, fits=fit.fits[:1])
    assert one.losses(BATCH, round(2 * tokens(2.0)))[0] == pytest.approx(2 - np.log(2))
    assert one.losses(BATCH, 1)[0] > 2
    joint = surface_fit().losses(BATCH, 10**6)[0]
    assert joint == pytest.approx(1.2 + 10 * (10**6 / BATCH / SEQ_LEN) ** -0.35 + 2.6 / BATCH)
    for count in (0, -1):
        with pytest.raises(InputError, match=f"tokens: {count} given"):
            fit.losses(BATCH, count)[0]
    lost = replace(fit, fits=(target_fit(2.0, parameters={}),))
    with pytest.raises(InputError, match="hyperbola law is unidentified at every target; add bat"):
        lost.losses(BATCH, 10**6)[0]


def test_a_fit_is_named_and_has_an_error_by_how_its_law_was_chosen():
    table = ({"law": "surface", "interior_log_E": 0.03}, {"law": "other", "interior_log_E": 0.01})
    comparison = Comparison(table, "surface")
    fit = surface_fit()
    assert (fit.law_name, fit.cv_error, fit.choice) == ("surface", None, REQUESTED)
    chosen = replace(fit, comparison=comparison, choice=CROSS_VALIDATED)
    assert (chosen.law_name, chosen.cv_error) == ("surface", 0.03)
    assert replace(fit, choice=UNSELECTED).law_name == "measured"
    assert fit.at(2.0 * (1 + 1e-6)) is fit.fits[0]
    with pytest.raises(
        InputError, match=r"target_loss: 2.01 was not fitted; choose one of 2, 1.8,"
    ):
        fit.at(2.01)
    assert fit.parameters(1.7).a == 10.0 and hyperbola_fit().parameters(1.8).E_min == 2e4
    lost = replace(fit, joint=None)
    with pytest.raises(InputError, match=r"target_loss: the surface law is unidentified at 1.7"):
        lost.parameters(1.7)


def test_a_summary_has_a_row_per_target_and_residuals_one_per_point():
    columns = {"run": ("a", "b"), "batch": (8.0, 16.0), "target_loss": (2.0, 1.8)}
    columns |= {"relative_loss": (0.01, 0.0), "steps": (100.0, 200.0)}
    columns |= {"measured": (2e5, 4e5), "fitted": (1e5, math.nan)}
    fit = hyperbola_fit(rows=columns)
    table = fit.summary()
    assert table["target_loss"].tolist() == [*HYPERBOLAS]
    assert table.loc[0, ["B_opt", "low"]].tolist() == [20.0, 15.0]
    assert table.loc[0, "E_min"] == 9e3 * SEQ_LEN and set(table["status"]) == {"ok"}
    found = fit.residuals()
    assert {*fit.RESIDUAL_AXES, "run", "measured", "fitted", "residual"} <= {*found}
    assert found["residual"][0] == pytest.approx(np.log(2)) and np.isnan(found["residual"][1])
    assert found["log_batch_over_best"].tolist() == pytest.approx(np.log([8 / 20, 16 / 25]))


def test_fits_are_read_back_from_json_with_a_key_for_each_batch():
    fit = hyperbola_fit(version="1", batches=(1.0, 4.0))
    entry = fit.to_dict()
    assert set(entry["fits"][0]) >= {"B_crit", "B_opt", "measured", "intervals"}
    assert "batches" not in entry["fits"][0] and entry["schema"] == 5
    assert EsFit.from_dict(json.loads(json.dumps(entry, allow_nan=False))) == fit
    assert target_fit(2.0).best == target_fit(2.0).measured
    assert target_fit(2.0, batches={"B_crit": Estimate(3.0)}).best == target_fit(2.0).measured
