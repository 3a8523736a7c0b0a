"""Where notebooks read their results, and how they tell numbers."""

import doctest
import subprocess
from types import SimpleNamespace

import pytest

from notebooks import reading


@pytest.fixture
def ran(monkeypatch):
    """The commands that were run, none of them in fact."""
    commands = []

    def run(command, **_):
        commands.append(command[2:])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_numbers_are_told_with_their_intervals():
    examples = doctest.testmod(reading)
    assert (examples.attempted, examples.failed) == (3, 0)
    assert reading.verdict(float("nan"), 1, 10).startswith("NOT")


def test_committed_results_are_read_without_a_run(ran, monkeypatch):
    monkeypatch.delenv("RUN", raising=False)
    assert (reading.results_of("optimal_schedule") / "experiment.json").is_file()
    assert not ran


@pytest.mark.parametrize(
    ("size", "used", "folder"),
    [
        ("smoke", "smoke", "runs/optimal_schedule_smoke/results"),
        ("gpu", "cpu", "results/optimal_schedule"),
    ],
)
def test_a_size_runs_the_experiment_first(ran, monkeypatch, size, used, folder):
    monkeypatch.setenv("RUN", size)
    found = reading.results_of("optimal_schedule", trains=False)
    assert found == reading.ROOT / folder
    config = f"--config=configs/optimal_schedule.py:{used}"
    assert ran == [["experiments.optimal_schedule", config]]


def test_an_experiment_that_fails_is_told(monkeypatch):
    failed = SimpleNamespace(returncode=1, stderr="size 'gigantic': expected one of smoke, cpu\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    monkeypatch.setenv("RUN", "gigantic")
    with pytest.raises(RuntimeError, match=r"optimal_schedule.*expected one of smoke, cpu"):
        reading.results_of("optimal_schedule")
