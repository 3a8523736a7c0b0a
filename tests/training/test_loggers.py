"""Loggers receive every row, however runs are trained, and cannot harm a run."""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bss.errors import InputError
from bss.sweeps.grid import overlay
from bss.training.loggers import WeightsAndBiases
from bss.training.loop import Interrupted, train, train_vmapped
from bss.training.run_directory import RunStatus, read_curve, run_path

OWN = "tests.training.own_loggers"


def told(run, execution):
    """What the tracker that writes lines was told of a run."""
    file = run_path(execution.runs, run) / "told.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def with_loggers(execution, *names):
    return replace(execution, trackers=names)


def test_it_is_told_the_beginning_every_row_and_the_end(tiny_run, tiny_execution, stop_after):
    execution = with_loggers(tiny_execution, f"{OWN}:Lines")
    with pytest.raises(Interrupted):
        train(tiny_run, execution, stop=stop_after(60))
    train(tiny_run, execution)
    path, lines = run_path(execution.runs, tiny_run), told(tiny_run, execution)
    first, second = (place for place, (what, _) in enumerate(lines) if what == "begin")
    assert lines[first][1] == 0 < lines[second][1]
    assert lines[second - 1] == ["end", "interrupted"]
    assert lines[-1] == ["end", "finished"]
    rows = {row["tokens"]: row for what, row in lines if what == "row"}
    assert list(rows.values()) == read_curve(path)


@pytest.mark.slow
def test_fleets_tell_it_of_each_run(tiny_run, tiny_execution):
    runs = [overlay(tiny_run, {"seed": seed, "schedule.tokens": 1024}) for seed in (0, 1)]
    execution = with_loggers(tiny_execution, f"{OWN}:Lines")
    train_vmapped(runs, replace(execution, devices=1))
    for run in runs:
        lines = told(run, execution)
        assert [what for what, _ in lines[:2]] == ["begin", "row"]
        rows = read_curve(run_path(execution.runs, run))
        assert [row for what, row in lines if what == "row"] == rows


def test_one_that_raises_is_told_once_and_the_run_is_the_same(
    tiny_run, tiny_execution, assert_same_outcome
):
    straight = replace(tiny_execution, runs=f"{tiny_execution.runs}-straight")
    train(tiny_run, straight)
    execution = with_loggers(tiny_execution, f"{OWN}:Raises", f"{OWN}:Lines")
    with pytest.warns(
        RuntimeWarning, match="OSError: the service is down; training continues"
    ) as said:
        status = train(tiny_run, execution)
    assert len([one for one in said if "service is down" in str(one.message)]) == 1
    assert status.finished
    assert_same_outcome(tiny_run, execution, tiny_run, straight)
    assert told(tiny_run, execution)[-1] == ["end", "finished"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tensorbord", "did you mean 'tensorboard'"),
        (f"{OWN}:NOT_A_CLASS", "expected a class made of Logger"),
        ("tests.training.missing:Tracker", "cannot be imported"),
        (f"{OWN}:NotInstalled", r"needs not_there, .* pip install 'batch-size-scaling\[there\]'"),
    ],
)
def test_what_is_no_logger_is_one_line_before_anything_is_written(
    tiny_run, tiny_execution, name, expected
):
    with pytest.raises(InputError, match=f"execution.trackers: .*{expected}"):
        train(tiny_run, with_loggers(tiny_execution, name))
    assert not Path(tiny_execution.runs, tiny_run.id).exists()


@pytest.mark.slow
def test_tensorboard_holds_the_curve(tiny_run, tiny_execution, stop_after):
    """Read by our own importer; what is repeated after a stop takes the place of what was there."""
    pytest.importorskip("tensorboardX")
    execution = with_loggers(tiny_execution, "tensorboard")
    with pytest.raises(Interrupted):
        train(tiny_run, execution, stop=stop_after(60))
    train(tiny_run, execution)
    path = run_path(execution.runs, tiny_run)
    scalars = scalars_of(path / "tensorboard")
    for row in read_curve(path):
        for name in ("loss", "eval_loss", "eval_loss_se", "lr"):
            assert np.float32(row[name]) == scalars[name][row["tokens"]], name


def scalars_of(folder):
    """By tag and step."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {
        tag: {one.step: np.float32(one.value) for one in events.Scalars(tag)}
        for tag in events.Tags()["scalars"]
    }


@pytest.mark.slow
def test_wandb_offline_keeps_the_curve(tiny_run, tiny_execution, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    execution = with_loggers(tiny_execution, "wandb")
    short = overlay(tiny_run, {"schedule.tokens": 1024})
    other = overlay(short, {"seed": 1})
    train_vmapped([short, other], replace(execution, devices=1))
    for run in (short, other):
        path = run_path(execution.runs, run)
        (file,) = path.glob("wandb/offline-run-*/*.wandb")
        assert json.loads((path / "wandb.json").read_text())["id"] in file.name
        losses = [row["eval_loss"] for row in read_curve(path)]
        for _ in range(300):  # W&B's own process may write after the run has finished
            if len(wandb_rows(file)) >= len(losses):
                break
            time.sleep(0.1)
        assert wandb_rows(file) == pytest.approx(losses)


@pytest.mark.parametrize(("outcome", "code"), [("finished", 0), ("diverged", 1)])
def test_wandb_is_told_how_it_ended(tiny_run, tmp_path, monkeypatch, outcome, code):
    codes = []
    wandb_run = SimpleNamespace(
        define_metric=lambda *_, **__: None,
        summary={},
        finish=lambda exit_code: codes.append(exit_code),
    )
    stub = SimpleNamespace(init=lambda **_: wandb_run, Settings=dict)
    monkeypatch.setitem(sys.modules, "wandb", stub)
    logger = WeightsAndBiases()
    logger.begin(tiny_run, tmp_path, 0)
    logger.end(RunStatus(outcome, tokens=7))
    assert codes == [code]
    assert wandb_run.summary["status"] == outcome


def test_a_page_of_wandb_is_of_one_directory_and_is_continued(tiny_run, tmp_path, monkeypatch):
    opened = []

    def init(**given):
        opened.append(given)
        return SimpleNamespace(define_metric=lambda *_, **__: None)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init, Settings=dict))
    for folder in ("mine", "mine", "a-colleagues"):
        (tmp_path / folder).mkdir(exist_ok=True)
        WeightsAndBiases().begin(tiny_run, tmp_path / folder, 0)
    (tmp_path / "mine" / "wandb.json").write_text("damaged")
    WeightsAndBiases().begin(tiny_run, tmp_path / "mine", 0)
    first, resumed, other, renewed = (given["id"] for given in opened)
    assert first == resumed
    assert len({first, other, renewed, tiny_run.id}) == 4
    assert {given["name"] for given in opened} == {tiny_run.id}


def wandb_rows(file):
    """The held-out losses of W&B's own record."""
    from wandb.proto import wandb_internal_pb2

    losses = []
    for data in log_records(file.read_bytes()[7:], at=7):
        record = wandb_internal_pb2.Record.FromString(data)  # type: ignore[attr-defined]
        items = {item.key or item.nested_key[0]: item for item in record.history.item}
        if "eval_loss" in items:
            losses.append(json.loads(items["eval_loss"].value_json))
    return losses


def log_records(data, at):
    """Of LevelDB's log format: parts with a header of 7 bytes, in blocks of 32 KiB."""
    record, place = b"", 0
    while place + 7 <= len(data):
        if (left := 2**15 - (at + place) % 2**15) < 7:
            place += left
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""
