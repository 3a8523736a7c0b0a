"""Runs side by side: the numbers that each has alone, and directories as if it were."""

import dataclasses
import itertools
import shutil

import pytest

from bss.errors import InputError
from bss.sweeps.grid import overlay
from bss.sweeps.local import LocalEngine
from bss.sweeps.setup import EngineConfig
from bss.training.loop import Interrupted, train, train_vmapped
from bss.training.run_config import Parent
from bss.training.run_directory import read_curve, read_executions, read_status, run_path
from bss.training.vmapped import vmap_key


def members(run, **changes):
    """Two data seeds by two rates, short: one change of the batch."""
    short = overlay(run, {"schedule.tokens": 2048, "averages": ("4%",), **changes})
    pairs = itertools.product((0, 1), (5e-3, 1e-2))
    return [overlay(short, {"seed": s, "data.seed": s, "optimizer.lr": lr}) for s, lr in pairs]


def curve(execution, run):
    rows = read_curve(run_path(execution.runs, run))
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


UNCLIPPED = {"optimizer.clip": 0.0, "schedule.batch": "4", "averages": ()}


@pytest.fixture(scope="module")
def side_by_side(tiny_run, execution_in, tmp_path_factory):
    runs = members(tiny_run, **{"evaluation.test_tokens": 160})
    execution = execution_in(tmp_path_factory.mktemp("fleet"), forks=(1024,))
    return runs, execution, train_vmapped(runs, execution)


@pytest.mark.parametrize(
    "kind", ["tiny_run", pytest.param("tiny_transformer", marks=pytest.mark.slow)]
)
def test_every_run_has_the_numbers_that_it_has_alone(kind, request, execution_in, tmp_path):
    changes = {"schedule.tokens": 1024, "schedule.batch": "4", "evaluation.test_tokens": 160}
    pair = members(request.getfixturevalue(kind), **changes)[1:3]
    execution, alone = execution_in(tmp_path / "fleet"), execution_in(tmp_path / "alone")
    statuses, status = train_vmapped(pair, execution), train(pair[1], alone)
    mine = statuses[pair[1].id]
    assert (mine.status, mine.tokens, mine.step) == ("finished", status.tokens, status.step)
    assert mine.recompilations == 0
    assert mine.losses == pytest.approx(status.losses, rel=1e-4)
    rows, expected = curve(execution, pair[1]), curve(alone, pair[1])
    assert rows == [pytest.approx(row, rel=1e-4) for row in expected]
    (record,) = read_executions(run_path(execution.runs, pair[1]))
    assert record["vmap_runs"] == 2
    assert len({one.losses["eval_loss"] for one in statuses.values()}) == 2


@pytest.mark.slow
def test_a_finished_fleet_is_a_no_op(side_by_side, monkeypatch):
    runs, execution, statuses = side_by_side
    monkeypatch.setattr("bss.training.loop.open_source", None)
    assert train_vmapped(runs, execution) == statuses


@pytest.mark.slow
def test_interrupted_and_killed_while_it_saves_it_ends_bit_identical(
    side_by_side, tiny_execution, stop_after
):
    runs, whole, _ = side_by_side
    execution = dataclasses.replace(tiny_execution, forks=whole.forks)
    with pytest.raises(Interrupted):
        train_vmapped(runs, execution, stop=stop_after(3))
    stopped = read_status(run_path(execution.runs, runs[2]))
    assert stopped.status == "interrupted"
    assert 0 < stopped.tokens < 2048
    with pytest.raises(Interrupted):
        train_vmapped(
            runs, dataclasses.replace(execution, checkpoint_seconds=0), stop=stop_after(4)
        )
    paths = [run_path(execution.runs, run) for run in runs]
    kept = [sorted(int(path.name) for path in one.glob("checkpoints/*")) for one in paths]
    assert kept == 4 * [kept[0]] and len(kept[0]) == 2
    for path in paths[2:]:  # these were not saved when the process was killed
        shutil.rmtree(path / "checkpoints" / str(kept[0][1]))
    train_vmapped(runs, execution)
    for run, path in zip(runs, paths, strict=True):
        assert [record["vmap_runs"] for record in read_executions(path)] == [4, 4, 4]
        assert curve(execution, run) == curve(whole, run)


@pytest.mark.slow
def test_one_that_diverges_ends_and_the_others_go_on(tiny_run, tiny_execution):
    runs = members(tiny_run, **UNCLIPPED)[:2]
    runs[1] = overlay(runs[1], {"optimizer.lr": 1e38})
    statuses = train_vmapped(runs, tiny_execution)
    assert [statuses[run.id].status for run in runs] == ["finished", "diverged"]
    assert 0 < statuses[runs[1].id].tokens < 2048
    assert curve(tiny_execution, runs[0])[-1]["tokens"] == 2048


@pytest.mark.slow
def test_a_fleet_ends_with_its_last_run(tiny_run, tiny_execution):
    runs = members(tiny_run, **UNCLIPPED)[::2]
    runs = [overlay(run, {"optimizer.lr": 1e38}) for run in runs]
    statuses = train_vmapped(runs, dataclasses.replace(tiny_execution, checkpoint_seconds=0))
    assert {status.status for status in statuses.values()} == {"diverged"}


@pytest.mark.slow
def test_an_engine_trains_trunks_and_branches_side_by_side(tiny_run, tiny_execution):
    trunks = members(tiny_run)[:2]
    execution = dataclasses.replace(tiny_execution, forks=(1024,))
    changes = {"schedule.rate": "wsd", "schedule.decay": 512}
    branches = [
        dataclasses.replace(overlay(run, changes), parent=Parent(run.id, 1024)) for run in trunks
    ]
    with LocalEngine(EngineConfig(workers=1, vmap_runs=2, retries=0)) as engine:
        statuses = engine.train([*branches, *trunks], execution)
    assert {status.status for status in statuses.values()} == {"finished"}
    for run in (*trunks, *branches):
        (record,) = read_executions(run_path(execution.runs, run))
        assert record["vmap_runs"] == 2
    assert curve(execution, branches[0])[0]["tokens"] > 1024


def test_who_can_be_in_a_fleet(tiny_run, tiny_execution):
    one, *others = (vmap_key(run, tiny_execution) for run in members(tiny_run))
    assert one == others[0] == others[2]
    coupled = overlay(
        members(tiny_run)[0], {"optimizer.beta1_half_life": 300, "optimizer.beta2_half_life": 700}
    )
    assert vmap_key(coupled, tiny_execution) == one
    for changes in (
        {"schedule.batch": "2"},
        {"optimizer.clip": 0.5},
        {"averages": ()},
        {"schedule.tokens": 4096},
    ):
        other = overlay(members(tiny_run)[0], changes)
        assert vmap_key(other, tiny_execution) != one
    measured = overlay(members(tiny_run)[0], {"noise_scale.half_life": 1000})
    assert vmap_key(measured, tiny_execution) is None


def test_a_fleet_has_one_device(tiny_run, tiny_execution):
    with pytest.raises(InputError, match=r"execution\.devices: 2 given; write 1: vmapped runs"):
        train_vmapped([tiny_run], dataclasses.replace(tiny_execution, devices=2))


def test_several_runs_are_saved_after_every_step_if_that_is_asked(
    tiny_run, execution_in, tmp_path, monkeypatch
):
    saved = {}
    monkeypatch.setattr(
        "bss.training.recorder.RunRecorder.save",
        lambda one, _: saved.setdefault(one.run.id, []).append(one.position.tokens),
    )
    runs = members(tiny_run, **{"schedule.tokens": 512, "schedule.batch": "4", "averages": ()})[:2]
    train_vmapped(runs, dataclasses.replace(execution_in(tmp_path), checkpoint_seconds=0))
    every_step = [*range(64, 513, 64)]
    assert [sorted(set(saved[run.id])) for run in runs] == [every_step] * 2
