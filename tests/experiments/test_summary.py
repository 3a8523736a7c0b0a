"""FINDINGS.md and PAPERS.md are current, and what each claim refers to exists."""

import re
import tomllib
from pathlib import Path

import pandas as pd
import pytest

from experiments import summary
from experiments.findings import read_questions

ROOT = Path(__file__).parents[2]
FILES = [*ROOT.glob("experiments/*/questions.toml"), ROOT / "experiments/es_wsd/conditions.toml"]
ENTRIES = tomllib.loads(summary.PAPERS.read_text())


@pytest.fixture(scope="module")
def found():
    return summary.read_findings(ROOT / "results")


def test_claims_name_questions_tests_and_notebooks_that_exist(found):
    questions = [q for f in FILES for q in read_questions(f)]
    keys = {q.key for q in questions} | {*found["key"]}
    for claim in ENTRIES["claim"]:
        assert claim["paper"] in ENTRIES["papers"]
        for field in ("questions", "narrower", "others"):
            assert {*claim.get(field, ())} <= keys, claim
        assert claim["from"] in ("abstract", "secondary", "here"), claim
        assert bool(claim.get("narrower")) <= bool(claim.get("missing")), claim
        assert claim.get("questions") or claim.get("tests") or claim.get("missing"), claim
        for file, name in (test.split("::") for test in claim.get("tests", ())):
            assert f"def {name}(" in (ROOT / file).read_text()
        if "notebook" in claim:
            assert (ROOT / f"notebooks/{claim['notebook']}.ipynb").is_file()


def test_the_pages_are_those_of_the_committed_findings(found):
    papers = ENTRIES["papers"]
    findings = summary.findings_page(found, ENTRIES["claim"], papers)
    assert (ROOT / "results/FINDINGS.md").read_text() == findings
    page = summary.papers_page(found, ENTRIES["claim"], papers)
    assert (ROOT / "results/PAPERS.md").read_text() == page
    assert len(re.findall(r"^\| 2\d", findings, re.MULTILINE)) <= 90
    assert page.count("\n| ") - len(papers) == len(ENTRIES["claim"])


def row(**changes):
    known = {"answer": "supported", "effect": -0.01, "low": -0.02, "high": -0.005, "unit": "nats"}
    known |= {"detectable": 0.004, "source": "es_wsd", "n": 5, "bound": ""}
    return known | changes


def test_answers_are_counted_over_conditions():
    one = pd.DataFrame([row(answer="inconclusive")])
    assert summary.answer(one) == "**inconclusive**, detects 0.004"
    assert summary.effect(one) == "−0.01 [−0.02, −0.005] nats"
    more = pd.DataFrame(
        [row(), row(effect=-0.03), row(answer="contradicted", effect=0.2), row(answer="not tested")]
    )
    assert summary.answer(more) == "**supported** in 2 of 3, **contradicted** in 1 of 3"
    assert summary.answer(more.assign(source="archived")).endswith("(archived)")


@pytest.mark.parametrize(
    ("unit", "values", "text"),
    [
        ("log tokens", (0.456, 0.351, 0.565), "1.58 [1.42, 1.76] times the tokens"),
        ("doublings", (0.636, 0.263, 1.014), "1.55 [1.2, 2.02] times the batch size"),
        ("exponent", (0.281, -0.09, 0.65), "exponent 0.28 [−0.09, 0.65]"),
        ("exponent minus 1", (-0.075, -0.19, 0.04), "exponent 0.93 [0.81, 1.04]"),
        ("log of 30% of the tokens", (-0.916, -1.0, -0.83), "12% [11%, 13.1%] of the tokens"),
        ("of the gap", (0.67, 0.3, 1.04), "67% [30%, 104%] of the gap"),
    ],
)
def test_logs_are_written_as_the_ratios_that_they_mean(unit, values, text):
    known = dict(zip(("effect", "low", "high"), values, strict=True))
    assert summary.effect(pd.DataFrame([row(unit=unit, **known)])) == text


def test_a_bound_is_written_as_one():
    bounded = row(unit="log steps", effect=0.235, low=None, high=None, bound="at least")
    one = pd.DataFrame([bounded | {"answer": "inconclusive", "detectable": None}])
    assert summary.effect(one) == "at least 1.26 times the steps"
    assert summary.answer(one) == "**inconclusive**"


def test_a_claim_on_sizes_that_were_not_trained_is_missing(found):
    """What was measured at other sizes stands beside it, with its own sizes."""
    page = summary.papers_page(found, ENTRIES["claim"], ENTRIES["papers"])
    [line] = [text for text in page.splitlines() if "122M to 1B parameters |" in text]
    own = line.split(" | ")[3]
    assert own.startswith("**missing**") and "27k, 99k and 394k parameters" in own
    [mixture] = [text for text in page.splitlines() if "for mixtures of experts too |" in text]
    assert mixture.split(" | ")[3].startswith("**missing**")


def test_an_archived_answer_gives_way_to_one_that_was_tested_again(tmp_path):
    rows = {"archive": ["supported", "supported"], "mine": ["contradicted", "not tested"]}
    for folder, answers in rows.items():
        (tmp_path / folder).mkdir()
        table = pd.DataFrame({"paper": 2410.21676, "key": ["data", "size"], "answer": answers})
        table.to_csv(tmp_path / folder / "findings.csv", index=False)
    kept = summary.read_findings(tmp_path)
    tested = kept.loc[kept["answer"] != "not tested"].set_index("key")
    assert tested["source"].to_dict() == {"data": "mine", "size": "archived"}
