"""What is said of growing a batch is what the committed claims say, and no surer."""

import json
from pathlib import Path

import pytest

from bss.advice import ENDINGS, growth
from bss.errors import InputError

LAW = "The functional law's schedule ends lower than the best constant batch"
SWITCH = "A late switch ends lower than the best constant batch"
CLAIMS = Path(__file__).parents[2] / "results/archive/claims.json"


@pytest.fixture(scope="module")
def claims():
    entries = json.loads(CLAIMS.read_text())["claims"]
    return {(at["statement"], at["condition"]): at for at in entries}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_numbers_are_those_of_the_claims(claims, ending):
    known = ENDINGS[ending]
    for statement, one in ((LAW, known.best), (SWITCH, known.late)):
        claim = claims[statement, one.condition]
        assert one.verdict == claim["verdict"]
        assert one.effect == pytest.approx(claim["estimate"], rel=2e-3, abs=5e-5)
        assert "beta2 keeps a half-life of 7,000 tokens" in claim["note"]
    note = claims[LAW, known.best.condition]["note"]
    assert f"{known.steps:.2f} of its steps" in note


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_verdict_is_no_surer_than_the_claims(ending):
    found = growth(ending)
    sure = {"yes": "shown", "no": "not shown", "undecided": "undecided"}[found.verdict]
    assert ENDINGS[ending].best.verdict == sure and found.gain == -ENDINGS[ending].best.effect
    assert "99k parameters" in found.why and "half-life" in found.why
    per_step = growth(ending, beta2=0.95)
    assert per_step.verdict == "undecided" and "beta2 0.95 per step" in per_step.why


@pytest.mark.parametrize("params", [9e3, 2e6, 70e9])
def test_of_another_size_it_is_not_known_and_published_runs_are_named(params):
    found = growth("wsd", params=params)
    assert (found.verdict, found.gain) == ("not known at this size", None)
    assert "minimax-01 from 16.8M to 134M tokens in the first 41%" in found.why
    assert growth("wsd", params=500e3).verdict == "no"


def test_an_unknown_ending_is_refused():
    with pytest.raises(InputError, match="ending: 'linear' is unknown; choose one of wsd, cosine"):
        growth("linear")
