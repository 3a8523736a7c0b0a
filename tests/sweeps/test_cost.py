"""What runs cost, and what a device takes for it."""

import dataclasses

import pytest

from bss.sweeps.cost import Cost, estimate_cost, hours
from bss.sweeps.grid import overlay
from bss.training.run_config import Parent


@pytest.fixture(scope="module")
def tiny_run(tiny_transformer):
    """With a transformer."""
    return tiny_transformer


def test_equal_runs_are_priced_once_and_a_branch_from_its_fork(tiny_run):
    one = estimate_cost([tiny_run])
    assert estimate_cost([tiny_run, tiny_run]) == one
    assert (one.runs, one.trained) == (1, 8192)
    assert one.evaluated == len(tiny_run.evaluation_tokens()) * 320
    branch = dataclasses.replace(tiny_run, parent=Parent(tiny_run.id, 6144))
    assert estimate_cost([branch]).trained == 2048
    both = estimate_cost([tiny_run, branch])
    assert both.flops == pytest.approx(one.flops + estimate_cost([branch]).flops)
    averaged = estimate_cost([overlay(tiny_run, {"averages": ["4%", "1K"]})])
    assert averaged.evaluated == 3 * one.evaluated
    assert str(one).startswith("1 runs, 8192 tokens trained, ")


def test_hours_of_a_device_at_a_part_of_its_peak():
    assert hours(Cost(1, 1, 1, 3.6e18), 1e15, 0.5) == pytest.approx(2.0)
