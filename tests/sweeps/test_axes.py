"""Axes as a person writes them: every form, and each mistake in one line."""

import pytest

from bss.errors import InputError
from bss.sweeps.axes import parse_set, read_axes
from bss.sweeps.grid import expand, overlay

BATCHES = [{"schedule.batch": 2}, {"schedule.batch": 4}]


def own(run):
    return [overlay(run, one) for one in BATCHES]


OWN = BATCHES


def broken(run):
    return run.id


@pytest.mark.parametrize(
    "written",
    [{"schedule.batch": [2, 4]}, {"schedule": {"batch": (2, 4)}}, BATCHES, own, f"{__name__}:OWN"],
)
def test_every_form_names_the_same_runs(tiny_run, written):
    runs = expand(tiny_run, *read_axes(written, ["optimizer.lr=1e-3,2e-3"]))
    assert [(run.schedule.batch.constant_batch, run.optimizer.lr) for run in runs] == [
        (2, 1e-3),
        (2, 2e-3),
        (4, 1e-3),
        (4, 2e-3),
    ]


def test_a_seed_is_that_of_the_data_order_too(tiny_run):
    seeds = [(run.seed, run.data.seed) for run in expand(tiny_run, *read_axes({}, ["seed=0,1"]))]
    apart = expand(tiny_run, *read_axes({"seed": [0, 1], "data.seed": [5]}))
    assert seeds == [(0, 0), (1, 1)]
    assert [(run.seed, run.data.seed) for run in apart] == [(0, 5), (1, 5)]


def test_values_of_a_command_line():
    batches = read_axes({}, ['schedule.batch=["0:2 1K:4", 8]'])[0]
    assert batches == [{"schedule.batch": "0:2 1K:4"}, {"schedule.batch": 8}]
    assert parse_set("text.corpus = synthetic") == (["text", "corpus"], "synthetic")
    assert parse_set("averages=[]") == (["averages"], [])


@pytest.mark.parametrize(
    ("written", "more", "told"),
    [
        ({"schedule.batch": []}, [], "axis schedule.batch has no values"),
        ({"schedule.batch": 4}, [], r"expected a list of values, as \[4, 8\]"),
        ({"schedule.batch": "4,8"}, [], "expected a list of values"),
        ({"schedule.batch": [2], "schedule": {"batch": [4]}}, [], "batch occurs twice"),
        (BATCHES, ["schedule.batch=4"], "schedule.batch occurs twice"),
        ({}, ["seed=0", "seed=1"], "seed occurs twice"),
        ({}, ["seed="], "seed has no values"),
        ({}, ["seed"], "write PATH=VALUE,VALUE"),
        (3, [], "axes are 3"),
        ([3], [], "a list of overlays"),
        ({"data.corpus": ["stdlib"]}, [], "read one text"),
        ([{"data.tokenizer": "bytes"}], [], "read one text"),
        ("nowhere_at_all:AXIS", [], "cannot be imported"),
        ({"lr": [1e-3]}, [], "lr is not a field of a run; did you mean 'optimizer.lr'"),
        ({"optimiser.lr": [1e-3]}, [], "did you mean 'optimizer.lr'"),
        ({"schedul.batch": [2]}, [], "did you mean 'schedule.batch'"),
        ({"optimizer.lr": ["fast"]}, [], "optimizer.lr is 'fast'; expected float"),
        ({"schedule.batch": [True]}, [], "schedule.batch is True"),
        (broken, [], "a function gave no runs"),
    ],
)
def test_bad_axes(tiny_run, written, more, told):
    with pytest.raises(InputError, match=told) as caught:
        expand(tiny_run, *read_axes(written, more))
    assert "\n" not in str(caught.value)
