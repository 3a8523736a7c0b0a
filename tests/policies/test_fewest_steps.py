"""The fewest steps whose predicted decayed loss is within a tolerance of the best fixed batch's."""

import pytest

import bss
from bss.cli import main
from bss.errors import InputError
from bss.laws.step_time import StepTime
from bss.policies.fewest_steps import Sale
from bss.policies.policy import Limits
from bss.schedules.plan import resolve
from tests.cli.called import printed, refused

FIT = "results/late_switch/fit.json"
TOKENS = 1_000_000
DECAYED = bss.LRSchedule("wsd", peak=2e-3, warmup="5%", decay="20%")


@pytest.fixture(scope="module")
def fit():
    return bss.read_fit(FIT)


@pytest.fixture(scope="module")
def sale(fit):
    return Sale(fit, TOKENS, DECAYED.over(TOKENS), Limits(stages=2), 0.005)


def test_it_has_the_fewest_steps_within_the_tolerance(fit, sale):
    least = min(loss for loss, fixed in zip(sale.losses, sale.constant, strict=True) if fixed)
    assert sale.losses[sale.best] == least
    within = sale.losses <= least + 0.005
    assert within[sale.chosen]
    assert sale.steps[sale.chosen] == sale.steps[within].min() < sale.steps[sale.best]
    plan = resolve(sale.schedule, TOKENS, fit.seq_len)
    assert plan.steps == sale.steps[sale.chosen]
    rate = DECAYED.over(TOKENS)
    loss = bss.laws.predict_schedule(fit, sale.schedule, TOKENS, rate, extrapolate=True)
    assert loss.value == pytest.approx(sale.losses[sale.chosen], rel=1e-6)


def test_a_larger_tolerance_has_fewer_steps(fit, sale):
    wide = Sale(fit, TOKENS, DECAYED.over(TOKENS), Limits(stages=2), 0.02)
    assert wide.steps[wide.chosen] < sale.steps[sale.chosen]
    assert Sale(fit, TOKENS, DECAYED.over(TOKENS), Limits(stages=1), 0.02).schedule.constant_batch


def test_rows_have_tokens_steps_hours_and_intervals(sale):
    fixed, ramp = sale.rows(StepTime.parse("0.05 + 0.002*B"))
    assert (fixed["role"], ramp["role"]) == ("best fixed", "ramp")
    assert ramp["steps"] < fixed["steps"]
    assert ramp["hours"] < fixed["hours"]
    for row in (fixed, ramp):
        for name in ("loss", "steps", "hours"):
            assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]
        assert 0.99 * TOKENS < row["tokens"] <= TOKENS


def test_it_is_the_default_under_an_lr_that_decays(fit, sale):
    assert fit.schedule(TOKENS, lr=DECAYED, stages=2).policy == "fewest-steps"
    assert fit.schedule(TOKENS, lr=DECAYED, stages=2).schedule == sale.schedule
    assert fit.schedule(TOKENS, lr=2e-3, stages=2).policy == "functional-best"
    with pytest.raises(InputError, match="the LR does not decay"):
        fit.schedule(TOKENS, lr=2e-3, minimize="steps")
    with pytest.raises(InputError, match="tolerance"):
        fit.schedule(TOKENS, lr=DECAYED, policy="fewest-steps", tolerance=-1)


def test_the_command(capsys):
    lr = ("--lr", "2e-3", "--warmup", "5%", "--decay", "20%", "--stages", "2")
    arguments = ("schedule", "--from", FIT, "--tokens", "1M")
    entry = printed(capsys, *arguments, *lr, "--step-time", "0.05 + 0.002*B")
    assert entry["policy"] == "fewest-steps"
    assert (entry["minimize"], entry["tolerance"]) == ("steps", 0.005)
    assert [row["role"] for row in entry["compared"]] == ["best fixed", "ramp"]
    assert main([*arguments, *lr, "--minimize", "steps", "--tolerance", "0.02"]) == 0
    assert "no gain in loss is expected at equal tokens" in capsys.readouterr().out
    assert main([*arguments, "--lr", "2e-3", "--stages", "2"]) == 0
    assert "loss is minimized, as the LR does not decay" in capsys.readouterr().out
    for more in (("--policy", "late-switch"), ("--set", "at=0.8")):
        line = refused(capsys, *arguments, *lr, "--minimize", "steps", *more)
        assert line.startswith(f"bss schedule: {more[0]}: not used where steps are minimized")
    line = refused(capsys, *arguments, "--lr", "2e-3", "--minimize", "steps")
    assert "the LR does not decay" in line
    assert "--tolerance" in refused(capsys, *arguments, "--lr", "2e-3", "--tolerance", "0.01")
