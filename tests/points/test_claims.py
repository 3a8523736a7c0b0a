"""A claim's verdict is its contrast's."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bss.points.claims import (
    Claim,
    bounded,
    claim,
    effect_text,
    markdown,
    summary,
    untestable,
)
from bss.points.contrasts import Contrast, judge, over_seeds
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
    assert effect_text(one) == " (−0.250 nats)"


@pytest.mark.parametrize(
    ("mean", "matters", "verdict"),
    [(0.001, 0.05, "shown"), (0.001, 0.0, "undecided"), (0.05, 0.02, "opposite shown")],
)
def test_equality_is_shown_only_where_an_effect_that_matters_would_have_been(
    mean, matters, verdict
):
    effect = found(mean)
    rest = {"sign": 0, "unit": "nats", "table": TABLE, "matters": matters}
    assert claim("as good", "derived", "here", effect, **rest).verdict == verdict


def contrast(estimate, low, high, p: float | None = 0.01, smallest: float | None = 0.01):
    return Contrast(estimate, low, high, 0.95, 6, p, p, p, p, smallest)


SAID: Any = {"unit": "nats", "table": TABLE}


@pytest.mark.parametrize(
    ("effect", "matters", "verdict"),
    [
        (contrast(0.05, 0.03, 0.07), 0.03, "opposite shown"),
        (contrast(-0.05, -0.07, -0.03), 0.03, "opposite shown"),
        (contrast(0.05, 0.03, 0.07), 0.031, "undecided"),
        (contrast(0.005, -0.01, 0.02, p=0.5), 0.016, "shown"),
        (contrast(-0.005, -0.02, 0.01, p=0.5), 0.0149, "undecided"),
        (contrast(0.005, None, 0.02), 0.1, "not testable here"),
        (contrast(0.005, 0.0, None), 0.1, "not testable here"),
        (contrast(0.005, 0.0, 0.02, smallest=None), 0.1, "not testable here"),
    ],
)
def test_equality_needs_both_ends_and_the_smallest_effect(effect, matters, verdict):
    made = claim("as good", "derived", "here", effect, sign=0, matters=matters, **SAID)
    assert (made.verdict, made.effect, made.note) == (verdict, effect, "")


@pytest.mark.parametrize(
    ("effect", "verdict"),
    [
        (contrast(0.001, -0.01, 0.02, p=0.5), "not shown"),
        (contrast(0.001, -0.03, 0.02, p=0.5), "undecided"),
        (contrast(0.001, -0.01, 0.03, p=0.5), "undecided"),
        (contrast(0.001, None, 0.02), "not testable here"),
        (contrast(0.001, -0.02, None), "not testable here"),
        (contrast(0.001, -0.01, 0.02, p=None), "not testable here"),
    ],
)
def test_an_effect_that_matters_is_excluded_by_both_ends(effect, verdict):
    assert claim("It", "paper", "", effect, sign=1, matters=0.03, **SAID).verdict == verdict


@pytest.mark.parametrize(
    ("bound", "mean", "verdict", "low", "high"),
    [
        ("", 0.05, "shown", True, True),
        ("at least", 0.05, "shown", True, False),
        ("at least", -0.05, "undecided", True, False),
        ("at most", 0.05, "undecided", False, True),
        ("at most", -0.05, "opposite shown", False, True),
        ("unknown", 0.05, "undecided", False, False),
    ],
)
def test_a_bound_opens_its_side(bound, mean, verdict, low, high):
    one = claim("It grows", "paper", "here", found(mean), sign=1, **SAID)
    made = bounded(one, bound)
    assert made.verdict == verdict
    assert (made.effect.low is not None, made.effect.high is not None) == (low, high)


def test_verdicts_are_counted_and_the_ends_told():
    made = [claim("It", "paper", "", found(m), sign=1, **SAID) for m in (0.05, -0.2, 0.04, 0.0)]
    counts, effects = summary([*made, untestable("It", "paper", "", table=TABLE, note="no runs")])
    assert counts == "shown 2, opposite shown 1, undecided 1, not testable here 1"
    assert effects == "−0.200, −0.210 to −0.190 nats<br>+0.0500, +0.0395 to +0.0605 nats"
    assert summary(made[:1])[1] == "+0.0500, +0.0395 to +0.0605 nats"
    assert summary([untestable("It", "paper", "", table=TABLE, note="no runs")])[1] == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0999, "+0.0999"),
        (0.1, "+0.100"),
        (-0.9994, "−0.999"),
        (1.0, "+1.00"),
        (-12.345, "−12.35"),
    ],
)
def test_numbers_have_three_digits_or_so(value, text):
    one = claim("It", "paper", "", contrast(value, None, 1.0), sign=1, **SAID)
    assert effect_text(one) == f" ({text} nats)"


def test_what_was_not_measured_tells_its_note():
    nothing = untestable("It", "paper", "here", table=TABLE, note="no runs", n=3)
    assert (effect_text(nothing), nothing.effect.n, nothing.effect.level) == (" (no runs)", 3, 0.95)
    assert effect_text(replace(nothing, note="")) == ""
