"""Rules of beta2 that are told because they keep second moments for too few steps."""

import pytest

from bss.schedules.batch import BatchSchedule
from bss.schedules.coupling import Coupling
from bss.schedules.plan import resolve
from bss.schedules.second_moment import short_second_moments


def plan(batch: str, **coupling):
    return resolve(BatchSchedule.parse(batch), 1_000_000, 64, coupling=Coupling(**coupling))


@pytest.mark.parametrize(
    ("batch", "coupling", "told"),
    [
        ("1", {}, ""),
        ("1024", {}, ""),  # .95 per step is 13.5 steps at every batch
        ("32", {"beta2_half_life": 7_000}, ""),  # 3.4 steps
        ("64", {"beta2_half_life": 7_000}, "makes beta2 0.667 at batch 64, a half-life of 1.7"),
        ("128", {"beta2_half_life": 7_000}, "0.444 at batch 128, a half-life of 0.85 steps"),
        ("0:1 500K:64", {"beta2_half_life": 7_000}, "at batch 64"),
        ("0:64 500K:1", {"beta2_half_life": 7_000}, "make it 12,288 tokens or more"),
        ("8", {"beta2": 0.79}, "beta2 0.79 makes beta2 0.79 at batch 8, a half-life of 2.9 steps"),
        ("8", {"beta2": 0.794}, ""),
        ("8", {"beta2": 0.0}, "a half-life of 0 steps; raise it to 0.794 or more"),
    ],
)
def test_under_three_steps_a_rule_is_told(batch, coupling, told):
    found = short_second_moments([plan(batch, **coupling)])
    assert len(found) == bool(told)
    assert told in "".join(found.values())


def test_what_it_says_to_do_is_enough():
    assert short_second_moments([plan("64", beta2_half_life=12_287)])
    assert not short_second_moments([plan("64", beta2_half_life=12_288)])


def test_each_rule_once_at_its_worst():
    rules = {"beta2_half_life": 7_000}, {"beta2": 0.5}, {"beta2_half_life": 100.0}
    plans = [plan(batch, **rule) for rule in rules for batch in ("256", "512", "64")]
    found = short_second_moments(plans)
    assert [*found] == ["beta2_half_life 7,000", "beta2 0.5", "beta2_half_life 100"]
    assert "batch 512" in found["beta2_half_life 7,000"]
    assert "batch 512" in found["beta2_half_life 100"]
