"""The books of one run, kept by hand: what a step adds, what a row and a report hold."""

import dataclasses
import math
from types import SimpleNamespace

import pytest

from bss.sweeps.grid import overlay
from bss.training.devices.mesh import make_mesh
from bss.training.execution import Execution, peak_flops
from bss.training.noise_scale import estimates
from bss.training.record import ledger as ledgers
from bss.training.record.ledger import Diverged, Ledger, Position, fork_points


class Books:
    """A directory and checkpoints that only remember."""

    def __init__(self, path, kept=()):
        self.path, self.kept, self.executions = path, list(kept), [{"cores": 1}]
        self.rows, self.statuses, self.saves, self.records = [], [], [], []
        self.begun, self.dropped, self.aside = [], [], []

    def begin(self, run, directory, tokens):
        pass

    def put_back(self, tokens, curve, executions):
        self.begun.append((tokens, executions))
        return curve

    def drop_newer(self, tokens):
        self.dropped.append(tokens)

    def put_aside(self, tokens, why):
        self.aside.append((tokens, why))

    def row(self, row):
        self.rows.append(dict(row))

    def end(self, status):
        self.statuses.append(status)

    def add_execution(self, record):
        self.records.append(record)
        return self.records[-2] if len(self.records) > 1 else None

    def save(self, tokens, state, record, *, fork):
        self.saves.append((tokens, record, fork))

    def tokens(self):
        return self.kept


@pytest.fixture
def opened(tiny_run, tmp_path):
    """Makes the ledger of a run, and what it is written to."""

    def make(run=tiny_run, kept=(), **execution):
        books = Books(tmp_path, kept)
        return Ledger(run, Execution(**execution), run.plan(), books, books), books  # type: ignore

    return make


def test_what_is_due_lies_on_steps_of_the_plan(opened, tiny_run):
    ledger, _ = opened(forks=(100, 1024, 8191, 8192, 9000, 0))
    assert ledger.forks == {128, 1024, 8192}
    plan = tiny_run.plan()
    assert {1024, 4096, 8192} <= ledger.rows
    asked = set(tiny_run.evaluation_tokens())
    assert ledger.rows == {plan.next_boundary(at) for at in asked} | {1024, 4096, 8192}
    branch = overlay(tiny_run, {"parent": {"run": "x", "tokens": 1024}})
    assert fork_points(branch, branch.plan(), (1024, 1025, 8192)) == {1088, 8192}


def test_steps_add_up_to_a_row_and_a_row_starts_anew(opened):
    ledger, books = opened()
    ledger.position.seconds = 3.0
    for end, loss in ((32, 4.0), (64, 3.0), (96, 2.0)):
        ledger.add_step(end, loss, 1.0, 1.0)
    position = ledger.position
    assert (position.tokens, position.step, position.loss_sum) == (96, 3, 9.0)
    assert (position.loss, position.loss_steps, ledger.first_step) == (3.0, 3, 3)
    ledger.add_row({"eval_loss": 3.5}, 0.7, noise=True)
    (row,) = books.rows
    rate = 1e-2 * (64 + 16) / 512  # at the middle of the third step, in the warm-up
    assert row == {
        "step": 3, "tokens": 96, "batch": 2, "lr": pytest.approx(rate), "loss": 3.0,
        "eval_loss": 3.5, "grad_norm": 0.7, "seconds": 3.0,
    }  # fmt: skip
    assert (position.loss, position.loss_sum, position.loss_steps) == (None, 0.0, 0)


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_what_is_not_finite_ends_the_run_where_it_is(opened, bad):
    ledger, _ = opened(kept=(64, 32))
    numbers = [1.0, 1.0, 1.0]
    numbers[bad] = math.inf
    with pytest.raises(Diverged, match="ended at 32 tokens") as raised:
        ledger.add_step(32, *numbers)
    assert raised.value.tokens == 32 and ledger.position == Position(0)
    ledger.add_step(32, 1.0, 1.0, 1.0)
    with pytest.raises(Diverged, match="at 32 tokens"):
        ledger.add_row({"eval_loss": math.nan}, 1.0, noise=False)
    assert ledger.diverged(32).last_checkpoint == 64
    failed = ledger.failed("no room")
    assert (failed.status, failed.tokens, failed.message) == ("failed", 64, "no room")
    assert opened()[0].failed("").tokens == 0
    assert opened()[0].diverged(32).last_checkpoint is None


def test_gradient_noise_is_averaged_by_the_tokens_of_a_step(opened, tiny_run):
    run = overlay(tiny_run, {"noise_scale.half_life": 64})
    ledger, books = opened(run)
    ledger.add_noise(batch=4, count=2, squares=10.0, grad_norm=2.0)
    trace, square = estimates(5.0, 4.0, 2, 2)
    assert ledger.position.noise == pytest.approx((trace / 2, square / 2))  # 64 tokens: a half
    ledger.add_step(32, 1.0, 1.0, 1.0)
    ledger.add_row({}, 1.0, noise=True)
    ledger.add_step(64, 1.0, 1.0, 1.0)
    ledger.add_row({}, 1.0, noise=False)
    assert [row["noise_scale"] for row in books.rows] == [pytest.approx(trace / square), None]


def test_a_report_counts_from_the_start_of_the_run(opened, tiny_run):
    ledger, _ = opened()
    assert ledger.standing(0.0)["tokens_per_second"] is None
    ledger.position = Position(640, step=20, seconds=3.0, loss_sum=6.0, loss_steps=2)
    told = {"run": tiny_run.id, "tokens": 640, "loss": 3.0, "tokens_per_second": 128.0}
    assert ledger.standing(2.0) == told
    branch = overlay(tiny_run, {"parent": {"run": "x", "tokens": 128}})
    ledger, _ = opened(branch)
    ledger.position = Position(640, seconds=4.0)
    assert ledger.standing(0.0)["tokens_per_second"] == 128.0


def test_saves_are_spaced_by_the_longer_of_the_time_asked_and_twenty_saves(opened, monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(ledgers, "time", clock)
    now = 100.0
    ledger, books = opened(checkpoint_seconds=10.0, forks=(64,))
    ledger.position = Position(64, step=2)
    assert not ledger.is_due()
    now = 110.0
    assert not ledger.is_due()
    now = 110.1
    assert ledger.is_due()
    ledger.save(None)  # type: ignore
    record = dataclasses.asdict(Position(64, step=2)) | {"curve": []}
    assert books.saves == [(64, record | {"executions": books.executions}, True)]
    assert (ledger.saved_at, ledger.save_seconds) == (110.1, 0.0)
    ledger.save_seconds = 1.0
    now = 130.1
    assert not ledger.is_due()
    now = 130.2
    assert ledger.is_due()
    every, books = opened(checkpoint_seconds=0.0)
    every.save_seconds, every.position = 1.0, Position(96)
    now = 130.3
    assert every.is_due()
    every.save(None)  # type: ignore
    assert books.saves[0][2] is False


def test_the_plans_end_is_the_last_step_that_is_left(opened, tiny_run):
    ledger, _ = opened(overlay(tiny_run, {"schedule.tokens": 2048}))
    ledger.position = Position(8192)
    assert ledger.first_step == ledger.plan.steps


def test_a_run_that_goes_on_elsewhere_is_warned_of(opened):
    ledger, books = opened()
    mesh = make_mesh(1)
    ledger.note_execution(mesh, "reference")
    ledger.note_execution(mesh, "reference")
    assert books.records[0] == books.records[1]
    with pytest.warns(RuntimeWarning, match=r"\(.*fleet.*\): not bit-identical"):
        ledger.note_execution(mesh, "own", fleet=2)


def test_the_last_row_and_the_speed_of_every_batch_are_the_final_numbers(opened):
    ledger, _ = opened()
    rows = [
        {"batch": 2, "tokens": 100, "seconds": 1.0, "loss": 4.0, "eval_loss": 3.0},
        {"batch": 2, "tokens": 300, "seconds": 2.0, "loss": 3.0, "eval_loss": 2.0},
    ]
    ledger.curve = rows
    ledger.position = Position(8192, step=7, seconds=2.0)
    status = ledger.finished({"test_loss": 2.5}, make_mesh(1), 3, 1)
    assert status.losses == {"loss": 3.0, "eval_loss": 2.0, "test_loss": 2.5}
    assert (status.step, status.programs, status.recompilations) == (7, 3, 1)
    assert (status.tokens, status.seconds, status.remainder_tokens) == (8192, 2.0, 0)
    (speed,) = status.throughput
    flops = ledger.run.model.training_flops_per_token(16)
    assert speed.mfu == pytest.approx(150.0 * flops / (peak_flops() or 0))
    ledger.curve = []
    assert ledger.finished({}, make_mesh(1), 3, 1).losses == {"loss": None}


def test_it_goes_on_from_a_checkpoint_with_the_curve_that_it_holds(opened, tiny_run):
    ledger, books = opened()
    rows = [{"tokens": 32, "loss": 2.0}]
    ledger.begin(Position(64, step=2), {"curve": rows, "executions": [{"cores": 2}]})
    assert books.begun == [(64, [{"cores": 2}])] and books.dropped == [64]
    assert (ledger.curve, ledger.position.tokens, ledger.restored_at) == (rows, 64, 64)
    ledger.add_step(96, 1.0, 1.0, 1.0)
    ledger.add_row({}, 1.0, noise=False)
    assert [row["tokens"] for row in ledger.curve] == [32, 96] and len(rows) == 1
    ledger.begin(Position(0), None)
    assert (ledger.curve, ledger.restored_at) == ([], None)


def test_what_diverges_right_behind_a_checkpoint_is_doubted_once(opened):
    ledger, books = opened()
    assert not ledger.is_doubtful(Diverged(32))  # there is no checkpoint
    ledger.begin(Position(64, step=2), {"curve": []})
    assert ledger.is_doubtful(Diverged(96))
    assert not ledger.is_doubtful(Diverged(128))
    ledger.doubt()
    assert books.aside == [(64, "was not finite after one step")]
    assert not ledger.is_doubtful(Diverged(96))
