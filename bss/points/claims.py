"""A claim, what was measured of it, and the verdict: results that can be cited.

A verdict is a contrast's, after both tests of bss.points.contrasts and Holm at 95%:

    shown            the effect that is claimed
    opposite shown   its opposite
    not shown        neither, and the interval leaves no room for an effect that matters
    undecided        neither, and it could be there
    not testable here
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bss.points.contrasts import LEVEL, Contrast

Source = Literal["paper", "secondary", "derived"]
Verdict = Literal["shown", "opposite shown", "not shown", "undecided", "not testable here"]


@dataclass(frozen=True)
class Interval:
    """An interval at a level, adjusted for the family it was judged in; None for an open end."""

    low: float | None
    high: float | None
    level: float = LEVEL


@dataclass(frozen=True)
class Claim:
    """One claim under one condition.

    Attributes:
        statement: what is claimed.
        source: "paper" its own text, "secondary" accounts of it, "derived" here.
        condition: under which it was measured, and of what.
        estimate: the effect; None where nothing tells it.
        unit: of the estimate and of its interval.
        interval: of the estimate.
        n: seeds, or what else was counted.
        p: two-sided, of the contrast's own t.
        p_adjusted: the same after Holm within its table and ending.
        pooled_p: two-sided, with the seed scatter pooled.
        pooled_p_adjusted: the same after Holm.
        smallest_effect: the effect that would have been seen in 80% of such studies.
        verdict: see the module.
        note: what else must be said with it.
        table: the committed table that it was computed from.
    """

    statement: str
    source: Source
    condition: str
    estimate: float | None
    unit: str
    interval: Interval
    n: int
    p: float | None
    p_adjusted: float | None
    pooled_p: float | None
    pooled_p_adjusted: float | None
    smallest_effect: float | None
    verdict: Verdict
    note: str
    table: str


def claim(
    statement: str,
    source: Source,
    condition: str,
    contrast: Contrast,
    *,
    sign: Literal[-1, 1],
    unit: str,
    table: str,
    matters: float = 0.0,
    note: str = "",
) -> Claim:
    """A claim that a contrast has a sign, judged.

    Args:
        statement: what is claimed.
        source: whose claim it is.
        condition: under which it was measured.
        contrast: the measurement, judged within its family.
        sign: which the claim gives it.
        unit: of the contrast.
        table: where it comes from.
        matters: the smallest effect that would matter; 0 for none named.
        note: what else must be said.
    """
    return Claim(
        statement,
        source,
        condition,
        None if math.isnan(contrast.estimate) else contrast.estimate,
        unit,
        Interval(contrast.low, contrast.high, contrast.level),
        contrast.n,
        contrast.p,
        contrast.p_adjusted,
        contrast.pooled_p,
        contrast.pooled_p_adjusted,
        contrast.smallest_effect,
        judged(contrast, sign, matters),
        note,
        table,
    )


def untestable(
    statement: str, source: Source, condition: str, *, unit: str, table: str, note: str, n: int = 0
) -> Claim:
    """A claim that these runs cannot test, and why (the note)."""
    nothing = (None,) * 5
    interval = Interval(None, None)
    return Claim(
        statement,
        source,
        condition,
        None,
        unit,
        interval,
        n,
        *nothing,
        "not testable here",
        note,
        table,
    )


def judged(contrast: Contrast, sign: int, matters: float = 0.0) -> Verdict:
    """The verdict on a claim that a contrast has a sign."""
    if contrast.p is None or contrast.low is None or contrast.high is None:
        return "not testable here"
    if contrast.sign:
        return "shown" if contrast.sign == sign else "opposite shown"
    return "not shown" if -matters < contrast.low and contrast.high < matters else "undecided"


def markdown(claims: Sequence[Claim]) -> str:
    """Claims as a Markdown table: statement, condition, estimate with its interval, n, verdict."""
    rows = [
        "| claim | measured | estimate (95%, adjusted) | n | verdict |",
        "|---|---|---|---|---|",
    ]
    for one in claims:
        cells = (f"{one.statement} [{one.source}]", one.condition, estimate(one), one.n or "–")
        rows.append("| " + " | ".join(map(str, (*cells, one.verdict))) + " |")
    return "\n".join(rows)


def estimate(one: Claim) -> str:
    """A claim's estimate with its interval and unit, as text."""
    if one.estimate is None:
        return "–"
    low, high = one.interval.low, one.interval.high
    if low is None and high is None:
        return f"{_number(one.estimate)} {one.unit}"
    ends = [
        ("no lower end" if low is None else _number(low)),
        ("no upper end" if high is None else _number(high)),
    ]
    return f"{_number(one.estimate)} ({ends[0]} to {ends[1]}) {one.unit}"


def _number(value: float) -> str:
    digits = 4 if abs(value) < 0.1 else 3 if abs(value) < 1 else 2
    return f"{value:+.{digits}f}".replace("-", "−")
