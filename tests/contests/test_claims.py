"""A claim's verdict is its contrast's."""

import json
from dataclasses import replace

import numpy as np
import pytest

from bss.contests.claims import Claim, Question, check_once, effect_text, judged, markdown, summary
from bss.contests.contrasts import Contrast, Effect, judge, over_seeds
from bss.contests.effects import exact
from bss.contests.scatter import Scatter
from bss.errors import InputError
from bss.values import from_dict, to_dict

TABLE = "es_wsd/contenders.csv"
GROWS, ENDS = Question("It grows", "paper", 1), Question("It ends", "paper")


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
    asked = Question("It grows", "paper", sign, matters=matters)
    assert asked.claim("here", found(mean), TABLE).verdict == verdict


def test_one_seed_is_not_testable():
    contrast = over_seeds({"it": [0.1]})["it"]
    made = GROWS.claim("here", contrast, TABLE)
    assert (made.verdict, made.effect.n) == ("not testable here", 1)


def test_reads_back_from_json():
    made = GROWS.claim("here", found(0.05), TABLE, "so", runs="a1")
    entry = json.loads(json.dumps(to_dict(made)))
    assert set(entry["interval"]) == {"low", "high", "level"}
    assert {"estimate", "n", "p", "p_adjusted", "verdict"} <= set(entry)
    assert from_dict(Claim, entry, strict=False) == made
    nothing = to_dict(ENDS.untestable("here", TABLE, "no runs"))
    assert nothing["estimate"] is None
    assert to_dict(from_dict(Claim, dict(nothing), strict=False)) == nothing


def test_table_has_a_row_a_statement():
    made = [
        GROWS.claim(when, found(mean), TABLE)
        for when, mean in [("stable", 0.05), ("decayed", -0.05), ("averaged", 0.04)]
    ]
    nothing = ENDS.untestable("here", TABLE, "no runs")
    header, _, first, second = markdown([*made, nothing]).splitlines()
    assert header.count("|") == first.count("|") == second.count("|")
    assert "**shown**: stable (+0.0500, +0.0395 to +0.0605 nats); averaged" in first
    assert "**opposite shown**: decayed" in first
    assert second == "| It ends | paper | **not testable here**: here |"


def test_what_has_no_chance_is_told_without_an_interval():
    effect = judge({"one": exact(-0.25)})["one"]
    one = Question("it falls", "derived").claim("computed", effect, "a.csv")
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
    alike = Question("as good", "derived", 0, matters=matters)
    assert alike.claim("here", effect, TABLE).verdict == verdict


def contrast(estimate, low, high, p: float | None = 0.01, smallest: float | None = 0.01):
    return Contrast(estimate, low, high, 0.95, 6, p, p, p, p, smallest)


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
    made = Question("as good", "derived", 0, matters=matters).claim("here", effect, TABLE)
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
    asked = Question("It", "paper", 1, matters=0.03)
    assert asked.claim("", effect, TABLE).verdict == verdict


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
    made = GROWS.claim("here", found(mean), TABLE, bound=bound)
    assert made.verdict == verdict
    assert (made.effect.low is not None, made.effect.high is not None) == (low, high)


def test_verdicts_are_counted_and_the_ends_told():
    made = [GROWS.claim("", found(m), TABLE) for m in (0.05, -0.2, 0.04, 0.0)]
    counts, effects = summary([*made, ENDS.untestable("", TABLE, "no runs")])
    assert counts == "shown 2, opposite shown 1, undecided 1, not testable here 1"
    assert effects == "−0.200, −0.210 to −0.190 nats<br>+0.0500, +0.0395 to +0.0605 nats"
    assert summary(made[:1])[1] == "+0.0500, +0.0395 to +0.0605 nats"
    assert summary([ENDS.untestable("", TABLE, "no runs")])[1] == ""


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
    one = GROWS.claim("", contrast(value, None, 1.0), TABLE)
    assert effect_text(one) == f" ({text} nats)"


def test_what_was_not_measured_tells_its_note():
    nothing = ENDS.untestable("here", TABLE, "no runs", 3)
    assert (effect_text(nothing), nothing.effect.n, nothing.effect.level) == (" (no runs)", 3, 0.95)
    assert effect_text(replace(nothing, note="")) == ""


def test_a_family_is_judged_together_and_its_bounds_are_kept():
    def apart(mean):
        return Effect(mean, 9, Scatter(0.01**2, 8), Scatter(0.01**2, 16))

    first = GROWS.asked("one", apart(0.03), TABLE, "so")
    one, other = judged([first, replace(GROWS.asked("two", apart(-0.03), TABLE), bound="at least")])
    assert one.effect.p
    assert one.effect.p_adjusted == pytest.approx(2 * one.effect.p)
    assert (one.verdict, one.note, one.question) == ("shown", "so", GROWS)
    assert (other.verdict, other.effect.high) == ("undecided", None)


def test_a_question_asked_twice_of_the_same_runs_is_refused():
    one = GROWS.claim("here", found(0.05), TABLE, runs="a1")
    check_once(
        [one, replace(one, condition="there", runs="b2"), ENDS.claim("here", one.effect, "")]
    )
    twice = replace(one, condition="4 → 32", table="late_switch/contenders.csv")
    with pytest.raises(InputError, match=r"late_switch/contenders.csv: .It grows., 4 → 32, is"):
        check_once([one, twice])
    with pytest.raises(InputError, match="leave one out"):
        check_once([one, replace(one, runs="")])
