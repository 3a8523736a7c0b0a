"""In Python a config may be written as in JSON: texts, integers and dicts become its types."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import bss
from bss.errors import InputError
from bss.models.sizes import named
from bss.training.optimizers import Muon
from bss.training.run_config import DataConfig, EvaluationConfig, HeldOutSet, RunConfig
from bss.values import from_dict, to_dict


@pytest.mark.parametrize(
    ("plain", "typed"),
    [
        ({"batch": 8}, {"batch": bss.BatchSchedule.constant(8)}),
        ({"batch": "0:8 40K:16"}, {"batch": bss.BatchSchedule.parse("0:8 40K:16")}),
        (
            {"tokens": "2M", "warmup": "10%", "batch": "0:8 50%:16"},
            {"tokens": 2_000_000, "warmup": 200_000, "batch": bss.BatchSchedule.parse("0:8 1M:16")},
        ),
        ({"tokens": 2e6, "floor": "0.1"}, {"tokens": 2_000_000, "floor": 0.1}),
        ({"tokens": np.int64(4096)}, {"tokens": 4096}),
    ],
)
def test_a_schedule_is_written_as_in_json(plain, typed):
    schedule = bss.ScheduleConfig(**plain)
    assert schedule == bss.ScheduleConfig(**typed)
    assert all(type(x) is not str or x.isidentifier() for x in vars(schedule).values())
    assert dataclasses.replace(schedule, **plain) == schedule


def test_a_run_of_dicts_is_the_run_of_values():
    fields: dict[str, Any] = {
        "model": "nano",
        "data": {"seq_len": 64},
        "optimizer": {"lr": "1e-3"},
        "schedule": {"batch": 8, "warmup": "20steps"},
        "evaluation": {"sets": [{"name": "wiki"}]},
        "averages": ["4%"],
        "seed": np.int32(3),
    }
    plain = RunConfig(**fields)
    typed = RunConfig(
        named("nano"),
        DataConfig(seq_len=64),
        bss.AdamW(lr=1e-3),
        bss.ScheduleConfig(warmup=20 * 8 * 64),
        EvaluationConfig(sets=(HeldOutSet("wiki"),)),
        ("4%",),
        3,
    )
    assert plain == typed
    assert plain.id == typed.id
    assert from_dict(RunConfig, to_dict(plain)) == plain


def test_an_optimizer_may_be_its_name():
    name: Any = "muon"
    assert bss.Setup(optimizer=name).optimizer == Muon()
    assert from_dict(RunConfig, {"model": "nano", "optimizer": "muon"}).optimizer == Muon()


def test_fields_of_their_types_stay_the_same_objects():
    schedule = bss.ScheduleConfig()
    optimizer = bss.AdamW()
    setup = bss.Setup(schedule=schedule, optimizer=optimizer)
    assert setup.schedule is schedule
    assert setup.optimizer is optimizer


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (bss.ScheduleConfig, {"batch": None}, r"schedule\.batch is None; expected a text"),
        (bss.ScheduleConfig, {"batch": 0}, r"batch: 0 is not positive"),
        (bss.ScheduleConfig, {"tokens": 1.5}, r"schedule\.tokens is 1\.5; expected int"),
        (bss.ScheduleConfig, {"tokens": True}, r"schedule\.tokens is True; expected int"),
        (bss.ScheduleConfig, {"shape": "cosin"}, r"schedule\.shape is 'cosin'; expected one of"),
        (bss.AdamW, {"lr": "high"}, r"optimizer\.lr is 'high'; expected float"),
        (bss.Setup, {"optimizer": "adm"}, r"'adm' is unknown; did you mean 'adamw'"),
        (bss.Setup, {"averages": "50K"}, r"setup\.averages is '50K'; expected a list"),
        (bss.Setup, {"schedule": {"tokns": 3}}, r"schedule\.tokns .* did you mean 'tokens'"),
        (
            bss.Setup,
            {"schedule": bss.BatchSchedule.constant(8)},
            r"setup\.schedule is BatchSchedule.*; expected a group of fields",
        ),
        (RunConfig, {"model": "nan"}, r"model='nan': expected one of .*did you mean 'nano'"),
    ],
)
def test_what_a_field_cannot_be_is_refused_in_one_line(kind, fields, message):
    with pytest.raises(InputError, match=message) as told:
        kind(**fields)
    assert "\n" not in str(told.value)
