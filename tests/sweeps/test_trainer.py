"""What a sweep says before it trains."""

from dataclasses import replace

import pandas as pd
import pytest

from bss.errors import InputError
from bss.sweeps.engines import JointEngine, LocalEngine
from bss.sweeps.grid import overlay
from bss.sweeps.setup import EngineConfig
from bss.sweeps.sweep import tables
from bss.sweeps.trainer import Trainer
from bss.tables.joining import holds_runs
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


@pytest.fixture
def sweep_in(tiny_run, execution_in, tmp_path):
    """Trains token budgets of a run in a folder, in this process: the tables of a sweep."""

    def collect(folder, *budgets):
        engine = JointEngine(EngineConfig(devices=1))
        runs = [overlay(tiny_run, {"schedule.tokens": tokens}) for tokens in budgets]
        with Trainer(engine, execution_in(tmp_path / folder)) as trainer:
            return tables(trainer.train(runs, "sweep"), trainer)

    return collect


def test_every_budget_is_a_row_that_ends_at_its_own_tokens(sweep_in):
    both = sweep_in("both", 3000, 1000)
    assert both.finals["token_budget"].tolist() == [3000, 1000]
    assert both.finals["tokens"].tolist() == [2944, 992]
    assert both.finals[["eval_loss", "seconds"]].notna().all(axis=None)
    assert both.finals["eval_loss"].nunique() == 2
    assert not holds_runs(both.finals)
    assert both.runs["run"].nunique() == 1
    assert both.runs["tokens"].is_unique
    assert both.runs["tokens"].max() == 2944

    alone = sweep_in("alone", 1000)
    again = sweep_in("both", 1000)  # what was measured before the run went on
    for name in ("tokens", "steps", "eval_loss", "eval_loss_se"):
        assert again.finals[name].tolist() == alone.finals[name].tolist()
    curves = [swept.runs.drop(columns="seconds") for swept in (again, alone)]
    pd.testing.assert_frame_equal(*curves)


def test_what_was_not_measured_at_a_budget_is_empty(sweep_in):
    longer = sweep_in("longer", 3000)
    shorter = sweep_in("longer", 1000)
    (last,) = shorter.finals.to_dict("records")
    assert (last["token_budget"], last["tokens"]) == (1000, 992)
    assert last["tokens"] not in longer.runs["tokens"].tolist()
    for name in ("eval_loss", "eval_loss_se", "test_loss", "seconds"):
        assert pd.isna(last[name])
    kept = longer.runs[longer.runs["tokens"] <= 992].reset_index(drop=True)
    pd.testing.assert_frame_equal(shorter.runs, kept)
    assert sweep_in("longer", 3000).finals["tokens"].tolist() == [2944]


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
