"""What runs cost, and what a device takes for it."""

import dataclasses

import pytest

from bss.machines.targets import target_of
from bss.schedules.batch import BatchSchedule
from bss.sweeps.grid import overlay
from bss.sweeps.price import Price, hours, price
from bss.sweeps.programs import read_compiled, setup_of
from bss.sweeps.reading import read_config
from bss.sweeps.setup import EngineConfig, planned_run
from bss.training.config import Parent


def test_equal_runs_are_priced_once_and_a_branch_from_its_fork(tiny_run):
    one = price([tiny_run])
    assert price([tiny_run, tiny_run]) == one
    assert (one.runs, one.trained) == (1, 8192)
    assert one.evaluated == len(tiny_run.evaluation_tokens()) * 320
    branch = dataclasses.replace(tiny_run, parent=Parent(tiny_run.id, 6144))
    assert price([branch]).trained == 2048
    both = price([tiny_run, branch])
    assert both.flops == pytest.approx(one.flops + price([branch]).flops)
    averaged = price([overlay(tiny_run, {"averages": ["4%", "1K"]})])
    assert averaged.evaluated == 3 * one.evaluated
    assert str(one).startswith("1 runs, 8192 tokens trained, ")


def test_hours_of_a_device_at_a_part_of_its_peak():
    assert hours(Price(1, 1, 1, 3.6e18), 1e15, 0.5) == pytest.approx(2.0)
    assert hours(Price(1, 1, 1, 3.6e18, 7200.0).times(3), 1e15, 0.1) == pytest.approx(6.0)


def test_a_named_machine_prices_by_the_programs_compiled_for_it():
    """Of 10M over batches 16 and 64: by hand, from the rows of the committed table."""
    engine = EngineConfig(buckets=(8, 16, 32, 64), machine="h100:1")
    setup = setup_of(read_config("configs/es_wsd.py:gpu"))
    batches = BatchSchedule((0, 409_600), (16, 128))
    run = planned_run(setup)
    run = overlay(run, {"schedule.batch": str(batches), "schedule.tokens": 2_097_152 + 409_600})
    told, target = price([run, run], engine), target_of("NVIDIA H100 80GB HBM3")
    assert told and target and target.reached
    reached = target.reached
    key = {"model": "10M", "seq_len": 256, "averages": 1, "optimizer": "AdamW"}
    rows = [row for row in read_compiled() if key.items() <= row.items()]
    work = {(row["program"], row["bucket"]): (row["flops"], row["bytes"]) for row in rows}
    steps = 100 * reached.seconds(*work["train", 16]) + 64 * reached.seconds(*work["train", 64], 2)
    evaluations = told.evaluated / run.evaluation.tokens
    expected = steps + evaluations * reached.seconds(*work["evaluation", 32])
    assert told.seconds == pytest.approx(expected)
    assert str(told).endswith(" hours expected")
    for other in ({"machine": "h200:1"}, {"machine": ""}, {"fleet": 4}):
        assert price([run], dataclasses.replace(engine, **other)).seconds is None
    longer = overlay(run, {"data.seq_len": 512})
    assert price([run, longer], engine).seconds is None
