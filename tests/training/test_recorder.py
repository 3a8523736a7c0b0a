"""What a recorder adds for steps, rows, saves and progress reports."""

import dataclasses
from types import SimpleNamespace

import pytest

from bss.sweeps.grid import overlay
from bss.training import recorder as recorders
from bss.training.execution import Execution
from bss.training.loggers import Loggers
from bss.training.noise_scale import noise_estimates
from bss.training.recorder import RunRecorder, TrainPosition
from bss.training.sharding import make_mesh


class Books:
    """A directory and checkpoints that only remember."""

    def __init__(self, path):
        self.path, self.rows, self.saves = path, [], []

    def add_row(self, row):
        self.rows.append(dict(row))

    def save(self, tokens, state, record, *, fork):
        self.saves.append((tokens, record, fork))


@pytest.fixture
def opened(tiny_run, tmp_path):
    """Make the recorder of a run, and what it writes to."""

    def make(run=tiny_run, **execution):
        books = Books(tmp_path)
        execution = Execution(**execution)
        plan = execution.plan(run)
        return RunRecorder(run, plan, execution, books, books, Loggers(())), books  # type: ignore

    return make


def test_gradient_noise_is_averaged_by_the_tokens_of_a_step(opened, tiny_run):
    run = overlay(tiny_run, {"noise_scale.half_life": 64})
    recorder, books = opened(run)
    recorder.add_noise(batch=4, count=2, squares=10.0, grad_norm=2.0)
    trace, square = noise_estimates(5.0, 4.0, 2, 2)
    position = recorder.position  # 64 tokens: a half
    assert (position.noise_trace, position.noise_square) == pytest.approx((trace / 2, square / 2))
    recorder.add_step(32, 1.0, 1.0, 1.0)
    recorder.add_row({}, 1.0, noise=True)
    recorder.add_step(64, 1.0, 1.0, 1.0)
    recorder.add_row({}, 1.0, noise=False)
    assert [row["noise_scale"] for row in books.rows] == [pytest.approx(trace / square), None]


def test_a_report_counts_from_the_start_of_the_run(opened, tiny_run):
    recorder, _ = opened()
    assert recorder.progress(0.0)["tokens_per_second"] is None
    recorder.position = TrainPosition(640, step=20, seconds=3.0, loss_sum=6.0, loss_steps=2)
    told = {"run": tiny_run.id, "tokens": 640, "loss": 3.0, "tokens_per_second": 128.0}
    assert recorder.progress(2.0) == told
    branch = overlay(tiny_run, {"parent": {"run": "abc", "tokens": 128}})
    recorder, _ = opened(branch)
    recorder.position = TrainPosition(640, seconds=4.0)
    assert recorder.progress(0.0)["tokens_per_second"] == 128.0


def test_saves_are_spaced_by_the_longer_of_the_time_asked_and_twenty_saves(opened, monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(recorders, "time", clock)
    now = 100.0
    recorder, books = opened(checkpoint_seconds=10.0, forks=(64,))
    recorder.position = TrainPosition(64, step=2)
    assert not recorder.save_is_due()
    now = 110.0
    assert not recorder.save_is_due()
    now = 110.1
    assert recorder.save_is_due()
    recorder.save(None)  # type: ignore
    record = dataclasses.asdict(TrainPosition(64, step=2)) | {"curve": []}
    assert books.saves == [(64, record, True)]
    assert (recorder.saved_at, recorder.save_seconds) == (110.1, 0.0)
    recorder.save_seconds = 1.0
    now = 130.1
    assert not recorder.save_is_due()
    now = 130.2
    assert recorder.save_is_due()
    every, books = opened(checkpoint_seconds=0.0)
    every.save_seconds, every.position = 1.0, TrainPosition(96)
    now = 130.3
    assert every.save_is_due()
    every.save(None)  # type: ignore
    assert books.saves[0][2] is False


def test_the_last_row_and_the_speed_of_every_batch_are_the_final_numbers(opened, monkeypatch):
    monkeypatch.setattr("bss.training.recorder.peak_flops", lambda: 1e9)
    recorder, _ = opened()
    rows = [
        {"batch": 2, "tokens": 100, "seconds": 1.0, "loss": 4.0, "eval_loss": 3.0},
        {"batch": 2, "tokens": 300, "seconds": 2.0, "loss": 3.0, "eval_loss": 2.0},
    ]
    recorder.curve = rows
    recorder.position = TrainPosition(8192, step=7, seconds=2.0)
    status = recorder.finished({"test_loss": 2.5}, make_mesh(1), 3, 1)
    assert status.losses == {"loss": 3.0, "eval_loss": 2.0, "test_loss": 2.5}
    assert (status.step, status.programs, status.recompilations) == (7, 3, 1)
    assert (status.tokens, status.seconds, status.remainder_tokens) == (8192, 2.0, 0)
    (speed,) = status.throughput
    flops = recorder.run.model.training_flops_per_token(16)
    assert speed.mfu == pytest.approx(150.0 * flops / 1e9)
    recorder.curve = []
    assert recorder.finished({}, make_mesh(1), 3, 1).losses == {"loss": None}
