"""Overlays: combinations, unknown fields, equal runs."""

import pytest

from bss.errors import InputError
from bss.sweeps.grid import expand, overlay, product, seeded, zipped


def test_combinations():
    axes = {"schedule.batch": ["4", "8"], "seed": [0, 1]}
    assert [tuple(o.values()) for o in product(axes)] == [("4", 0), ("4", 1), ("8", 0), ("8", 1)]
    assert [tuple(o.values()) for o in zipped(axes)] == [("4", 0), ("8", 1)]
    with pytest.raises(InputError, match="lengths"):
        zipped({"seed": [0], "data.seed": [0, 1]})


def test_equal_runs_are_kept_once_and_a_trunk_at_its_farthest_stop(tiny_run):
    stops = [1024, 4096, 2048]
    runs = expand(tiny_run, product({"seed": [0, 1, 0], "schedule.tokens": stops}))
    assert [(run.seed, run.schedule.tokens) for run in runs] == [(0, 4096), (1, 4096)]
    decayed = product({"schedule.decay": [512], "schedule.tokens": stops})
    assert len(expand(tiny_run, decayed)) == 3


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
