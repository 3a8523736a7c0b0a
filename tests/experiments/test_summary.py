"""FINDINGS.md and PAPERS.md are current, and what each claim refers to exists."""

import re
import tomllib
from pathlib import Path

import pandas as pd
import pytest

from experiments import summary
from experiments.findings import read_questions

ROOT = Path(__file__).parents[2]
ENTRIES = tomllib.loads(summary.PAPERS.read_text())


@pytest.fixture(scope="module")
def found():
    return summary.read_findings(ROOT / "results")


def test_claims_name_questions_tests_and_notebooks_that_exist(found):
    questions = [q for f in ROOT.glob("experiments/*/questions.toml") for q in read_questions(f)]
    keys = {q.key for q in questions} | {*found["key"]}
    for claim in ENTRIES["claim"]:
        assert claim["paper"] in ENTRIES["papers"]
        assert {*claim.get("questions", ()), *claim.get("others", ())} <= keys, claim
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
    assert len(re.findall(r"^\| 2\d", findings, re.MULTILINE)) <= 40
    assert page.count("\n| ") - len(papers) == len(ENTRIES["claim"])


def row(**changes):
    known = {"answer": "supported", "effect": -0.01, "low": -0.02, "high": -0.005, "unit": "nats"}
    return known | {"detectable": 0.004, "source": "es_wsd", "n": 5} | changes


def test_answers_are_counted_over_conditions():
    one = pd.DataFrame([row(answer="inconclusive")])
    assert summary.answer(one) == "**inconclusive**, ± 0.004"
    assert summary.effect(one) == "−0.01 (−0.02 to −0.005) nats"
    more = pd.DataFrame(
        [row(), row(effect=-0.03), row(answer="contradicted", effect=0.2), row(answer="not tested")]
    )
    assert summary.answer(more) == "**supported** in 2 of 3, **contradicted** in 1 of 3"
    assert summary.answer(more.assign(source="archived")).endswith("(archived)")


def test_an_archived_answer_gives_way_to_one_that_was_tested_again(tmp_path):
    rows = {"archive": ["supported", "supported"], "mine": ["contradicted", "not tested"]}
    for folder, answers in rows.items():
        (tmp_path / folder).mkdir()
        table = pd.DataFrame({"paper": 2410.21676, "key": ["data", "size"], "answer": answers})
        table.to_csv(tmp_path / folder / "findings.csv", index=False)
    kept = summary.read_findings(tmp_path)
    tested = kept.loc[kept["answer"] != "not tested"].set_index("key")
    assert tested["source"].to_dict() == {"data": "mine", "size": "archived"}
