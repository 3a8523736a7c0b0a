"""Overlays: combinations, unknown fields, equal runs."""

import dataclasses

import pytest

from bss.errors import InputError
from bss.sweeps.axes import read_axes
from bss.sweeps.cost import estimate_cost
from bss.sweeps.grid import expand, longest, overlay, seeded, stages, sweep_product, sweep_zip
from bss.sweeps.table import differing
from bss.training.run_config import RunConfig
from bss.values import from_dict, to_dict


def test_combinations():
    axes = {"schedule.batch": ["4", "8"], "seed": [0, 1]}
    every = [("4", 0), ("4", 1), ("8", 0), ("8", 1)]
    assert [tuple(o.values()) for o in sweep_product(axes)] == every
    assert [tuple(o.values()) for o in sweep_zip(axes)] == [("4", 0), ("8", 1)]
    with pytest.raises(InputError, match="lengths"):
        sweep_zip({"seed": [0], "data.seed": [0, 1]})


def test_equal_runs_are_kept_once_and_every_budget_is_one(tiny_run):
    stops = [1024, 4096, 2048]
    runs = expand(tiny_run, sweep_product({"seed": [0, 1, 0], "schedule.tokens": stops}))
    every = [(seed, stop) for seed in (0, 1) for stop in stops]
    assert [(run.seed, run.schedule.tokens) for run in runs] == every
    assert [(run.seed, run.schedule.tokens) for run in longest(runs)] == [(0, 4096), (1, 4096)]
    decayed = sweep_product({"schedule.decay": [512], "schedule.tokens": stops})
    assert len(expand(tiny_run, decayed)) == 3


def test_smaller_budgets_come_in_earlier_stages_and_every_id_in_the_last(tiny_run):
    budgets = {"seed": [0], "schedule.tokens": [2048, 1024, 4096]}
    runs = [*expand(tiny_run, sweep_product(budgets)), overlay(tiny_run, {"seed": 1})]
    found = [[(run.seed, run.schedule.tokens) for run in stage] for stage in stages(runs)]
    last = tiny_run.schedule.tokens
    assert found == [[(0, 1024)], [(0, 2048)], [(0, 4096), (1, last)]]
    assert stages([]) == []


def test_an_axis_may_be_a_function_of_the_run(tiny_run):
    def doubled(run):
        return [run, overlay(run, {"optimizer.lr": 2 * run.optimizer.lr})]

    runs = expand(tiny_run, seeded({"seed": [0, 1], "optimizer.lr": [1e-3]}), doubled)
    found = [(run.seed, run.data.seed, run.optimizer.lr) for run in runs]
    assert found == [(0, 0, 1e-3), (0, 0, 2e-3), (1, 1, 1e-3), (1, 1, 2e-3)]
    assert [run.id for run in expand(tiny_run)] == [tiny_run.id]


@pytest.mark.parametrize("name", ["sed", "optimizer.rate", "optimiser.lr", "seed.x", "parent.run"])
def test_unknown_fields_are_refused(tiny_run, name):
    with pytest.raises(InputError) as caught:
        overlay(tiny_run, {name: 1})
    assert name.split(".")[0] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_overlays_build_only_what_they_change_and_give_the_same_runs(tiny_run):
    changes = [
        {"optimizer.lr": 1, "seed": 3},
        {"schedule": {"tokens": "4K", "batch": "0:2 50%:4"}, "data.seq_len": "32"},
        {"schedule.tokens": "2K", "schedule.warmup": "10%", "schedule.batch": 4},
        {"model": to_dict(tiny_run.model) | {"vocab_size": 300}},
        {"averages": ["4%"], "evaluation.metrics": ["accuracy"]},
    ]
    whole = [from_dict(RunConfig, to_dict(overlay(tiny_run, one))) for one in changes]
    runs = expand(tiny_run, changes)
    assert runs == whole
    assert [run.id for run in runs] == [run.id for run in whole]
    many = expand(tiny_run, [{"seed": seed} for seed in range(50)])
    for group in ("model", "data", "optimizer", "schedule", "evaluation"):
        assert len({id(getattr(run, group)) for run in many}) == 1


def test_the_id_of_a_run_is_computed_once(tiny_run, monkeypatch):
    hashed = []
    own = RunConfig._hash
    monkeypatch.setattr(RunConfig, "_hash", lambda run: hashed.append(1) or own(run))
    runs = expand(tiny_run, [{"seed": seed} for seed in range(20)])
    differing(runs)
    estimate_cost(runs)
    assert len(hashed) == len(runs)
    assert runs[0] == dataclasses.replace(runs[0])  # which has no id yet


def test_a_sweep_of_too_many_runs_is_refused_before_they_are_made(tiny_run):
    batches = {"schedule.batch": list(range(1, 100_001))}
    with pytest.raises(InputError, match="axes: they give 100,000 runs, and one sweep has at most"):
        read_axes(batches)
    with pytest.raises(InputError, match="they give 1,000,000,000 runs"):
        read_axes({"seed": list(range(100_000)), "optimizer.lr": [1e-3] * 10_000})
    seeds = [{"seed": seed} for seed in range(200)]
    with pytest.raises(InputError, match="they give 40,000 runs"):
        expand(tiny_run, seeds, [{"data.seed": seed} for seed in range(200)])
    with pytest.raises(InputError, match="they give 30,000 runs"):
        expand(tiny_run, lambda run: [run] * 30_000)
