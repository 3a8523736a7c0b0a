"""What a sweep says before it trains."""

from dataclasses import replace

import pytest

from bss.errors import InputError
from bss.sweeps.engines import LocalEngine
from bss.sweeps.grid import overlay
from bss.sweeps.setup import EngineConfig
from bss.sweeps.sweep import tables
from bss.sweeps.trainer import Trainer
from bss.training.execution import Execution
from bss.training.run_directory import RunStatus


@pytest.fixture
def trainer(monkeypatch):
    """A trainer whose runs all finish at once."""
    made = Trainer(LocalEngine(EngineConfig()), Execution(data=""))
    finished = lambda runs, *_: {run.id: RunStatus("finished") for run in runs}  # noqa: E731
    monkeypatch.setattr(made.engine, "train", finished)
    return made


def test_a_rule_of_short_second_moments_is_told_once(trainer, tiny_run, capsys):
    rules = {"optimizer.beta2_half_life": 100}, {"optimizer.beta2": 0.5}, {}
    for seed in (0, 1):
        trainer.train([overlay(tiny_run, {"seed": seed, **rule}) for rule in rules], "sweep")
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert len(told) == 2
    assert "beta2_half_life 100 makes beta2 0.412 at batch 8" in told[0]
    assert "beta2 0.5 makes beta2 0.5" in told[1]


def test_where_no_run_finished_there_are_no_tables(trainer, tiny_run, monkeypatch):
    failed = RunStatus("failed", message="lost")
    monkeypatch.setattr(trainer.engine, "train", lambda runs, *_: {r.id: failed for r in runs})
    with pytest.raises(InputError, match="none of runs finished"):
        tables(trainer.train([tiny_run], "sweep"), trainer)


def test_an_optimizer_without_second_moments_is_not_told(trainer, tiny_run, capsys):
    changes = {"optimizer.name": "sgd", "optimizer.beta2": 0.0}
    trainer.train([overlay(tiny_run, changes)], "sweep")
    assert "warning" not in capsys.readouterr().err


def test_what_an_engine_says_of_devices_is_said_to_every_run():
    engine = EngineConfig("runs", buckets=(4,), devices=2, evaluation_bucket=8, attention="cudnn")
    expected = Execution(
        "runs", (4,), devices=2, evaluation_bucket=8, attention="cudnn", data="shards"
    )
    assert engine.execution("shards") == replace(expected, compilation_cache="runs/compiled")
