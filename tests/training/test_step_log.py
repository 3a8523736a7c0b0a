"""The log of every N-th step, and evaluations every N steps or tokens."""

import csv
import dataclasses
import json
from types import SimpleNamespace

import pytest

from bss.errors import InputError
from bss.sweeps.grid import overlay
from bss.sweeps.table import step_table
from bss.training.execution import Execution
from bss.training.loggers import WeightsAndBiases
from bss.training.loop import Interrupted, train
from bss.training.run_config import evaluation_points
from bss.training.run_directory import read_curve, run_path
from bss.training.step_log import STEP_LOG_COLUMNS, StepLog, read_steps

TIMED = ("tokens_per_second", "mfu")


def untimed(path):
    return [{k: v for k, v in row.items() if k not in TIMED} for row in read_steps(path)]


def test_every_nth_step_is_in_the_log_with_the_metrics_of_its_row(tiny_run, tiny_execution):
    run = overlay(tiny_run, {"noise_scale.half_life": 1000})
    execution = dataclasses.replace(tiny_execution, log_every=1, buckets=(1, 2))
    train(run, execution)
    path = run_path(execution.runs, run)
    rows = read_steps(path)
    plan = run.plan()
    assert [row["step"] for row in rows] == [*range(1, plan.steps + 1)]
    by_tokens = {row["tokens"]: row for row in rows}
    for row in read_curve(path):
        logged = by_tokens[row["tokens"]]
        for name in ("step", "batch", "lr", "grad_norm", "noise_scale"):
            assert logged[name] == row[name], name
    between = [row["loss"] for row in rows if row["tokens"] <= read_curve(path)[0]["tokens"]]
    assert sum(between) / len(between) == pytest.approx(read_curve(path)[0]["loss"])
    assert all(row["tokens_per_second"] > 0 and row["update_norm"] > 0 for row in rows)
    assert {row["mfu"] for row in rows} == {None}  # of a CPU


def test_a_stopped_run_has_the_log_and_the_bits_of_the_whole_one(
    tiny_run, tiny_execution, stop_after, assert_same_outcome
):
    straight = dataclasses.replace(tiny_execution, runs=tiny_execution.runs + "-whole")
    train(tiny_run, straight)
    logged = dataclasses.replace(straight, runs=tiny_execution.runs + "-logged", log_every=3)
    train(tiny_run, logged)
    assert_same_outcome(tiny_run, logged, tiny_run, straight)
    execution = dataclasses.replace(tiny_execution, log_every=3, steps_per_dispatch=5)
    path = run_path(execution.runs, tiny_run)
    with pytest.raises(Interrupted):
        train(tiny_run, execution, stop=stop_after(9))
    with open(path / "steps.csv", "a") as file:
        file.write("1000000,9")  # a later row, cut by a kill
    train(tiny_run, execution)
    assert untimed(path) == untimed(run_path(logged.runs, tiny_run))
    assert [row["step"] for row in untimed(path)] == [*range(3, tiny_run.plan().steps + 1, 3)]


def test_nothing_is_logged_by_default(tiny_run, tiny_execution):
    train(tiny_run, tiny_execution)
    assert not (run_path(tiny_execution.runs, tiny_run) / "steps.csv").exists()


def test_loggers_and_the_table_have_the_same_rows(tiny_run, tiny_execution):
    own = "tests.training.own_loggers:Lines"
    execution = dataclasses.replace(tiny_execution, log_every=10, trackers=(own,))
    train(tiny_run, execution)
    path = run_path(execution.runs, tiny_run)
    lines = [json.loads(line) for line in (path / "told.jsonl").read_text().splitlines()]
    told = [row for what, row in lines if what == "step"]
    assert [row["step"] for row in told] == [row["step"] for row in read_steps(path)]
    table = step_table(path.parent)
    assert set(table["run"]) == {tiny_run.id}
    assert table["loss"].tolist() == [row["loss"] for row in told]
    with (path / "steps.csv").open() as file:
        assert tuple(next(csv.reader(file))) == STEP_LOG_COLUMNS
    with pytest.raises(
        InputError, match=r"no run has logged steps; train with execution.log_every"
    ):
        step_table(path)


def test_weights_and_biases_gets_steps_beside_the_curve():
    sent = []
    logger = WeightsAndBiases()
    logger._run = SimpleNamespace(log=sent.append)  # type: ignore[assignment]
    logger.step({"step": 3, "tokens": 96, "loss": 2.0, "noise_scale": None})
    assert sent == [{"tokens": 96, "step/step": 3, "step/loss": 2.0}]


def test_throughput_is_a_mean_since_the_row_before(tmp_path):
    log = StepLog(tmp_path, 2, lambda _: None, writable=True, peak=400.0)
    log.begin(0, 10.0)
    log.add({"tokens": 100}, 300, 13.0)  # of a dispatch of 300 tokens in 3 s
    log.end_dispatch(300, 13.0)
    log.add({"tokens": 400}, 500, 14.0)  # 200 s⁻¹: 100 tokens in 0.5 s, after 200 in 2 s
    log.end_dispatch(500, 14.0)
    rows = read_steps(tmp_path)
    assert [row["tokens_per_second"] for row in rows] == [100.0, 300 / 2.5]
    assert [row["mfu"] for row in rows] == [0.25, 300 / 2.5 / 400]


@pytest.mark.parametrize(
    ("changes", "added"),
    [
        ({"evaluation.every_tokens": 1000}, {1024, 2048, 3008, 4032, 5120, 6016, 7040, 8064}),
        ({"evaluation.every_steps": 50}, {2176, 6656}),
    ],
)
def test_further_evaluations_come_beside_those_by_efolds(tiny_run, changes, added):
    run = overlay(tiny_run, changes)
    before = evaluation_points(tiny_run, tiny_run.plan())
    assert run.id != tiny_run.id
    assert evaluation_points(run, run.plan()) >= before
    assert evaluation_points(run, run.plan()) - before <= added
    assert added <= evaluation_points(run, run.plan())


@pytest.mark.parametrize("field", ["every_steps", "every_tokens"])
def test_negative_numbers_are_one_line(tiny_run, field):
    with pytest.raises(InputError, match=rf"evaluation.{field} is -1; expected 0 or more"):
        overlay(tiny_run, {f"evaluation.{field}": -1})
    with pytest.raises(InputError, match=r"execution.log_every is -2; expected 0 or more"):
        Execution(log_every=-2)
