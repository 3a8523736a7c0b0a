"""One run from end to end: rows, programs, devices, interruption, divergence, branches."""

import dataclasses
import math
from pathlib import Path

import pytest

from bss.errors import InputError
from bss.sweeps.grid import overlay
from bss.training.checkpoint import open_checkpoints
from bss.training.loop import Interrupted, train
from bss.training.run_config import Parent, fork_points
from bss.training.run_directory import RunStatus, open_run, read_curve, read_status


def elsewhere(execution, name, **changes):
    """The same execution with another runs directory."""
    return dataclasses.replace(execution, runs=f"{execution.runs}-{name}", **changes)


@pytest.fixture(scope="module")
def whole(tiny_run, execution_in, tmp_path_factory):
    """The uninterrupted run, trained once."""
    execution = execution_in(tmp_path_factory.mktemp("whole"), forks=(2048, 4100))
    return execution, train(tiny_run, execution)


def directory_of(run, execution) -> Path:
    return Path(execution.runs) / run.id


def test_a_run_finishes_and_compiles_each_bucket_once(tiny_run, whole):
    _, status = whole
    plan = tiny_run.plan()
    assert [s.batch for s in plan.segments] == [2, 4, 8]
    assert (status.status, status.tokens) == ("finished", 8192)
    assert (status.step, status.remainder_tokens) == (plan.steps, 0)
    assert (status.programs, status.recompilations) == (2, 0)
    assert [t.batch for t in status.throughput] == [2, 4, 8]
    assert sum(t.tokens for t in status.throughput) == 8192


def test_rows_stand_on_the_grid_and_at_batch_changes(tiny_run, whole):
    rows = read_curve(directory_of(tiny_run, whole[0]))
    plan = tiny_run.plan()
    grid = [round(500 * math.exp(k / 4)) for k in range(12)]  # 500 * e^(11/4) = 7821 < 8192
    expected = sorted({plan.next_boundary(t) for t in grid} | {1024, 4096, 8192})
    assert [row["tokens"] for row in rows] == expected
    assert [row["step"] for row in rows] == [plan.step_at(t) for t in expected]
    assert [row["batch"] for row in rows] == [
        2 if t <= 1024 else 4 if t <= 4096 else 8 for t in expected
    ]
    assert [row["lr"] for row in rows] == [plan.at(row["step"] - 1).settings.lr for row in rows]
    assert rows[-1]["eval_loss"] < rows[0]["eval_loss"] - 0.5
    for row in rows:
        assert row["bits_per_byte"] == pytest.approx(row["eval_loss"] / math.log(2), rel=0.02)


def test_the_evaluation_grid_does_not_depend_on_the_stop(tiny_run):
    longer = overlay(tiny_run, {"schedule.tokens": 100_000})
    short = tiny_run.evaluation_tokens()
    assert longer.evaluation_tokens()[: len(short)] == short
    assert longer.id == tiny_run.id


def test_a_finished_run_is_a_no_op(tiny_run, whole, monkeypatch):
    execution, status = whole
    monkeypatch.setattr("bss.training.loop.open_source", None)
    assert train(tiny_run, execution) == status


def test_a_smaller_budget_of_a_finished_run_is_cut_at_its_own_tokens(tiny_run, whole, monkeypatch):
    execution, status = whole
    monkeypatch.setattr("bss.training.loop.open_source", None)
    rows = read_curve(directory_of(tiny_run, execution))
    measured = rows[len(rows) // 2]
    cut = train(overlay(tiny_run, {"schedule.tokens": measured["tokens"] + 1}), execution)
    assert (cut.status, cut.tokens, cut.step) == ("finished", measured["tokens"], measured["step"])
    assert cut.losses["eval_loss"] == measured["eval_loss"] != status.losses["eval_loss"]
    assert cut.losses["test_loss"] is None
    between = overlay(tiny_run, {"schedule.tokens": measured["tokens"] + 64})
    cut = train(between, execution)
    assert (cut.tokens, cut.step) == (between.plan().tokens, between.plan().steps)
    assert {*cut.losses} >= {"loss", "eval_loss", "test_loss"}
    assert {*cut.losses.values()} == {None}
    assert train(tiny_run, execution) == status


@pytest.mark.parametrize(
    ("steps", "stops"),
    [(1, [1, 31, 50]), (3, [2, 9, 14]), pytest.param(0, [2, 1, 3], marks=pytest.mark.slow)],
)
def test_interrupted_anywhere_and_resumed_is_bit_identical(
    tiny_run, tiny_execution, whole, stop_after, assert_same_outcome, steps, stops
):
    execution = dataclasses.replace(tiny_execution, forks=whole[0].forks, steps_per_dispatch=steps)
    _interrupt(tiny_run, execution, [stop_after(asked) for asked in stops])
    assert train(tiny_run, execution).status == "finished"
    assert_same_outcome(tiny_run, execution, tiny_run, whole[0])
    with open_checkpoints(directory_of(tiny_run, execution)) as checkpoints:
        assert sorted(checkpoints._forks.all_steps()) == [2048, 4224]


def _interrupt(run, execution, stops):
    """Start a run so many times: it stops within a batch, and about the changes."""
    for stop in stops:
        with pytest.raises(Interrupted):
            train(run, execution, stop=stop)
        assert read_status(directory_of(run, execution)).status == "interrupted"


def test_another_number_of_steps_per_dispatch_after_each_stop_changes_no_bit(
    tiny_run, tiny_execution, whole, stop_after, assert_same_outcome, recwarn
):
    execution = dataclasses.replace(tiny_execution, forks=whole[0].forks)
    for steps, asked in ((7, 3), (1, 40), (64, 2)):
        execution = dataclasses.replace(execution, steps_per_dispatch=steps)
        _interrupt(tiny_run, execution, [stop_after(asked)])
    train(tiny_run, dataclasses.replace(execution, steps_per_dispatch=2))
    assert_same_outcome(tiny_run, execution, tiny_run, whole[0])
    assert not [one for one in recwarn if "another execution" in str(one.message)]


@pytest.mark.slow
def test_two_devices_interrupted_anywhere_and_resumed_are_bit_identical(
    tiny_run, tiny_execution, stop_after, assert_same_outcome
):
    short = overlay(tiny_run, {"schedule.tokens": 2048, "schedule.batch": "0:2 512:4 1024:8"})
    execution = dataclasses.replace(tiny_execution, devices=2, steps_per_dispatch=0)
    straight = elsewhere(execution, "straight")
    train(short, straight)
    _interrupt(short, execution, [stop_after(5), stop_after(12), stop_after(9)])
    train(short, execution)
    assert_same_outcome(short, execution, short, straight)


def test_a_fork_asked_for_behind_the_last_step_is_kept_at_its_end(tiny_run):
    run = overlay(tiny_run, {"schedule.tokens": 8200})
    plan = run.plan()
    assert plan.remainder_tokens == 8
    assert fork_points(run, plan, (2048, 8200, 9000)) == {2048, 8192}


@pytest.mark.parametrize("middle", [(), pytest.param((4000, 6000), marks=pytest.mark.slow)])
def test_a_finished_run_that_goes_on_equals_one_that_never_ended(
    tiny_run, tiny_execution, whole, assert_same_outcome, middle
):
    execution = dataclasses.replace(tiny_execution, forks=whole[0].forks)
    ended = {}
    for tokens in (3000, *middle):
        shorter = overlay(tiny_run, {"schedule.tokens": tokens})
        assert shorter.id == tiny_run.id
        ended[tokens] = train(shorter, execution)
        assert ended[tokens].tokens == shorter.plan().tokens
    assert train(tiny_run, execution).tokens == 8192
    assert_same_outcome(tiny_run, execution, tiny_run, whole[0])
    for tokens, status in ended.items():  # what was measured there is not lost
        assert train(overlay(tiny_run, {"schedule.tokens": tokens}), execution) == status


def test_an_interrupted_trunk_asked_for_less_is_done(tiny_run, tiny_execution, stop_after):
    with pytest.raises(Interrupted):
        train(tiny_run, tiny_execution, stop=stop_after(70))
    stopped = read_status(directory_of(tiny_run, tiny_execution))
    status = train(overlay(tiny_run, {"schedule.tokens": 1024}), tiny_execution)
    assert stopped.tokens > 1024
    assert (status.status, status.tokens) == ("finished", 1024)
    assert read_status(directory_of(tiny_run, tiny_execution)) == stopped


@pytest.mark.slow
def test_checkpoints_at_every_step_change_nothing(
    tiny_run, tiny_execution, whole, assert_same_outcome
):
    often = dataclasses.replace(tiny_execution, checkpoint_seconds=0)
    short = overlay(tiny_run, {"schedule.tokens": 512})
    train(short, often)
    with open_checkpoints(directory_of(short, often)) as checkpoints:
        assert checkpoints.tokens() == [512, 480]
        assert sorted(checkpoints._forks.all_steps()) == []
    rows = read_curve(directory_of(short, often))
    straight = read_curve(directory_of(tiny_run, whole[0]))[: len(rows)]
    assert [r["eval_loss"] for r in rows] == [r["eval_loss"] for r in straight]


@pytest.mark.slow
def test_two_devices_train_as_one(tiny_run, tiny_execution):
    short = overlay(
        tiny_run,
        {
            "schedule.tokens": 20 * 64,
            "schedule.batch": "4",
            "schedule.warmup": 64,
            "evaluation.per_efold": 60,
            "evaluation.first": 64,
        },
    )
    losses = []
    for devices in (1, 2):
        execution = elsewhere(tiny_execution, devices, devices=devices, buckets=(4,))
        train(short, execution)
        rows = read_curve(directory_of(short, execution))
        losses.append([(row["loss"], row["eval_loss"], row["grad_norm"]) for row in rows])
    assert len(losses[0]) == 20
    for one, two in zip(*losses, strict=True):
        assert one == pytest.approx(two, rel=1e-4)


def test_a_bucket_that_devices_cannot_share_is_refused(tiny_run, tiny_execution):
    three = overlay(tiny_run, {"schedule.batch": "3"})
    execution = dataclasses.replace(tiny_execution, devices=2, buckets=(3,))
    with pytest.raises(InputError, match="bucket 3 cannot be split over 2 devices"):
        train(three, execution)
    with pytest.raises(InputError, match=r"execution\.devices is 3; this machine has 2"):
        train(tiny_run, dataclasses.replace(tiny_execution, devices=3))


def test_a_diverging_run_stops_and_keeps_a_good_checkpoint(tiny_run, tiny_execution):
    wild = overlay(tiny_run, {"optimizer.lr": 1e30, "optimizer.clip": 0, "schedule.warmup": 0})
    status = train(wild, dataclasses.replace(tiny_execution, checkpoint_seconds=0))
    assert status == RunStatus("diverged", 32, last_checkpoint=None)
    assert train(wild, tiny_execution) == status


def test_divergence_after_a_checkpoint_keeps_it_finite(
    tiny_run, tiny_execution, monkeypatch, assert_same_outcome
):
    from bss.training import batches

    honest = batches.step_settings

    def poisoned(spec, *rest):
        settings = honest(spec, *rest)
        return settings._replace(lr=float("nan")) if spec.step == 20 else settings

    monkeypatch.setattr("bss.training.batches.step_settings", poisoned)
    execution = dataclasses.replace(tiny_execution, checkpoint_seconds=0)
    status = train(tiny_run, execution)
    assert status == RunStatus("diverged", 21 * 32, last_checkpoint=20 * 32)
    monkeypatch.undo()
    rows = read_curve(directory_of(tiny_run, execution))
    assert [r["tokens"] for r in rows] == [512]
    assert_same_outcome(tiny_run, execution, tiny_run, execution)


def test_a_finished_run_that_lost_rows_gets_them_back(tiny_run, tiny_execution):
    short = overlay(tiny_run, {"schedule.tokens": 1024})
    status, file = train(short, tiny_execution), directory_of(tiny_run, tiny_execution)
    whole = read_curve(file)
    (file / "curve.jsonl").write_text(f"{(file / 'curve.jsonl').read_text().splitlines()[0]}\n")
    assert read_status(file).status == "damaged"
    with pytest.warns(RuntimeWarning, match=f"{len(whole) - 1} of {len(whole)} rows to 1024 tok"):
        again = train(short, tiny_execution)
    assert again.losses == status.losses and read_status(file) == again
    assert read_curve(file) == whole


def test_a_second_writer_is_refused(tiny_run, tiny_execution):
    with (
        open_run(directory_of(tiny_run, tiny_execution)),
        pytest.raises(InputError, match="is being written by another process"),
    ):
        train(tiny_run, tiny_execution)


def test_another_execution_is_told(tiny_run, tiny_execution, stop_after):
    with pytest.raises(Interrupted):
        train(tiny_run, tiny_execution, stop=stop_after(3))
    changed = dataclasses.replace(tiny_execution, buckets=(2,))
    with (
        pytest.warns(RuntimeWarning, match=r"another execution \(buckets\)"),
        pytest.raises(Interrupted),
    ):
        train(tiny_run, changed, stop=stop_after(3))


def test_a_decay_branch_equals_the_run_with_that_decay(
    tiny_run, tiny_execution, whole, assert_same_outcome
):
    decayed = overlay(
        tiny_run, {"schedule.tokens": 6144, "schedule.decay": 2048, "schedule.batch": "0:2 1024:4"}
    )
    stable = overlay(decayed, {"schedule.decay": 0})
    fork = 4096
    execution = dataclasses.replace(tiny_execution, forks=(fork,))
    train(overlay(stable, {"schedule.tokens": fork}), execution)
    branch = dataclasses.replace(decayed, parent=Parent(stable.id, fork))
    assert len({branch.id, decayed.id, stable.id}) == 3
    assert train(branch, execution).tokens == 6144
    straight = elsewhere(tiny_execution, "straight")
    train(decayed, straight)
    # The row at the fork is the trunk's last; the loss between two rows is averaged from there.
    assert_same_outcome(branch, execution, decayed, straight, since=_row_after(decayed, straight))


def _row_after(run, execution) -> int:
    """A row of the straight run past the fork at 4096, up to which averages differ."""
    return next(r["tokens"] for r in read_curve(directory_of(run, execution)) if r["tokens"] > 4096)


@pytest.mark.slow
def test_a_late_switch_branch_equals_the_two_stage_run(
    tiny_run, whole, tiny_execution, assert_same_outcome
):
    fork = 4224  # 4100 tokens, at the next step boundary
    switched = overlay(tiny_run, {"schedule.batch": f"0:2 1024:4 4096:8 {fork}:4"})
    branch = dataclasses.replace(switched, parent=Parent(tiny_run.id, fork))
    execution = whole[0]
    train(branch, execution)
    straight = elsewhere(tiny_execution, "straight")
    train(switched, straight)
    assert_same_outcome(branch, execution, switched, straight, since=fork)


@pytest.mark.slow
def test_a_branch_may_have_longer_sequences_held_out_on_those_of_its_parent(tiny_run, whole):
    execution, _ = whole
    fork, length = 4224, tiny_run.data.seq_len
    still = overlay(tiny_run, {"optimizer.lr": 1e-30})  # the weights stay as they are
    longer = {"data.seq_len": 2 * length, "evaluation.seq_len": length}
    statuses = [
        train(
            dataclasses.replace(overlay(still, changes), parent=Parent(tiny_run.id, fork)),
            execution,
        )
        for changes in ({}, longer)
    ]
    assert statuses[0].losses["eval_loss"] == pytest.approx(
        statuses[1].losses["eval_loss"], rel=1e-6
    )
    assert statuses[1].step < statuses[0].step  # twice the tokens in a step


def test_a_missing_fork_is_refused(tiny_run, whole):
    execution, _ = whole
    lost = dataclasses.replace(tiny_run, parent=Parent(tiny_run.id, 3072))
    with pytest.raises(InputError, match=r"parent.tokens is 3072; .* fork points at 2048, 4224"):
        train(lost, execution)
    orphan = dataclasses.replace(tiny_run, parent=Parent("0" * 12, 3072))
    with pytest.raises(InputError, match="has fork points at none"):
        train(orphan, execution)


def test_other_tokens_are_refused(tiny_run, tiny_execution):
    foreign = overlay(tiny_run, {"data.content": "0" * 64})
    with pytest.raises(InputError, match="have hash"):
        train(foreign, tiny_execution)


def test_held_out_tokens_are_checked_before_anything_is_trained(tiny_run, tiny_execution):
    greedy = overlay(tiny_run, {"evaluation.test_tokens": 10**9})
    with pytest.raises(InputError, match="test split"):
        train(greedy, tiny_execution)
    assert read_curve(directory_of(greedy, tiny_execution)) == []


@pytest.mark.slow
def test_a_fork_point_asked_for_later_is_made_and_changes_nothing(
    tiny_run, tiny_execution, whole, assert_same_outcome
):
    first = dataclasses.replace(tiny_execution, forks=(4096,))
    train(tiny_run, first)
    both = dataclasses.replace(first, forks=(1500, 4096, 6000))
    train(tiny_run, both)
    with open_checkpoints(directory_of(tiny_run, both)) as checkpoints:
        assert sorted(checkpoints._forks.all_steps()) == [1536, 4096, 6016]
    assert_same_outcome(tiny_run, both, tiny_run, whole[0])
