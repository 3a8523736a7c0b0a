"""Answers to statements: planted effects, and planted faults that may not become support."""

import math

import numpy as np
import pytest

from bss.stats import (
    MOST_CENSORED,
    WORDS,
    Claim,
    Effect,
    Numbers,
    answers,
    effect_of,
    holm,
    least,
    mean_of,
    minimum_detectable_effect,
    paired,
)

NOISE = np.array([0.001, -0.002, 0.0005, 0.002, -0.0015, 0.0, 0.001, -0.001])
LOWER = Claim(sign=-1, margin=0.005)
SAME = Claim(sign=0, margin=0.005, equal=True)


def answer(numbers, claim, **known):
    return answers({"q": claim}, {"q": effect_of(numbers, **known)})["q"]


@pytest.mark.parametrize(
    ("shift", "scale", "claim", "word"),
    [
        (-0.01, 1, LOWER, "supported"),
        (0.01, 1, LOWER, "contradicted"),
        (0.0, 1, LOWER, "no relevant effect"),
        (0.0, 20, LOWER, "inconclusive"),
        (0.0, 1, SAME, "supported"),
        (0.0, 20, SAME, "inconclusive"),
        (0.02, 1, SAME, "contradicted"),
        (0.02, 1, Claim(sign=0, margin=0.005), "supported"),
    ],
)
def test_the_word_follows_sign_margin_and_noise(shift, scale, claim, word):
    found = answer(scale * NOISE + shift, claim)
    assert found.word == word and word in WORDS
    assert (found.seeds_needed > 8) == (word == "inconclusive")


def test_one_test_is_the_paired_t_test():
    found, expected = answer(NOISE - 0.01, LOWER), paired(NOISE - 0.01)
    assert (found.low, found.high, found.p) == pytest.approx(
        (expected.low, expected.high, expected.p)
    )
    assert (found.family, found.effect.seeds, found.level) == (1, 8, 0.95)
    spread = float(NOISE.std(ddof=1))
    assert found.detectable == pytest.approx(minimum_detectable_effect(spread, 8))


def test_intervals_are_adjusted_as_p_is():
    shifts = np.array([-0.01, -0.0011, -0.0016, 0.0002, -0.002, -0.0005])
    claims = {str(shift): LOWER for shift in shifts}
    found = answers(claims, {str(shift): effect_of(NOISE + shift) for shift in shifts})
    alone = [answer(NOISE + shift, LOWER) for shift in shifts]
    np.testing.assert_allclose([one.p for one in found.values()], holm([one.p for one in alone]))
    for one, single in zip(found.values(), alone, strict=True):
        excluded = one.low > 0 or one.high < 0
        assert excluded == one.significant and one.family == 6
        assert one.high - one.low >= single.high - single.low
    assert sum(one.significant for one in found.values()) < sum(one.significant for one in alone)


def test_a_target_that_every_run_misses_has_a_bound_and_no_support():
    # Runs of other lengths miss the target in all seeds: the ratio of lengths is no effect.
    spent = np.log([280_000.0, 279_000.0, 281_000.0, 280_500.0])
    needed = np.log([224_000.0, 225_000.0, 223_000.0, 224_500.0])
    missed = Numbers.to_target(spent, reached=np.zeros(4, bool)) - Numbers.measured(needed)
    for claim in (Claim(sign=1, margin=0.1), Claim(sign=0, margin=0.1, equal=True)):
        found = answer(missed, claim)
        assert (found.word, found.effect.bound) == ("inconclusive", "at least")
        assert found.effect.value == pytest.approx(math.log(280 / 224), abs=0.01)
        assert (found.p, found.family, found.effect.censored) == (None, 0, 1.0)
        assert math.isnan(found.low) and math.isnan(found.detectable)


def test_a_mean_with_one_cell_of_bounds_cannot_cancel_an_effect():
    # Two batch sizes save 20% of the steps, the third one is cut at its last step: no equality.
    cells = [Numbers.measured(NOISE - 0.2), Numbers.measured(NOISE - 0.2)]
    cells.append(Numbers.to_target(NOISE + 0.4, reached=np.zeros(8, bool)))
    assert answer(mean_of(*cells), Claim(sign=1, margin=0.1)).word == "inconclusive"


def test_missing_a_target_within_the_tokens_is_no_number():
    # "1 if the batch misses the loss": with more tokens it may reach it.
    missed = np.ones(12)
    share = Numbers(np.zeros(12), missed)
    found = answer(share, Claim(sign=1, margin=0.0))
    assert (found.word, found.effect.censored) == ("inconclusive", 1.0)


def test_a_minimum_that_another_run_decides_is_a_number():
    small = Numbers.to_target([1.0] * 8, reached=[False] * 8)
    large = Numbers.measured(0.4 + NOISE)
    assert answer(least(small, large), Claim(sign=1, margin=0.05)).word == "supported"
    assert answer(small, Claim(sign=1, margin=0.05)).word == "inconclusive"


@pytest.mark.parametrize("missed", [0, 1, 2, 3])
def test_few_bounds_are_trimmed_and_no_bound_counts(missed):
    values = np.linspace(-0.11, -0.09, 12)
    reached = np.arange(12) < 12 - missed  # the slowest miss it
    for cap in (5.0, 50.0):  # what is written for a run that missed has no influence
        found = answer(Numbers.to_target(np.where(reached, values, cap), reached), LOWER)
        allowed = missed / 12 <= MOST_CENSORED
        assert found.word == ("supported" if allowed else "inconclusive")
        assert found.effect.freedom == (11 - 2 * missed if allowed else 0)
        assert not allowed or found.effect.value == pytest.approx(-0.1, abs=0.003)


@pytest.mark.slow
def test_trimmed_intervals_hold_the_mean_in_95_percent_of_studies():
    draw = np.random.default_rng(3)
    held = []
    for _ in range(2000):
        values = draw.normal(1, 0.1, 12)
        cap = np.sort(values)[-2]
        found = answer(Numbers.to_target(np.minimum(values, cap), values < cap), LOWER)
        held.append(found.low < 1 < found.high)
    assert np.mean(held) == pytest.approx(0.95, abs=0.015)


def test_equality_needs_a_margin_below_half_of_what_it_qualifies():
    gain = 0.0062  # the margin is 80% of it
    for claim in (SAME, Claim(sign=0, margin=0.005)):
        assert answer(NOISE, claim, qualifies=gain).word == "not testable here"
        fine = Claim(sign=0, margin=gain / 2.5, equal=claim.equal)
        assert answer(NOISE, fine, qualifies=gain).word in ("supported", "no relevant effect")
    # A difference that is found needs no margin.
    assert answer(NOISE - 0.01, LOWER, qualifies=gain).word == "supported"
    assert answer(NOISE + 0.02, SAME, qualifies=gain).word == "contradicted"


def test_an_effect_with_few_units_is_as_uncertain_as_they_are():
    many = Effect(value=0.46, error=0.09, freedom=50, seeds=2, test="curves")
    few = Effect(value=0.46, error=0.09, freedom=3, seeds=2, test="models")
    claims = {"q": Claim(sign=1, margin=0.12)}
    low = {one: answers(claims, {"q": one})["q"].low for one in (many, few)}
    assert low[many] > 0.27 and low[few] < 0.18


def test_what_was_not_trained_is_not_tested_and_one_seed_is_inconclusive():
    assert answer([], LOWER).word == "not tested"
    assert answer([np.nan, np.nan], LOWER).word == "not tested"
    assert answer([-0.01], LOWER).word == "inconclusive"
    assert answer([-0.01] * 3, LOWER).word == "supported"
    unknown = Numbers(np.array([-np.inf] * 3), np.array([np.inf] * 3))
    assert math.isnan(answer(unknown, LOWER).effect.value)
