"""What a batch change asks of the betas: the arithmetic, and no surer than the runs."""

import math

import pytest

from bss.advice.betas import asked_by, asked_of_betas
from bss.schedules.batch import BatchSchedule
from bss.schedules.coupling import Coupling
from bss.schedules.momentum import LAW
from bss.schedules.plan import resolve


def test_betas_that_keep_their_tokens_are_powers_of_the_ratio():
    said = asked_of_betas(4096, 16_384, 1e9, beta1=0.8, beta2=0.99)
    told = "from 4096 to 16,384 tokens a step beta1 0.8 and beta2 0.99, per step, average over 4 "
    assert told in said and "; 0.4096 and 0.9606 keep them" in said


@pytest.mark.parametrize("gain", LAW.gains)
def test_within_what_was_measured_the_runs_of_as_many_steps_are_told(gain):
    said = asked_of_betas(64, gain.batch_tokens, gain.tokens, params=99e3)
    assert f"with 98,688 parameters in {gain.steps:,.0f} steps of" in said
    assert f"beta1 {gain.beta1:g}, not .9: {gain}; following the batch inside of a run:" in said
    assert gain.verdict in said and said.endswith(LAW.inside.verdict)
    assert asked_of_betas(64, gain.batch_tokens, gain.tokens) == said


@pytest.mark.parametrize(
    ("to", "tokens", "params"),
    [(2048, 5e5, 1e7), (2048, 5e5, 9e3), (64, 1e9, 99e3), (2**14, 5e5, None), (256, 1e6, math.nan)],
)
def test_elsewhere_nothing_is_said_to_be_known(to, tokens, params):
    said = asked_of_betas(32, to, tokens, params=params)
    assert said.endswith("nothing was measured at this size and length")
    assert "98,688 parameters in 244 steps of 2,048 tokens" in said and "inside" not in said


def test_a_plan_asks_where_its_batch_grows():
    def plan(text):
        schedule, coupling = BatchSchedule.parse(text), Coupling(beta1=0.95)
        return resolve(schedule, 500_000, 64, coupling=coupling)

    assert asked_by(plan("0:4 200K:32 400K:16")) == asked_of_betas(256, 2048, 500_000, beta1=0.95)
    assert asked_by(plan("8")) == asked_by(plan("0:8 200K:4")) == ""
