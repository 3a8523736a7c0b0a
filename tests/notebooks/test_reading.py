"""Where notebooks read their results, and how they tell numbers."""

import subprocess
from types import SimpleNamespace

import pandas as pd
import pytest

from bss.stats import LR_PHASES
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


def test_parts_are_read_or_run_one_by_one_and_at_smoke_size_once(ran, monkeypatch):
    parts = ("rules", "rules_h100", "short")
    monkeypatch.delenv("RUN", raising=False)
    committed = reading.results_of_parts("second_moment", *parts)
    assert all((committed[part] / "experiment.json").is_file() for part in parts)
    monkeypatch.setenv("RUN", "smoke")
    smoke = reading.results_of_parts("second_moment", *parts)
    assert set(smoke.values()) == {reading.ROOT / "runs/second_moment_smoke/results"}
    monkeypatch.setenv("RUN", "gpu")
    found = reading.results_of_parts("second_moment", *parts)
    assert (
        found["rules"] == found["rules_h100"] == reading.ROOT / "runs/second_moment/results/rules"
    )
    assert [config.split(":")[1] for _, config in ran] == ["smoke", "rules", "short"]


def test_sizes_run_in_order_and_their_analysis_last(ran, monkeypatch):
    sizes = {"stages": "a1", "sizes": "a2"}
    committed = {part: reading.ROOT / "results/es_wsd" / part for part in sizes}
    monkeypatch.delenv("RUN", raising=False)
    assert reading.results_of_sizes("es_wsd", sizes, ("stages",)) == committed
    assert ran == []
    monkeypatch.setenv("RUN", "cpu")
    assert reading.results_of_sizes("es_wsd", sizes, ("stages",)) == committed
    configs = [f"--config=configs/es_wsd.py:{size}" for size in sizes.values()]
    assert ran == [
        *(["experiments.es_wsd", one] for one in configs),
        ["experiments.es_wsd.analysis"],
    ]
    ran.clear()
    monkeypatch.setenv("RUN", "smoke")
    smoke = reading.ROOT / "runs/es_wsd_smoke/results"
    found = reading.results_of_sizes("es_wsd", sizes, ("stages",))
    assert found == committed | {"stages": smoke}
    assert ran == [
        ["experiments.es_wsd", "--config=configs/es_wsd.py:smoke"],
        ["experiments.es_wsd.analysis", f"--part={smoke}"],
    ]


def test_an_experiment_that_fails_is_told(monkeypatch):
    failed = SimpleNamespace(returncode=1, stderr="size 'gigantic': expected one of smoke, cpu\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    monkeypatch.setenv("RUN", "gigantic")
    with pytest.raises(RuntimeError, match=r"optimal_schedule.*expected one of smoke, cpu"):
        reading.results_of("optimal_schedule")


def test_contenders_are_told_against_the_best_constant_of_each_ending():
    losses = {("constant 1", "decayed"): [1.5, 1.6], ("late", "decayed"): [1.49, 1.57]}
    losses |= {("constant 1", "cosine"): [1.7, 1.7]}
    rows = [
        {
            "name": name,
            **LR_PHASES[rate].columns,
            "seed": seed,
            "eval_loss": loss,
            "test_loss": loss,
        }
        | {"batch": "1", "tokens": 10, "steps": 5, "role": name.split()[0]}
        for (name, rate), some in losses.items()
        for seed, loss in enumerate(some)
    ]
    table = reading.contenders_table(pd.DataFrame(rows))
    assert table.to_dict("index") == {
        "late": {"decayed": "−20.0 ± 127.1", "cosine": ""},
        "constant 1": {"decayed": "best constant, 1.5500", "cosine": "best constant, 1.7000"},
    }
