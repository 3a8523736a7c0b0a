"""Ids of runs whose results are committed: no refactoring may rename them."""

import json
from pathlib import Path

import pytest

from bss.training.run_config import RunConfig
from bss.values import from_dict

LINES = (Path(__file__).parent / "committed_runs.jsonl").read_text().splitlines()
RUNS = {entry["id"]: entry["run"] for entry in map(json.loads, LINES)}


def test_there_are_runs_of_every_kind():
    optimizers = {run.get("optimizer", {}).get("name", "adamw") for run in RUNS.values()}
    rates = {run.get("schedule", {}).get("rate", "wsd") for run in RUNS.values()}
    assert len(RUNS) > 200
    assert optimizers >= {"adamw", "sgd"}
    assert rates >= {"wsd", "cosine"}
    assert any("parent" in run for run in RUNS.values())
    assert any("noise_scale" in run for run in RUNS.values())


@pytest.mark.parametrize("name", RUNS)
def test_a_committed_run_keeps_its_id(name):
    assert from_dict(RunConfig, RUNS[name]).id == name
