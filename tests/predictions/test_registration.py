"""Registrations: written once, read back, scored only where git tells that they came first."""

import dataclasses
import json
from datetime import datetime

import pytest

from bss.cli import main
from bss.errors import InputError
from bss.laws.fitting.estimate import Estimate
from bss.predictions.ancestry import check_first
from bss.predictions.draw import Ranges, draw
from bss.predictions.registration import (
    Registration,
    digest,
    predictions,
    read_registration,
    register,
)
from bss.sweeps.branching import branch
from bss.sweeps.table import origins, outcomes
from bss.training.devices.mesh import make_mesh
from bss.training.execution import Execution, describe
from bss.training.record.status import RunStatus
from bss.values import to_dict
from tests.cli.called import printed, refused

BASELINE = "constant of equal steps"


@pytest.fixture
def arguments(lab):
    folders = "--runs", str(lab.runs), "--predictions", str(lab.file.parent)
    return "score", "six", *folders


def test_what_came_first_is_scored(lab, arguments, capsys):
    registration = lab.register()
    first = lab.commit("predictions")
    lab.train(registration, first)
    told = printed(capsys, *arguments)
    assert (told["kind"], told["sha256"], told["runs"]) == ("score", registration, 12)
    assert told["commit"].startswith(first)
    assert not told["failures"]
    judged = told["judged"]["all"]
    assert judged["law"]["error"]["value"] == pytest.approx(1)
    assert judged["law"]["coverage"]["value"] == 1
    assert judged["law"]["rank"]["value"] == pytest.approx(1)
    errors = sorted(abs(2 / loss - 1) for loss in (2.0, 1.9, 2.1, 1.8, 2.2, 1.7))
    assert judged[BASELINE]["error"]["value"] == pytest.approx(50 * (errors[2] + errors[3]))
    less = told["compared"]["all"][f"law - {BASELINE}"]
    assert less["value"] == pytest.approx(1 - 100 * sum(errors) / 6)


def test_a_table_is_scored_as_its_run_directories(lab, arguments, capsys, tmp_path):
    lab.train(lab.register(), lab.commit("predictions"))
    table = outcomes(lab.runs, lab.registration.runs)
    told = origins(lab.runs, lab.registration.runs)
    assert told[["run", "commit", "registration"]].equals(table[["run", "commit", "registration"]])
    assert set(told["started"]) == {"not recorded"}  # these starts were made by hand
    assert datetime.fromisoformat(describe(make_mesh(), Execution())["started"]).tzinfo is not None
    table.to_csv(tmp_path / "ended.csv", index=False)
    told = printed(capsys, *arguments)
    again = [*arguments[:3], str(tmp_path / "ended.csv"), *arguments[4:]]
    assert printed(capsys, *again) == told


def test_a_commit_of_digits_is_read_as_text(lab, tmp_path, capsys, arguments):
    lab.train(lab.register(), lab.commit("predictions"))
    table = outcomes(lab.runs, lab.registration.runs).assign(commit="012345678901")
    table.to_csv(tmp_path / "ended.csv", index=False)
    again = [*arguments[:3], str(tmp_path / "ended.csv"), *arguments[4:]]
    assert "trained at commit 012345678901," in refused(capsys, *again)


def test_registered_after_training_is_refused(lab, arguments, capsys):
    before = lab.head()
    registration = lab.register()
    lab.train(registration, before)
    assert "is not committed; commit it before" in refused(capsys, *arguments)
    lab.commit("predictions")
    error = refused(capsys, *arguments)
    assert f"was trained at commit {before}, which does not come after" in error
    assert "scored, or none" in error


def test_one_start_before_is_enough_to_refuse(lab, arguments, capsys):
    before, registration = lab.head(), lab.register()
    after = lab.commit("predictions")
    last = lab.configs["s5"][1]
    lab.write(last, RunStatus("interrupted"), registration, before)
    lab.train(registration, after)
    assert f"run {last.id}: was trained at commit {before}," in refused(capsys, *arguments)


def test_a_parent_trained_before_is_refused(lab, capsys, arguments):
    trunk = lab.configs["s0"][0]
    child = branch(trunk, trunk, 500_000)
    one = dataclasses.replace(lab.registration.predictions[0], runs=(child.id,))
    lab.registration = dataclasses.replace(lab.registration, predictions=(one,))
    before, registration = lab.head(), lab.register()
    after = lab.commit("predictions")
    ended = RunStatus("finished", one.tokens, losses={"test_loss": 2.0})
    lab.write(trunk, ended, "", before)
    lab.write(child, ended, registration, after)
    assert f"run {child.id}: was trained at commit {before}," in refused(capsys, *arguments)


@pytest.mark.parametrize("commit", ["", "0123456789ab", "no commit"])
def test_a_commit_that_git_does_not_know_is_refused(lab, arguments, capsys, commit):
    registration = lab.register()
    lab.commit("predictions")
    lab.train(registration, commit)
    assert "which does not come after" in refused(capsys, *arguments)


def test_changes_that_were_not_committed_do_not_matter(lab, arguments, capsys):
    registration = lab.register()
    lab.commit("predictions")
    (lab.folder / ".gitignore").write_text("runs\nnotes\n")
    assert lab.head().endswith("+")
    lab.train(registration, lab.head())
    assert not printed(capsys, *arguments)["failures"]


def test_a_file_changed_since_is_refused(lab, arguments, capsys):
    lab.register()
    first = lab.commit("predictions")
    entry = json.loads(lab.file.read_text())
    entry["predictions"][0]["loss"]["value"] = 2.0
    lab.file.write_text(json.dumps(entry))
    lab.train(digest(lab.file), lab.commit("corrected"))
    assert f"is not what commit {first} added; the first counts" in refused(capsys, *arguments)


def test_a_name_given_again_is_refused_by_the_first(lab, arguments, capsys):
    first = lab.register() and lab.commit("predictions")
    lab.file.unlink()
    lab.commit("away")
    lab.registration = dataclasses.replace(lab.registration, exclusions=("all but the best",))
    lab.train(lab.register(), lab.commit("again"))
    assert f"is not what commit {first} added" in refused(capsys, *arguments)


def test_runs_of_another_registration_are_refused(lab, arguments, capsys):
    lab.register()
    lab.train("", lab.commit("predictions"))
    assert "records registration none, not" in refused(capsys, *arguments)


def test_a_missing_run_is_a_failure_that_is_told(lab, arguments, capsys):
    run = lab.configs["s2"][1].id
    lab.train(lab.register(), lab.commit("predictions"), but=(run,))
    told = printed(capsys, *arguments)
    assert told["failures"] == [{"run": run, "schedule": "s2", "why": "missing"}]
    assert told["schedules"][2]["measured"] is None
    assert told["judged"]["all"]["law"]["coverage"]["value"] == pytest.approx(5 / 6)
    assert main([*arguments]) == 0
    shown = capsys.readouterr().out
    assert f"failed: run {run} of s2: missing" in shown
    assert "1 of 6 schedules failed, by 1 of 12 runs" in shown


def test_nothing_trained_is_nothing_scored(lab, arguments, capsys):
    lab.register()
    lab.commit("predictions")
    lab.runs.mkdir()
    assert "none has a test_loss; train them" in refused(capsys, *arguments)


def test_it_is_read_back(lab, planted_curves):
    ranges = Ranges(2_000_000, (1, 2, 4, 8), (4e-3, 8e-3))
    drawn = draw(ranges, seed=7, count=6)
    runs = {one.name: (f"{i}a", f"{i}b") for i, one in enumerate(drawn)}
    baselines = {"flat": {one.name: 2.0 for one in drawn}}
    told = predictions(planted_curves.fit, drawn, runs, baselines)
    assert [one.schedule for one in told] == [one.schedule for one in drawn]
    assert all(0 <= 2_000_000 - one.tokens < 8 * 64 for one in told)
    beyond = [bool(one.extrapolates) for one in told]  # the law has one rate, 4e-3
    assert beyond == [one.peak_lr > 1.25 * 4e-3 for one in drawn]
    assert len(set(beyond)) == 2
    fit = planted_curves.fit.to_dict()
    rules = {"flat": "2 nats"}
    kept = Registration("drawn", "test_loss", told, fit, rules, ("none",), 7, ranges)
    path = register(kept, lab.folder)
    again = read_registration(path)
    assert json.dumps(to_dict(again)) == json.dumps(to_dict(kept))
    assert again.ranges == ranges
    assert again.seed == 7


def test_the_first_counts(lab):
    lab.register()
    with pytest.raises(InputError, match=r"register six: .*six.json is there, and the first"):
        lab.register()
    run = lab.registration.runs[0]
    lab.registration = dataclasses.replace(lab.registration, name="other")
    with pytest.raises(InputError, match=r"run .*: is registered in .*six.json"):
        lab.register()
    assert run in lab.file.read_text()
    assert [path.name for path in lab.file.parent.iterdir()] == ["six.json"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": "../six"}, "no name of a file"),
        ({"predictions": ()}, "predictions: none"),
        ({"baselines": {}}, "give each baseline a value: none"),
    ],
)
def test_what_cannot_be_scored_is_refused(lab, changes, told):
    with pytest.raises(InputError, match=told):
        dataclasses.replace(lab.registration, **changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"loss": Estimate(2.0)}, "needs a value and an interval"),
        ({"runs": ()}, "no runs"),
        ({"runs": ("a", "a")}, "run a: is predicted twice"),
        ({"name": "s1"}, "schedule s1: is predicted twice"),
    ],
)
def test_a_prediction_that_cannot_be_scored_is_refused(lab, changes, told):
    first, *rest = lab.registration.predictions
    with pytest.raises(InputError, match=told):
        dataclasses.replace(
            lab.registration, predictions=(dataclasses.replace(first, **changes), *rest)
        )


def test_a_run_records_its_registration():
    mesh = make_mesh(1)
    assert "registration" not in describe(mesh, Execution())
    assert describe(mesh, Execution(registration="abc"))["registration"] == "abc"


def test_a_damaged_file_is_refused_by_name(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"kind": "curve"}')
    with pytest.raises(InputError, match=r"x.json: kind 'curve', schema None: no registration"):
        read_registration(path)


def test_a_file_outside_a_repository_is_refused(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("{}")
    with pytest.raises(InputError, match="is not committed"):
        check_first(path, outcomes(tmp_path, []))
