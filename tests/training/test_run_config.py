"""A run is a value: its id, its dict, what it refuses."""

import dataclasses
from dataclasses import dataclass, replace

import pytest

from bss.errors import InputError
from bss.schedules.batch import BatchSchedule
from bss.sweeps.grid import overlay
from bss.training.execution import Execution
from bss.training.optimizers import AdamW
from bss.training.run_config import EvaluationConfig, Parent, RunConfig
from bss.values import from_dict, to_dict


@pytest.fixture(scope="module")
def tiny_run(tiny_transformer):
    """With a transformer."""
    return tiny_transformer


@dataclass(frozen=True)
class LaterEvaluationConfig(EvaluationConfig):
    """What EvaluationConfig might become: one more option, off by default."""

    shuffled: bool = False


def leaves(values: dict, prefix: str = ""):
    for key, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


CHANGED = {
    "spike_policy": "stop",
    "model.num_heads": 4,
    "model.num_kv_heads": 1,
    "model.head_dim": 4,
    "model.parametrization": None,  # both, below
    "model.base_width": None,
    "model.activation": "gelu",
    "model.norm": "layer",
    "model.dtype": "bfloat16",
    "data.corpus": None,
    "data.tokenizer": None,
    "optimizer.name": "sgd",
    "schedule.tokens": None,
    "schedule.batch": "4",
    "schedule.rate": "constant",
    "schedule.shape": "cosine",
    "schedule.lr_coupling": "linear",
    "schedule.weight_decay_coupling": "per_token",
    "schedule.beta1_coupling": "1%",
    "parent": {"run": "0" * 12, "tokens": 512},
    "data.content": "0" * 64,
    "noise_scale.split": None,  # only beside a half_life
    "averages": ["4%"],
    "evaluation.sets": [{"name": "more"}],
    "evaluation.metrics": ["accuracy"],
}


WITH_EFFECT = {"spike_policy": "skip", "schedule.decay": 512, "schedule.lr_coupling": "sqrt"}
"""Without a decay it has no shape, without a coupling its reference batch changes nothing."""


def test_every_field_of_the_trajectory_changes_the_id(tiny_run):
    whole = overlay(tiny_run, WITH_EFFECT)
    ids = [whole.id]
    for name, value in leaves(to_dict(whole)):
        if name in CHANGED:
            new = CHANGED[name]
        elif isinstance(value, bool):
            new = not value
        elif isinstance(value, float):
            new = value / 2 + 0.1
        else:
            new = value * 2 + 16
        if new is not None:
            ids.append(overlay(whole, {name: new}).id)
    ids += [
        overlay(whole, {"model.parametrization": "mup", "model.base_width": width}).id
        for width in (16, 32)
    ]
    assert len(set(ids)) == len(ids) > 40


def test_names_of_the_data_and_a_trunks_stop_do_not(tiny_run):
    for changes in (
        {"data.corpus": "other", "data.tokenizer": "bpe-300"},
        {"schedule.tokens": 1_000_000},
        {"schedule.tokens": 2_000_000},
    ):
        assert overlay(tiny_run, changes).id == tiny_run.id
    bare = RunConfig(tiny_run.model)
    assert overlay(bare, {"schedule.tokens": 2_000_000}).id == bare.id


@pytest.mark.parametrize(
    "changes",
    [
        {"schedule.decay": 512},
        {"schedule.rate": "cosine"},
        {"schedule.rate": "linear"},
        {"schedule.beta1_coupling": "1%"},
    ],
)
def test_the_stop_counts_where_the_trajectory_depends_on_it(tiny_run, changes):
    run = overlay(tiny_run, changes)
    assert overlay(run, {"schedule.tokens": 4096}).id != run.id


def test_a_rule_of_beta1_that_changes_nothing_does_not_count(tiny_run):
    idle = overlay(tiny_run, {"schedule.beta1_coupling": "50%"})  # 128 steps: .99 at most
    assert idle.id == tiny_run.id and idle.plan().at(0).settings.beta1 == 0.9
    asked = {"schedule.beta1_coupling": "1%", "optimizer.name": "schedule_free"}
    with pytest.raises(InputError, match=r"beta1_coupling is 1%; schedule_free .* leave it out"):
        overlay(tiny_run, asked)


@pytest.mark.parametrize("text", ["0:2 50%:4", "0:2  4096:4"])
def test_one_batch_schedule_has_one_id_however_it_is_written(tiny_run, text):
    run = overlay(tiny_run, {"schedule.batch": text})
    assert str(run.schedule.batch) == "0:2 4096:4"
    assert overlay(tiny_run, {"schedule.batch": "0:8"}) == overlay(
        tiny_run, {"schedule.batch": "8"}
    )
    same = {"schedule.batch": BatchSchedule((0, 4096), (2, 4))}
    assert overlay(tiny_run, same) == overlay(tiny_run, {"schedule.batch": text})
    longer = overlay(tiny_run, {"schedule.batch": text, "schedule.tokens": "16384"})
    assert longer.schedule.batch.starts == (0, 8192 if "%" in text else 4096)
    assert to_dict(longer)["schedule"]["batch"] == str(longer.schedule.batch)


def test_new_options_and_ways_to_write_numbers_rename_nothing(tiny_run):
    later = LaterEvaluationConfig(**dataclasses.asdict(tiny_run.evaluation))
    assert replace(tiny_run, evaluation=later).id == tiny_run.id
    assert replace(tiny_run, evaluation=replace(later, shuffled=True)).id != tiny_run.id
    whole, real = (replace(tiny_run, optimizer=AdamW(lr=lr)) for lr in (2, 2.0))
    assert whole.id == real.id == from_dict(RunConfig, to_dict(whole)).id


def test_dicts_come_back(tiny_run):
    branch = replace(tiny_run, parent=Parent(tiny_run.id, 512))
    for run in (tiny_run, branch):
        assert from_dict(RunConfig, to_dict(run)) == run
    assert from_dict(Execution, {"buckets": [2, "1K"]}).buckets == (2, 1000)
    assert overlay(tiny_run, {"schedule.tokens": "1.5M"}).schedule.tokens == 1_500_000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer.learning_rate": 1}, "optimizer.learning_rate is not a field"),
        ({"optimizer.key": "name"}, "optimizer.key is not a field"),  # a class variable
        ({"optimizer.beta_1": 0.5}, "did you mean 'beta1'?"),
        ({"optimizer.lr": "fast"}, "optimizer.lr is 'fast'; expected float"),
        ({"optimizer.lr": float("nan")}, "optimizer.lr is nan; expected a finite number"),
        ({"optimizer.lr": -1.0}, "optimizer.lr is -1.0; expected a positive number"),
        ({"optimizer.beta2": 1.0}, "optimizer.beta2 is 1.0; expected 0 <= beta2 < 1"),
        ({"optimizer.name": "lion"}, "optimizer.name: 'lion' is unknown; choose one of adamw, sgd"),
        (
            {"optimizer.name": "math:tau"},
            "optimizer.name: math:tau is float; expected a class made of Opt",
        ),
        ({"schedule.tokens": 1.5}, "schedule.tokens is 1.5; expected int"),
        ({"schedule.tokens": True}, "schedule.tokens is True; expected int"),
        ({"schedule.tokens": "many"}, "schedule.tokens: 'many' is not a count"),
        ({"data.repeat": 1}, "data.repeat is 1; expected bool"),
        ({"evaluation.first": 0}, "evaluation.first is 0; expected 1 or more"),
        ({"evaluation.per_efold": 0}, "evaluation.per_efold is 0; expected 1 or more"),
        ({"optimizer": 3}, "optimizer is 3; expected a group of fields"),
        ({"parent": {"tokens": 3}}, "parent lacks 'run'; add it"),
    ],
)
def test_bad_values_are_refused_in_one_line(tiny_run, changes, message):
    with pytest.raises(InputError) as caught:
        overlay(tiny_run, changes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"buckets": "32"}, "buckets is '32'; expected a list"),
        ({"buckets": 32}, "buckets is 32; expected a list"),
        ({"devices": -1}, "execution.devices is -1; expected 0 or more"),
        ({"evaluation_bucket": -1}, "execution.evaluation_bucket is -1; expected 0 or more"),
        ({"checkpoint_seconds": -1}, "execution.checkpoint_seconds is -1.0; expected 0 or more"),
        ([], "is []; expected a group of fields"),
    ],
)
def test_bad_executions_are_refused(values, message):
    with pytest.raises(InputError) as caught:
        from_dict(Execution, values)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"schedule.warmup": 8000, "schedule.decay": 8000},
        {"schedule.batch": "0:2 1024:4 512:8"},
        {"schedule.batch": "3"},
        {"schedule.tokens": 0},
        {"optimizer.weight_decay": -1.0},
        {"data.seq_len": 0},
    ],
)
def test_what_cannot_be_run_is_refused_by_its_plan(tiny_run, changes):
    with pytest.raises(InputError):
        Execution(buckets=(2, 4)).plan(overlay(tiny_run, changes))
