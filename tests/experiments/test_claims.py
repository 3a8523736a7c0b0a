"""results/claims.json and CLAIMS.md are made from the committed tables."""

import json
from pathlib import Path
from typing import get_args

import pytest

from bss.contests.claims import Claim, Verdict
from bss.values import from_dict, to_dict
from experiments.claims import ASKED, advised, answers, collect, page
from experiments.tables import Tables

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def claims():
    return collect(ROOT / "results")


@pytest.fixture(scope="module")
def committed():
    return json.loads((ROOT / "results" / "claims.json").read_text())["claims"]


def close(ours, theirs):
    """Equal but for the last digits of numbers, which differ between processors."""
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(close(ours[k], theirs[k]) for k in ours)
    if isinstance(ours, float) and theirs is not None:
        return ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)
    return ours == theirs


def test_committed_claims_come_out_of_the_committed_tables(claims, committed):
    made = to_dict(claims)
    assert len(made) == len(committed)
    assert [one for one, kept in zip(made, committed, strict=True) if not close(one, kept)] == []


def test_page_is_that_of_the_claims(committed):
    claims = [from_dict(Claim, dict(entry), strict=False) for entry in committed]
    assert (ROOT / "results" / "CLAIMS.md").read_text() == page(claims)


def test_twelve_questions_come_first_and_each_needs_an_answer(committed):
    claims = [from_dict(Claim, dict(entry), strict=False) for entry in committed]
    assert len(ASKED) == 12 and answers(claims).count("shown") >= 12
    with pytest.raises(ValueError, match="no claim"):
        answers([one for one in claims if one.question != ASKED[-1].asked])


def test_each_entry_validates(committed):
    for entry in committed:
        assert entry["verdict"] in get_args(Verdict)
        assert entry["source"] in ("paper", "secondary", "derived")
        assert set(entry["interval"]) == {"low", "high", "level"}
        assert entry["interval"]["level"] == 0.95
        assert {"estimate", "n", "p", "p_adjusted", "pooled_p", "pooled_p_adjusted"} <= set(entry)
        assert (ROOT / entry["table"]).exists() or entry["verdict"] == "not testable here"
        assert to_dict(from_dict(Claim, dict(entry), strict=False)) == entry


def test_nothing_is_shown_that_its_tests_do_not_all_show(committed):
    for entry in committed:
        if entry["verdict"] in ("shown", "opposite shown"):
            pooled = entry["pooled_p_adjusted"] or 0.0  # none where one test judges
            assert max(entry["p_adjusted"], pooled) < 0.05, entry["condition"]
            assert entry["p_adjusted"] >= entry["p"]


def test_no_claim_stands_twice(committed):
    asked = [(entry["statement"], entry["condition"], entry["table"]) for entry in committed]
    assert len(asked) == len(set(asked))


def test_the_advice_is_told_what_the_claims_say(claims):
    contest = Tables(ROOT / "results/late_switch").contest()
    assert json.loads((ROOT / "bss/advice/growth.json").read_text()) == advised(claims, contest)
