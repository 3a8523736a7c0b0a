"""Decayed losses of ramps by E(S): equal losses are equal states."""

from dataclasses import replace

import numpy as np
import pytest

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
