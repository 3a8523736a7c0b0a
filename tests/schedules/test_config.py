"""Settings of a schedule: a run's id leaves out what is at its default."""

import math
from dataclasses import asdict, replace

import pytest

from bss.errors import InputError
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig


def test_the_defaults_are_those_that_committed_ids_leave_out():
    told = {"tokens": 1_000_000, "rate": "wsd", "shape": "linear", "floor": 0.0}
    told |= {"warmup": 0, "decay": 0, "reference_batch": 0}
    told |= {"lr_coupling": "none", "weight_decay_coupling": "none", "beta1_coupling": "none"}
    config = ScheduleConfig()
    assert config.batch == BatchSchedule.constant(8)
    assert {name: value for name, value in asdict(config).items() if name != "batch"} == told


def test_two_schedules_have_one_rate_up_to_where_either_looks_ahead():
    stable = ScheduleConfig(tokens=10_000, warmup=1000)
    decayed = replace(stable, decay=3000, tokens=8000)
    assert stable.one_rate(replace(stable, tokens=5000)) == math.inf
    assert stable.one_rate(decayed) == decayed.one_rate(stable) == 5000
    assert decayed.one_rate(replace(decayed, tokens=9000)) == 5000
    assert stable.one_rate(replace(stable, warmup=2000)) == 0
    assert stable.one_rate(replace(stable, rate="constant")) == 0
    by_steps = replace(stable, beta1_coupling="1%")
    assert stable.one_rate(by_steps) == by_steps.one_rate(replace(by_steps, tokens=9000)) == 0
    assert by_steps.one_rate(by_steps) == math.inf
    assert stable.one_rate(replace(stable, batch=BatchSchedule.constant(2))) == math.inf


def test_settings_without_effect_are_left_out():
    idle = ScheduleConfig(
        shape="cosine", floor=0.5, lr_coupling="sqrt", weight_decay_coupling="per_token",
        reference_batch=8,
    )  # fmt: skip
    assert idle.unused == ("shape", "floor")
    assert idle.effective(0.1) == ScheduleConfig()
    coupled = replace(idle, reference_batch=4)
    assert coupled.effective(0.1) == replace(
        ScheduleConfig(), lr_coupling="sqrt", weight_decay_coupling="per_token", reference_batch=4
    )
    assert coupled.effective(0.0) == replace(
        ScheduleConfig(), lr_coupling="sqrt", reference_batch=4
    )
    changing = replace(idle, batch=BatchSchedule.parse("0:8 1K:16"))
    assert changing.effective(0.1) == replace(
        changing, shape="linear", floor=0.0, reference_batch=0
    )


def test_a_decay_is_of_a_rate_that_has_one():
    cosine = ScheduleConfig(rate="cosine", decay=10, floor=0.1)
    assert cosine.foreign == ("decay",)
    assert ScheduleConfig(decay=10).foreign == ()
    with pytest.raises(InputError, match=r"cosine, which takes no decay; .* wsd"):
        cosine.check_decay()
    ScheduleConfig().check_decay()


@pytest.mark.parametrize(
    ("batch", "tokens", "decoded"),
    [
        (8, 1000, "8"),
        ("0:8 50%:16", 1000, BatchSchedule.parse("0:8 500:16")),
        ("0:8 50%:16", "2K", BatchSchedule.parse("0:8 1000:16")),
        ("0:8 1K:16", 1000, "0:8 1K:16"),
        (True, 1000, True),
    ],
)
def test_shares_of_the_tokens_are_resolved(batch, tokens, decoded):
    assert ScheduleConfig.decoded({"batch": batch, "tokens": tokens})["batch"] == decoded
