"""A claim's verdict is its contrast's."""

import json

import numpy as np
import pytest

from bss.points.claims import Claim, claim, equal, markdown, told, untestable
from bss.points.contrasts import judge, over_seeds
from bss.points.effects import exact
from bss.values import from_dict, to_dict

TABLE = "es_wsd/contenders.csv"


def found(mean, seeds=6, sd=0.01):
    """A contrast of seeds that scatter alike about a mean."""
    spread = np.linspace(-1, 1, seeds)
    return over_seeds({"it": mean + sd * spread / np.std(spread, ddof=1)})["it"]


@pytest.mark.parametrize(
    ("mean", "sign", "matters", "verdict"),
    [
        (0.05, 1, 0, "shown"),
        (0.05, -1, 0, "opposite shown"),
        (0.001, 1, 0, "undecided"),
        (0.001, 1, 0.02, "not shown"),
        (0.001, 1, 0.01, "undecided"),
    ],
)
def test_verdicts(mean, sign, matters, verdict):
    made = claim(
        "It grows",
        "paper",
        "here",
        found(mean),
        sign=sign,
        matters=matters,
        unit="nats",
        table=TABLE,
    )
    assert made.verdict == verdict


def test_one_seed_is_not_testable():
    contrast = over_seeds({"it": [0.1]})["it"]
    made = claim("It grows", "paper", "here", contrast, sign=1, unit="nats", table=TABLE)
    assert (made.verdict, made.effect.n) == ("not testable here", 1)


def test_reads_back_from_json():
    made = claim(
        "It grows", "secondary", "here", found(0.05), sign=1, note="so", unit="nats", table=TABLE
    )
    entry = json.loads(json.dumps(to_dict(made)))
    assert set(entry["interval"]) == {"low", "high", "level"}
    assert {"estimate", "n", "p", "p_adjusted", "verdict"} <= set(entry)
    assert from_dict(Claim, entry, strict=False) == made
    nothing = to_dict(untestable("It ends", "paper", "here", note="no runs", table=TABLE))
    assert nothing["estimate"] is None
    assert to_dict(from_dict(Claim, dict(nothing), strict=False)) == nothing


def test_table_has_a_row_a_statement():
    made = [
        claim("It grows", "paper", when, found(mean), sign=1, unit="nats", table=TABLE)
        for when, mean in [("stable", 0.05), ("decayed", -0.05), ("averaged", 0.04)]
    ]
    nothing = untestable("It ends", "paper", "here", note="no runs", table=TABLE)
    header, _, first, second = markdown([*made, nothing]).splitlines()
    assert header.count("|") == first.count("|") == second.count("|")
    assert "**shown**: stable (+0.0500, +0.0395 to +0.0605 nats); averaged" in first
    assert "**opposite shown**: decayed" in first
    assert second == "| It ends | paper | **not testable here**: here |"


def test_what_has_no_chance_is_told_without_an_interval():
    effect = judge({"one": exact(-0.25)})["one"]
    one = claim("it falls", "derived", "computed", effect, sign=-1, unit="nats", table="a.csv")
    assert one.verdict == "shown"
    assert told(one) == " (−0.250 nats)"


@pytest.mark.parametrize(
    ("mean", "matters", "verdict"),
    [(0.001, 0.05, "shown"), (0.001, 0.0, "undecided"), (0.05, 0.02, "opposite shown")],
)
def test_equality_is_shown_only_where_an_effect_that_matters_would_have_been(
    mean, matters, verdict
):
    effect = found(mean)
    told = {"unit": "nats", "table": TABLE, "matters": matters}
    assert equal("as good", "derived", "here", effect, **told).verdict == verdict
