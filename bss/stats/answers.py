"""Answers to statements: the only place where an effect becomes a word.

A statement claims an effect of one sign, a difference of either sign, or equality within a margin.
`answers` decides all statements of a paper together:

- A target that a run misses is a bound, never a value (`Numbers`). Up to MOST_CENSORED of the seeds
  may have a bound: the mean is then trimmed by the same number of seeds at both ends, so that no
  bound counts (Tukey and McLaughlin 1963). With more, the answer is "inconclusive", and the effect
  is a bound.
- P values are adjusted by Holm over the family, and each interval is as wide as its adjusted p
  needs: it excludes 0 exactly if the adjusted p is below 5% (derived here).
- A mean of two seeds decides nothing: LEAST_FREEDOM.
- Equality needs two one-sided 5% tests within the margin. The margin must be below half of the
  effect that the equality qualifies, else it is "not testable here".
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from bss.stats.paired import LEVEL, detectable_shift, holm, holm_products

MOST_CENSORED = 0.2
"""Largest share of seeds with a bound in place of a number for which a statement is tested."""
LEAST_FREEDOM = 2
"""Fewest degrees of freedom that decide: two numbers alone may agree by chance."""
MOST_SEEDS = 500

SUPPORTED = "supported"
CONTRADICTED = "contradicted"
EQUAL = "no relevant effect"
INCONCLUSIVE = "inconclusive"
NOT_TESTABLE = "not testable here"
NOT_TESTED = "not tested"
WORDS = (SUPPORTED, CONTRADICTED, EQUAL, INCONCLUSIVE, NOT_TESTABLE, NOT_TESTED)


@dataclass(frozen=True)
class Numbers:
    """One number per seed, measured or known only up to a bound.

    Arithmetic keeps the bounds: a difference to a run that missed its target is a bound, and a
    minimum that another run decides is a number.

    Attributes:
        low, high: Ends [seed] between which the number lies; equal if it was measured; an open end
            is infinite. NaN: the seed was not trained.

    Examples:
        >>> missed = Numbers.to_target([3.0, 5.0], reached=[True, False])
        >>> (missed - Numbers.measured([1.0, 1.0])).low.tolist()
        [2.0, 4.0]
        >>> missed.censored.tolist(), least(missed, Numbers.measured([9.0, 4.0])).high.tolist()
        ([False, True], [3.0, 4.0])
    """

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def measured(cls, values: ArrayLike) -> "Numbers":
        """Return measured numbers [seed]."""
        known = np.asarray(values, float)
        return cls(known, known)

    @classmethod
    def to_target(cls, values: ArrayLike, reached: ArrayLike) -> "Numbers":
        """Return the amount spent to reach a target; a bound if a run missed it."""
        spent = np.asarray(values, float)
        return cls(spent, np.where(np.asarray(reached, bool), spent, spent + np.inf))

    @property
    def censored(self) -> np.ndarray:
        """True if a seed has a bound and no number."""
        return self.low < self.high

    @property
    def trained(self) -> np.ndarray:
        """Whether a seed was trained."""
        return ~np.isnan(self.low)

    def __sub__(self, other: "Numbers | float") -> "Numbers":
        right = other if isinstance(other, Numbers) else Numbers.measured(other)
        return Numbers(self.low - right.high, self.high - right.low)

    def __mul__(self, factor: float) -> "Numbers":
        ends = np.sort(np.stack([self.low * factor, self.high * factor]), axis=0)
        return Numbers(*ends)


def least(*numbers: Numbers) -> Numbers:
    """Return the minimum of several numbers of each seed."""
    return Numbers(
        np.minimum.reduce([one.low for one in numbers]),
        np.minimum.reduce([one.high for one in numbers]),
    )


def mean_of(*numbers: Numbers) -> Numbers:
    """Return the mean of several numbers of each seed."""
    return Numbers(
        np.mean([one.low for one in numbers], axis=0),
        np.mean([one.high for one in numbers], axis=0),
    )


@dataclass(frozen=True, kw_only=True)
class Effect:
    """An estimated effect.

    Attributes:
        value: The estimate; a bound if `bound` is set; NaN if nothing is known.
        error: Its standard error; NaN if it is not tested.
        freedom: Degrees of freedom of the error: units of replication minus what is estimated.
        seeds: Number of seeds.
        test: What the error is taken over, in words.
        censored: Share of seeds whose number is a bound.
        bound: "", "at least" or "at most".
        qualifies: Size of the effect that a finding of equality would qualify; infinite for none.
    """

    value: float
    error: float
    freedom: float
    seeds: int
    test: str
    censored: float = 0.0
    bound: str = ""
    qualifies: float = math.inf

    @property
    def tested(self) -> bool:
        """Whether it has an error, and few enough bounds."""
        return math.isfinite(self.error) and self.censored <= MOST_CENSORED

    @property
    def p(self) -> float | None:
        """Two-sided p value of no effect; None if it is not tested."""
        if not self.tested:
            return None
        if self.error == 0:
            return float(self.value == 0)
        return float(2 * stdtr(self.freedom, -abs(self.value) / self.error))

    def ends(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the ends of the interval at a level; NaN if it is not tested."""
        if not self.tested:
            return math.nan, math.nan
        reach = float(stdtrit(self.freedom, (1 + level) / 2)) * self.error
        return self.value - reach, self.value + reach

    def within(self, margin: float) -> bool:
        """Return whether two one-sided 5% tests place the effect within a margin."""
        return self.tested and max(map(abs, self.ends(2 * LEVEL - 1))) < margin


def effect_of(numbers: Numbers | ArrayLike, qualifies: float = math.inf) -> Effect:
    """Return the mean of numbers [seed] with its paired t test, as a bound if too many are bounds.

    Examples:
        >>> effect_of([-0.010, -0.012, -0.008]).seeds
        3
        >>> missed = Numbers.to_target([1.0, 2.0, 3.0], reached=[False, False, True])
        >>> effect_of(missed).bound
        'at least'
    """
    if not isinstance(numbers, Numbers):
        numbers = Numbers.measured(numbers)
    low = numbers.low[numbers.trained]
    high = numbers.high[numbers.trained]
    if not len(low):
        return Effect(value=math.nan, error=math.nan, freedom=0, seeds=0, test="none")
    share = float(np.mean(low < high))
    found = _bounded(low, high) if share > MOST_CENSORED else _tested(low, high)
    return replace(found, censored=share, qualifies=qualifies)


def _bounded(low: np.ndarray, high: np.ndarray) -> Effect:
    """Return a bound of the mean of numbers between two ends."""
    value = math.nan
    bound = ""
    if np.isfinite(low).all() and np.isinf(high).any():
        value = float(low.mean())
        bound = "at least"
    elif np.isfinite(high).all() and np.isinf(low).any():
        value = float(high.mean())
        bound = "at most"
    return Effect(
        value=value, error=math.nan, freedom=0, seeds=len(low), test="none: bounds", bound=bound
    )


def _tested(low: np.ndarray, high: np.ndarray) -> Effect:
    """Return the mean of numbers, trimmed at both ends by the number of bounds."""
    clear = (low == high) | (np.isinf(low) != np.isinf(high))  # not open at both ends
    ranked = np.sort(np.where(np.isinf(low), low, np.where(np.isinf(high), high, low))[clear])
    trimmed = int(max(np.isposinf(ranked).sum(), np.isneginf(ranked).sum()))
    inner = ranked[trimmed : len(ranked) - trimmed]
    value = float(inner.mean()) if len(inner) else math.nan
    error = math.nan
    if len(inner) > 1:
        winsorized = np.clip(ranked, inner[0], inner[-1])
        spread = float(winsorized.std(ddof=1)) if np.ptp(winsorized) else 0.0
        error = spread * math.sqrt(len(ranked)) / len(inner)
    return Effect(
        value=value,
        error=error,
        freedom=max(len(inner) - 1, 0),
        seeds=len(low),
        test=f"paired t, {trimmed} trimmed at each end" if trimmed else "paired t",
    )


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The claim of a statement.

    Attributes:
        sign: Sign of the claimed effect; 0 for a difference of either sign.
        margin: Largest effect that is not relevant.
        equal: Whether the statement claims an effect within the margin.
        or_equal: Whether an effect within the margin supports the statement, too.
        asked_before: What earlier seeds or conditions answered, e.g. "inconclusive (5 seeds)".
    """

    sign: int
    margin: float
    equal: bool = False
    or_equal: bool = False
    asked_before: str = ""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to a statement.

    Attributes:
        effect: The estimate, with its test, number of seeds and censored share.
        claim: What was claimed, with the margin, and what was asked before.
        family: Number of tests over which p and the interval are adjusted.
        p: Adjusted two-sided p value; None if it is not tested.
        level: Level of the interval of this effect alone; all intervals of the family hold at 95%.
    """

    effect: Effect
    claim: Claim
    family: int = 0
    p: float | None = None
    level: float = LEVEL

    @property
    def low(self) -> float:
        """Lower end of the adjusted interval."""
        return self.effect.ends(self.level)[0]

    @property
    def high(self) -> float:
        """Upper end of the adjusted interval."""
        return self.effect.ends(self.level)[1]

    @property
    def significant(self) -> bool:
        """Whether the adjusted p value is below 5%."""
        return self.p is not None and self.p < 1 - LEVEL

    @property
    def testable(self) -> bool:
        """Whether the margin of an equality is below half of the effect that it qualifies."""
        return self.claim.margin < self.effect.qualifies / 2

    @property
    def word(self) -> str:
        """One of WORDS."""
        if not self.effect.seeds:
            return NOT_TESTED
        if not self.effect.tested or self.effect.freedom < LEAST_FREEDOM:
            return INCONCLUSIVE
        return self._of_equality() if self.claim.equal else self._of_difference()

    def _of_equality(self) -> str:
        outside = max(self.low, -self.high) > self.claim.margin
        if self.significant and outside:
            return CONTRADICTED
        if not self.testable:
            return NOT_TESTABLE
        return SUPPORTED if self.effect.within(self.claim.margin) else INCONCLUSIVE

    def _of_difference(self) -> str:
        if self.significant:
            agrees = self.claim.sign in (0, np.sign(self.effect.value))
            return SUPPORTED if agrees else CONTRADICTED
        if not self.effect.within(self.claim.margin):
            return INCONCLUSIVE
        if not self.testable:
            return NOT_TESTABLE
        return SUPPORTED if self.claim.or_equal else EQUAL

    @property
    def detectable(self) -> float:
        """Effect that the adjusted test detects in 80% of studies; NaN without an error."""
        if not self.effect.tested or not self.effect.error:
            return math.nan
        return detectable_shift(self.effect.freedom, self.level) * self.effect.error

    @property
    def seeds_needed(self) -> float:
        """Seeds that detect an effect of the margin; NaN if decided, or more than MOST_SEEDS."""
        if self.word != INCONCLUSIVE or not self.effect.tested or not self.claim.margin > 0:
            return math.nan
        spread = self.effect.error * math.sqrt(self.effect.seeds)
        for seeds in range(3, MOST_SEEDS):
            reach = detectable_shift(seeds - 1, self.level) * spread / math.sqrt(seeds)
            if reach <= self.claim.margin:
                return seeds
        return math.nan


def answers(claims: Mapping[str, Claim], effects: Mapping[str, Effect]) -> dict[str, Answer]:
    """Return the answer to each statement that has an effect; all tests are one family.

    Args:
        claims: By key.
        effects: By key; those without a test do not count in the family.

    Examples:
        >>> lower = effect_of([-0.010, -0.012, -0.008, -0.011])
        >>> found = answers({"lower": Claim(sign=-1, margin=0.005)}, {"lower": lower})
        >>> found["lower"].word
        'supported'
    """
    known = [key for key in claims if key in effects]
    p = {key: one for key in known if (one := effects[key].p) is not None}
    adjusted = holm([*p.values()])
    factors = _factors([*p.values()])
    found = {key: Answer(effect=effects[key], claim=claims[key]) for key in known}
    for key, own, factor in zip(p, adjusted, factors, strict=True):
        level = 1 - (1 - LEVEL) / float(factor)
        found[key] = replace(found[key], family=len(p), p=float(own), level=level)
    return found


def _factors(p: Sequence[float]) -> np.ndarray:
    """Return by how much Holm multiplies each p value, before the cap at 1."""
    values = np.asarray(p, float)
    rest = len(values) - np.argsort(np.argsort(values))  # tests that are left, of p = 0
    known = values > 0
    return np.where(known, holm_products(p) / np.where(known, values, 1), rest)
