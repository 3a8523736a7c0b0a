"""Settings of a schedule: a run's id leaves out what is at its default."""

from dataclasses import asdict

from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig


def test_the_defaults_are_those_that_committed_ids_leave_out():
    told = {"tokens": 1_000_000, "rate": "wsd", "shape": "linear", "floor": 0.0}
    told |= {"warmup": 0, "decay": 0, "reference_batch": 0}
    told |= {"lr_coupling": "none", "weight_decay_coupling": "none"}
    config = ScheduleConfig()
    assert config.batch == BatchSchedule.constant(8)
    assert {name: value for name, value in asdict(config).items() if name != "batch"} == told
