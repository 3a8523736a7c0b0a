"""Decayed losses of ramps by E(S): equal losses are equal states."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import bss
from bss.cli import main
from bss.errors import InputError
from bss.laws import fit_from_dict
from bss.policies.fewest_steps import Sale
from bss.policies.forecast import EsForecast, why_not
from bss.policies.policy import Limits
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve
from tests.laws.es.known import SEQ_LEN, hyperbola_fit, surface_fit

TOKENS = 5_000_000
BATCHES = (2.0, 8.0, 32.0, 128.0)
KNOWN = {"batches": BATCHES, "lr_phase": "decayed"}


@pytest.fixture(params=[hyperbola_fit, surface_fit])
def fit(request):
    return request.param(**KNOWN)


def forecast(fit, *texts):
    schedules = [BatchSchedule.parse(text, total=TOKENS, seq_len=SEQ_LEN) for text in texts]
    return EsForecast(fit, TOKENS).losses(schedules)


def test_a_fixed_batch_has_the_loss_of_the_law(fit):
    found = forecast(fit, "8", "32", "0:8 30%:8 60%:8")
    assert found[:2] == pytest.approx(fit.losses(np.array([8.0, 32.0]), TOKENS), rel=2e-3)
    assert found[2] == pytest.approx(found[0], rel=1e-9)


def test_a_ramp_lies_between_its_batches_and_a_later_switch_nearer_to_the_first(fit):
    small, large, early, late = forecast(fit, "8", "64", "0:8 30%:64", "0:8 80%:64")
    assert small < late < early < large


def test_fewest_steps_within_the_tolerance_of_the_best_fixed_batch(fit):
    sale = Sale(fit, TOKENS, None, Limits(stages=2), 0.02)
    within = sale.losses <= sale.losses[sale.best] + 0.02
    assert sale.losses[sale.best] == sale.losses[sale.constant].min()
    assert sale.steps[sale.chosen] == sale.steps[within].min()
    assert resolve(sale.schedule, TOKENS, SEQ_LEN).steps == sale.steps[sale.chosen]
    fixed, ramp = sale.rows()
    assert ramp["steps"] <= fixed["steps"]
    for row in (fixed, ramp):
        for name in ("loss", "steps"):
            assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]


def test_it_is_the_default_of_decayed_losses_only(fit):
    assert fit.schedule(TOKENS).policy == "fewest-steps"
    constant = replace(fit, lr_phase="constant")
    assert why_not(constant, None) == "the losses of the fit are of LR phase constant, not decayed"
    with pytest.raises(InputError, match="fewest-steps: the losses of the fit are of LR phase"):
        constant.schedule(TOKENS, minimize="steps")


def test_the_phase_is_kept_and_unknown_in_older_files(fit):
    entry = fit.to_dict()
    assert fit_from_dict(entry).lr_phase == "decayed"
    del entry["lr_phase"]
    assert why_not(fit_from_dict(entry), None) == "the fit has no lr_phase; fit its points again"


def test_final_losses_predict_no_ramp_and_the_line_names_what_does(capsys):
    path = "bss/laws/published/steplaw_dense.json"
    assert "use loss curves (`bss fit curve`)" in why_not(bss.read_fit(path), None)
    ask = ["schedule", "--from", path, "--tokens", "20B", "--set", "params=1B"]
    assert main(ask) == 0
    told = "steps are not minimized: final losses are of whole runs at one batch size"
    assert told in capsys.readouterr().out
    assert main([*ask[:-2], "--minimize", "steps"]) == 2
    assert "--minimize steps: final losses are of whole runs" in capsys.readouterr().err


KAPPA = 40.0
"""Planted: a token of batch B is worth 1/(1 + B/KAPPA), so that equal losses are equal states."""


def planted_loss(worth):
    return 1.5 + (worth / 10_000) ** -0.3


@pytest.mark.slow  # a fit of E(S) and its refits
def test_a_fit_of_decayed_points_forecasts_the_planted_losses():
    noise = np.random.default_rng(0)
    rows = [
        {"target_loss": loss, "batch": batch, "seq_len": SEQ_LEN, "seed": seed,
         "lr_phase": "decayed",
         "steps": 10_000 * (loss - 1.5) ** (-1 / 0.3) * (1 + batch / KAPPA) / batch / SEQ_LEN
         * np.exp(0.005 * noise.standard_normal())}
        for loss in 1.5 + np.geomspace(0.6, 0.14, 10)
        for batch in (2, 4, 8, 16, 32, 64, 128)
        for seed in (0, 1)
    ]  # fmt: skip
    fit = bss.fit_es(pd.DataFrame(rows), law="hyperbola", resamples=60)
    assert fit.lr_phase == "decayed" and fit.schedule("2M").policy == "fewest-steps"
    sale = Sale(fit, 2_000_000, None, Limits(stages=3), 0.005)
    worth = [
        sum(
            (end - start) / (1 + batch / KAPPA)
            for start, end, batch in zip(
                one.starts, (*one.starts[1:], 2_000_000), one.batches, strict=True
            )
        )
        for one in sale.candidates
    ]
    truth = planted_loss(np.array(worth))
    assert sale.losses == pytest.approx(truth, abs=0.003)
    assert truth[sale.chosen] < truth[sale.best] + 0.005 + 0.003
    within = truth <= truth[sale.constant].min() + 0.005
    assert sale.steps[sale.chosen] == pytest.approx(sale.steps[within].min(), rel=0.1)
    for row, number in zip(sale.rows(), (sale.best, sale.chosen), strict=True):
        assert row["loss_low"] - 0.002 < truth[number] < row["loss_high"] + 0.002
