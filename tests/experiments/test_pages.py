"""What stands beside the claims: the papers' figures, and what would decide the rest."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.contests.claims import Claim, Question
from bss.contests.contrasts import over_seeds
from bss.errors import InputError
from bss.predictions.registration import digest
from bss.values import from_dict
from experiments.pages import entries, finding, papers_page, undecided
from experiments.tables import Tables

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def claims():
    rows = json.loads((ROOT / "results/claims.json").read_text())["claims"]
    return [from_dict(Claim, row, strict=False) for row in rows]


def claim(statement, mean):
    effect = over_seeds({0: [mean - 0.01, mean + 0.01, mean]})[0]
    return Question(statement, "paper").claim("here", effect, "results/es_wsd/contenders.csv")


def test_the_page_is_that_of_the_claims(claims):
    assert (ROOT / "results/PAPERS.md").read_text() == papers_page(claims)


def test_every_figure_says_what_was_found_and_names_what_is_there(claims):
    assert {entry["paper"] for entry in entries()} == {"1", "2", "3"}
    for entry in entries():
        text = finding(entry, claims)
        assert text.startswith(("**", "no effect")), entry["text"]
        assert "figure" not in entry or (ROOT / entry["figure"]).is_file(), entry["figure"]
        if place := entry.get("notebook"):
            assert (ROOT / "notebooks" / f"{place.split(',')[0]}.ipynb").is_file()


def test_every_statement_of_a_paper_is_beside_some_figure(claims):
    told = [start for entry in entries() for start in entry.get("statements", ())]
    papers = {one.statement for one in claims if one.question.source != "derived"}
    assert {one for one in papers if not one.startswith(tuple(told))} == {
        "The gradient noise scale is b/a of S = a + b/B, within × 1.5"  # arXiv 1812.06162
    }


def test_what_was_found_is_said():
    entry = {"statements": ["It falls"]}
    assert finding(entry, [claim("It falls", -1.0)]) == "**reproduced** in 1 of 1"
    assert finding(entry, [claim("It falls", 1.0)]) == "**contradicted** in 1 of 1"
    assert finding(entry | {"opposite": True}, [claim("It falls", 1.0)])[2:12] == "reproduced"
    open_one = finding(entry, [claim("It falls", 0.005)])
    assert open_one.startswith("**undecided** in 1 of 1 (would show 0.0")
    assert finding({"missing": "no such model"}, []) == "**missing**: no such model"
    closed = Question("It falls", "paper").untestable("", "", "none ran")
    assert finding(entry, [closed]) == "**missing**: none ran"
    with pytest.raises(ValueError, match="no claim begins 'It falls'"):
        finding(entry, [claim("It rises", 1.0)])


def test_what_would_decide_an_undecided_claim(claims):
    (row,) = undecided([claim("It falls", 0.005)]).to_dict("records")
    assert row["n"] == 3
    assert row["seeds_needed"] == 34  # .005 of a scatter of .01: t of 80% power
    record = json.loads((ROOT / "results/es_wsd/experiment.json").read_text())
    assert row["tokens"] == pytest.approx(34 * record["trained_tokens"] / 3, abs=1000)
    assert row["minutes"] == pytest.approx(34 * record["training_seconds"] / 180, abs=0.01)
    start = "python -m experiments.es_wsd --config=configs/es_wsd.py:cpu '--config.seeds=(3,4,5,6,"
    assert row["command"].startswith(start)
    table = pd.read_csv(ROOT / "results/undecided.csv")
    again = undecided(claims)
    assert len(table) == len(again) == sum(one.verdict == "undecided" for one in claims)
    assert table["minutes"].to_numpy() == pytest.approx(again["minutes"], nan_ok=True, abs=0.02)
    assert np.all(np.diff(table["minutes"].dropna()) >= 0)


def test_runs_of_another_registration_are_refused(tmp_path):
    registration = tmp_path / "guess.json"
    registration.write_text("{}")
    rows = {"run": ["a", "b"], "registration": [digest(registration), "not recorded"]}
    table = pd.DataFrame(rows)
    table.to_csv(tmp_path / "outcomes.csv", index=False)
    assert len(Tables(tmp_path).registered("outcomes.csv", registration)) == 2
    registration.write_text('{"guess": 2}')
    with pytest.raises(InputError, match=r"outcomes.csv: its runs name registration .*; judge"):
        Tables(tmp_path).registered("outcomes.csv", registration)
    with pytest.raises(InputError, match=r"absent.csv is not there; run the experiment first"):
        Tables(tmp_path).read("absent.csv")


def test_older_tables_do_not_record_where_their_runs_came_from():
    table = Tables(ROOT / "results/es_wsd").contest().table
    assert {*table["commit"], *table["started"], *table["registration"]} == {"not recorded"}
