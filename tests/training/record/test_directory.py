"""The run directory: its lock, its config, its curve."""

import json

import pytest

from bss.errors import InputError
from bss.sweeps.grid import overlay
from bss.sweeps.table import outcomes
from bss.training.config import Parent
from bss.training.record.directory import (
    named_path,
    open_run,
    parent_path,
    read_curve,
    read_status,
    run_path,
)
from bss.training.record.status import RunStatus, Speed
from bss.values import to_dict

LOSSES = {"loss": 1.4, "eval_loss": 1.5, "eval_loss_avg_4%": 1.3, "test_loss": None}
FINISHED = RunStatus("finished", 8, 2, LOSSES, throughput=(Speed(2, 8, 1e3, 0.25),))


def test_one_writer_at_a_time(tmp_path):
    with open_run(tmp_path / "run"):
        again = open_run(tmp_path / "run")
        with pytest.raises(InputError, match="another process"):
            again.__enter__()
    with open_run(tmp_path / "run"):
        pass


def test_a_directory_of_another_run_is_refused(tmp_path, tiny_run):
    other = overlay(tiny_run, {"seed": 1})
    with open_run(tmp_path) as directory:
        directory.check_config(tiny_run)
        directory.check_config(overlay(tiny_run, {"schedule.tokens": 9000}))
        with pytest.raises(InputError, match=f"holds run {tiny_run.id}, not {other.id}"):
            directory.check_config(other)
    assert json.loads((tmp_path / "config.json").read_text())["id"] == tiny_run.id


def test_a_torn_last_line_is_dropped(tmp_path, tiny_run):
    with open_run(tmp_path) as directory:
        for tokens in (10, 20, 30):
            directory.row({"tokens": tokens, "loss": 1 / 3})
        with open(tmp_path / "curve.jsonl", "a") as file:
            file.write('{"tokens": 40, "lo')
        assert [row["tokens"] for row in read_curve(tmp_path)] == [10, 20, 30]
        directory.begin(tiny_run, tmp_path, 20)
        assert [row["tokens"] for row in read_curve(tmp_path)] == [10, 20]
        assert read_status(tmp_path) == RunStatus("running", 20)
        directory.row({"tokens": 25, "loss": 2.0})
    assert read_curve(tmp_path) == [
        {"tokens": 10, "loss": 1 / 3},
        {"tokens": 20, "loss": 1 / 3},
        {"tokens": 25, "loss": 2.0},
    ]


def test_status_and_executions(tmp_path):
    assert read_status(tmp_path) == RunStatus("to do")
    with open_run(tmp_path) as directory:
        assert directory.add_execution({"cores": 1}) is None
        assert directory.add_execution({"cores": 2}) == {"cores": 1}
        directory.end(FINISHED)
    assert read_status(tmp_path) == FINISHED
    held = json.loads((tmp_path / "status.json").read_text())
    assert (held["schema"], held["losses"]["test_loss"]) == (2, None)
    assert (held["losses"]["eval_loss"], held["throughput"][0]["mfu"]) == (1.5, 0.25)
    assert set(to_dict(RunStatus("diverged", 8))) == {
        "schema",
        "status",
        "tokens",
        "last_checkpoint",
    }
    assert not list(tmp_path.glob(".*.json*"))


def test_a_status_from_before_its_losses_were_nested_is_read(tmp_path):
    flat = {"status": "finished", "tokens": 8, "step": 2, "eval_loss": 1.5, "test_loss": None}
    (tmp_path / "status.json").write_text(json.dumps(flat))
    losses = {"eval_loss": 1.5, "test_loss": None}
    assert read_status(tmp_path) == RunStatus("finished", 8, 2, losses)


@pytest.mark.parametrize(
    ("plain", "unused"),
    [
        ({"schedule.rate": "linear"}, {"schedule.decay": 512, "schedule.floor": 0.1}),
        ({"schedule.rate": "cosine"}, {"schedule.decay": 512, "schedule.shape": "1-sqrt"}),
        ({"schedule.rate": "constant"}, {"schedule.decay": 512}),
        ({}, {"schedule.shape": "cosine", "schedule.floor": 0.5}),
        ({}, {"schedule.reference_batch": 16}),
        ({"schedule.lr_coupling": "sqrt"}, {"schedule.reference_batch": 2}),
        ({"optimizer.weight_decay": 0.0}, {"schedule.weight_decay_coupling": "per_token"}),
        ({"schedule.batch": "4"}, {"schedule.lr_coupling": "sqrt"}),
        ({"optimizer.name": "sgd"}, {"optimizer.beta2": 0.5, "optimizer.eps": 1e-3}),
        ({"optimizer.beta2_half_life": 4096}, {"optimizer.beta2": 0.5}),
    ],
)
def test_settings_without_effect_rename_no_run_and_lose_no_directory(
    tiny_run, tmp_path, plain, unused
):
    run, spelled = overlay(tiny_run, plain), overlay(tiny_run, {**plain, **unused})
    assert spelled.id == run.id == run.spelled_id != spelled.spelled_id
    assert run_path(tmp_path, spelled) == tmp_path / run.id
    old = tmp_path / spelled.spelled_id
    old.mkdir()
    config = {"id": spelled.spelled_id, **to_dict(spelled)}
    (old / "config.json").write_text(json.dumps(config))
    assert run_path(tmp_path, spelled) == old
    assert parent_path(tmp_path, Parent(run.id, 512)) == old
    with open_run(old) as directory:
        directory.check_config(spelled)
    (tmp_path / run.id).mkdir()
    assert run_path(tmp_path, spelled) == run_path(tmp_path, run) == tmp_path / run.id


def test_the_oldest_and_older_names_find_the_directory_also_of_a_branch(tiny_run, tmp_path):
    plain = overlay(tiny_run, {"schedule.rate": "cosine", "schedule.batch": "4"})
    spelled = overlay(plain, {"schedule.decay": 512, "schedule.reference_batch": 16})
    older, oldest = spelled.earlier_ids
    assert len({plain.id, older, oldest}) == 3
    assert older == overlay(spelled, {"schedule.decay": 0}).spelled_id
    branch = overlay(spelled, {"seed": 1, "parent": {"run": older, "tokens": 512}})
    for run, name in ((spelled, older), (branch, branch.spelled_id)):
        with open_run(tmp_path / name) as directory:
            directory.check_config(run)
    assert named_path(tmp_path, plain.id) == named_path(tmp_path, oldest) == tmp_path / older
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{")
    now = overlay(branch, {"parent.run": plain.id})
    assert now.id not in (branch.id, *branch.earlier_ids)
    assert run_path(tmp_path, now) == tmp_path / branch.spelled_id
    with open_run(run_path(tmp_path, now)) as directory:
        directory.check_config(now)
    (missing,) = outcomes(tmp_path, [now.id])["status"]
    assert missing == "to do"


def test_settings_with_effect_have_ids_of_their_own(tiny_run):
    for changes in (
        {"schedule.decay": 512},
        {"schedule.decay": 512, "schedule.floor": 0.1},
        {"schedule.decay": 512, "schedule.shape": "1-sqrt"},
        {"schedule.rate": "cosine", "schedule.floor": 0.1},
    ):
        run = overlay(tiny_run, changes)
        assert not run.schedule.unused
        assert run.id == run.spelled_id
