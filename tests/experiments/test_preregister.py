"""Predictions before runs: committed scores come out again, and only of runs that came after."""

import hashlib
import json
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from bss.errors import InputError
from experiments import preregister

PREDICTIONS = Path(__file__).parents[2] / "results" / "predictions"
BYTES = {
    "ladder": "3a3d5c1e",
    "momentum": "18b733b5",
    "schedules": "ae25caa5",
    "second_moment": "c14b1953",
}


@pytest.mark.parametrize("name", BYTES)
def test_registrations_stay_as_bytes(name):
    content = (PREDICTIONS / f"{name}.json").read_bytes()
    assert hashlib.sha256(content).hexdigest().startswith(BYTES[name])


def test_committed_scores_come_out_again():
    registration = json.loads((PREDICTIONS / "schedules.json").read_text())
    del registration["fit"]
    outcomes = pd.read_csv(PREDICTIONS / "schedules" / "outcomes.csv")
    committed = json.loads((PREDICTIONS / "schedules" / "scores.json").read_text())
    found = preregister.score(registration, outcomes)
    assert len(found["schedules"]) == 24

    def numbers(value, path=""):
        if isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            return [row for key, inner in items for row in numbers(inner, f"{path}/{key}")]
        return [(path, value)]

    for part in ("schedules", "judged", "compared"):
        ours, theirs = dict(numbers(found[part])), dict(numbers(committed[part]))
        assert ours.keys() == theirs.keys()
        for path, value in theirs.items():
            number = isinstance(value, float)
            assert ours[path] == (pytest.approx(value, rel=1e-9) if number else value), path
    assert preregister.check_first(PREDICTIONS / "schedules.json", outcomes) == committed["commit"]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A git repository with a fit and predictions of two schedules, two seeds each."""
    monkeypatch.chdir(tmp_path)

    def git(*arguments):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    Path("fit.json").write_text("{}")
    rows = [("a", "small", 1.0), ("b", "small", 1.0), ("c", "large", 2.0), ("d", "large", 2.0)]
    table = pd.DataFrame(rows, columns=["run", "schedule", "loss"])
    table = table.assign(tokens=100, low=table["loss"] - 0.1, high=table["loss"] + 0.1, rule=1.5)
    table.to_csv("predicted.csv", index=False)
    git("add", ".")
    git("commit", "-qm", "a fit")
    return git


def outcomes(commit):
    """Runs of both schedules, one of which ended 0.2 above its prediction."""
    rows = [("a", 1.0), ("b", 1.1), ("c", 2.2), ("d", 2.2)]
    ours = preregister.digest(Path("results/predictions/first.json"))
    table = pd.DataFrame(rows, columns=["run", "eval_loss"])
    return table.assign(status="finished", tokens=100, commit=commit, registration=ours)


def test_predictions_are_registered_committed_and_scored(repository, capsys):
    before = repository("rev-parse", "HEAD")
    register = ["register", "first", "predicted.csv", "--fit", "fit.json"]
    assert preregister.main(register) == 0
    assert preregister.main(register) == 2  # the first counts
    file = Path("results/predictions/first.json")
    entry = json.loads(file.read_text())
    assert entry["fit"]["sha256"] == preregister.digest(Path("fit.json"))
    assert [one["runs"] for one in entry["predictions"]] == [["a", "b"], ["c", "d"]]
    with pytest.raises(InputError, match="not committed"):
        preregister.check_first(file, outcomes(before))
    repository("add", ".")
    repository("commit", "-qm", "predictions")
    after = repository("rev-parse", "HEAD")

    outcomes(after).to_csv("outcomes.csv", index=False)
    capsys.readouterr()
    assert preregister.main(["score", "first", "outcomes.csv"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert [one["measured"] for one in scores["schedules"]] == pytest.approx([1.05, 2.2])
    assert [one["covered"] for one in scores["schedules"]] == [True, False]
    assert scores["schedules"][0]["predicted"]["mean of law and rule"] == pytest.approx(1.25)

    outcomes(before).to_csv("outcomes.csv", index=False)  # trained before it was registered
    assert preregister.main(["score", "first", "outcomes.csv"]) == 2
    with pytest.raises(InputError, match="run a: registration"):
        preregister.check_first(file, outcomes(after).assign(registration="other"))
    file.write_text(file.read_text() + " ")
    with pytest.raises(InputError, match="has changed"):
        preregister.check_first(file, outcomes(after))


def test_a_failed_run_fails_its_schedule(repository):
    preregister.main(["register", "first", "predicted.csv", "--fit", "fit.json"])
    entry = json.loads(Path("results/predictions/first.json").read_text())
    table = outcomes("x")
    table.loc[0, "status"] = "diverged"
    assert preregister.schedules(entry, table)[0]["measured"] is None
    assert preregister.schedules(entry, table.iloc[1:])[0]["measured"] is None  # missing


@pytest.mark.parametrize(
    ("column", "value"), [("low", 3.0), ("loss", float("nan")), ("run", "a"), ("tokens", None)]
)
def test_bad_predictions_are_refused(repository, capsys, column, value):
    table = pd.read_csv("predicted.csv")
    table = table.drop(columns=column) if value is None else table.assign(**{column: value})
    table.to_csv("predicted.csv", index=False)
    assert preregister.main(["register", "x", "predicted.csv", "--fit", "fit.json"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not Path("results/predictions/x.json").exists()


def test_statements_name_their_columns_and_the_runs_that_decide(repository, tmp_path, capsys):
    questions = tmp_path / "asked.toml"
    asked = '[[question]]\nkey = "a"\nstatement = "A."\nnumber = "n"\n'
    questions.write_text(asked)
    assert preregister.main(["state", "new", str(questions)]) == 2
    assert "columns is missing" in capsys.readouterr().err
    questions.write_text(f'columns = ["eval_loss"]\n{asked}')
    assert preregister.main(["state", "new", str(questions)]) == 2
    assert "--config: missing; name the parts" in capsys.readouterr().err


def test_planned_runs_are_those_that_a_part_trains(monkeypatch, tiny_shards):
    from bss.sweeps.setup import planned_run
    from experiments.es_wsd.run import arms, decayed
    from tests.experiments.test_es_wsd import study

    part = study("start", seeds=(130,))
    base = planned_run(part.setup)
    monkeypatch.setattr("bss.sweeps.sweep.prepared_run", lambda setup: (base, None))
    ids = preregister.planned_runs("configs/es_wsd.py:start")
    assert len(ids) == 14 and {len(runs) for runs in ids.values()} == {16}
    constant = arms(part, base)
    assert {one.run.id for one in [*constant, *decayed(part, constant)]} <= {
        run for runs in ids.values() for run in runs
    }


def test_tables_are_checked_against_their_registrations(repository, capsys, monkeypatch):
    preregister.main(["register", "first", "predicted.csv", "--fit", "fit.json"])
    before = repository("rev-parse", "HEAD")
    repository("add", ".")
    repository("commit", "-qm", "predictions")
    after = repository("rev-parse", "HEAD")
    file = Path("results/part/finals.csv")
    file.parent.mkdir()
    capsys.readouterr()

    def check(table):
        table.to_csv(file, index=False)
        status = preregister.main(["check"])
        return status, capsys.readouterr().out

    assert check(outcomes(after)) == (0, "every run came after its registration\n")
    status, printed = check(outcomes(before))
    assert status == 1 and "after a run trained at" in printed
    status, printed = check(outcomes(after).assign(commit=[after, f"{after}+", after, None]))
    assert status == 0
    assert "1 of 4 rows are without a commit" in printed
    assert "1 of 4 rows are from a changed tree" in printed
    status, printed = check(outcomes(after).assign(registration="abc"))
    assert status == 1 and "no file in results/predictions has SHA-256 abc" in printed
    monkeypatch.setattr(preregister, "check_committed", lambda file: after)
    entry = json.loads((named := Path("results/predictions/first.json")).read_text())
    named.write_text(json.dumps(entry | {"columns": ["ending", "tokens"]}))
    status, printed = check(outcomes(after))
    assert status == 1 and "no table there has ending, which" in printed
    status, printed = check(outcomes(after).assign(lr_phase="constant", weights="last"))
    assert status == 0
    twice = outcomes(after)["registration"] + " none"  # started again without the registration
    named_so = {"lr_phase": "constant", "weights": "last", "registration": twice}
    assert check(outcomes(after).assign(**named_so))[0] == 0
    listed = {"part": {"arm": outcomes(after)["run"].tolist()}}
    named.write_text(json.dumps(entry | {"runs": listed}))
    assert check(outcomes(after).assign(registration="none"))[0] == 0
    status, printed = check(outcomes(before).assign(registration="none"))
    assert status == 1 and "after a run trained at" in printed
    status, printed = check(outcomes(after).drop(columns="commit"))
    assert status == 0 and "has no column commit, 4 rows" in printed


def test_every_committed_run_came_after_its_registration():
    if preregister.check_history():
        pytest.skip("no git history")
    assert [line for line in preregister.check() if not line.startswith("note: ")] == []
