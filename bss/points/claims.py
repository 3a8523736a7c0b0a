"""A claim, what was measured of it, and the verdict: results that can be cited.

A verdict is a contrast's, after both tests of bss.points.contrasts and Holm at 95%:

    shown            the effect that is claimed
    opposite shown   its opposite
    not shown        neither, and the interval leaves no room for an effect that matters
    undecided        neither, and it could be there
    not testable here
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from bss.points.censored import Bound
from bss.points.contrasts import LEVEL, Contrast, over_seeds
from bss.points.crossings import Rise

Source = Literal["paper", "secondary", "derived"]
Verdict = Literal["shown", "opposite shown", "not shown", "undecided", "not testable here"]
RISES = "B_opt rises as the loss falls"
UNKNOWN_RISE = (
    "the best batch is at an edge of those that reached the targets: its rise is not bounded"
)


@dataclass(frozen=True)
class Claim:
    """One claim under one condition, that an effect has a sign.

    Attributes:
        statement: what is claimed.
        source: "paper" its own text, "secondary" accounts of it, "derived" here.
        condition: under which it was measured, and of what.
        effect: the measurement, judged within its family; in JSON its fields stand beside the
            others, its ends under "interval".
        unit: of the effect.
        verdict: see the module.
        table: the committed table that it was computed from.
        note: what else must be said with it.
    """

    statement: str
    source: Source
    condition: str
    effect: Contrast
    unit: str
    verdict: Verdict
    table: str
    note: str = ""

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """The fields as JSON has them."""
        effect = plain.pop("effect")
        interval = {key: effect.pop(key) for key in ("low", "high", "level")}
        estimate = effect.pop("estimate")
        first = {key: plain.pop(key) for key in ("statement", "source", "condition")}
        known = None if math.isnan(estimate) else estimate
        return {**first, "estimate": known, "interval": interval, **effect, **plain}

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields that `encoded` made, as the class has them."""
        of_effect = [field.name for field in dataclasses.fields(Contrast)]
        effect = {key: entry.pop(key) for key in of_effect if key in entry}
        return {**entry, "effect": {**effect, **entry.pop("interval")}}


def claim(
    statement: str,
    source: Source,
    condition: str,
    effect: Contrast,
    *,
    sign: Literal[-1, 0, 1],
    unit: str,
    table: str,
    matters: float = 0.0,
    note: str = "",
) -> Claim:
    """A claim that an effect has a sign, or that there is none that matters, with its verdict.

    That there is none is shown where both tests would have shown an effect that matters in 80% of
    such tables, and the one that was found does not come near: with nothing named that matters it
    never is. The opposite is shown by an effect of which the whole interval matters.

    Args:
        statement: what is claimed.
        source: whose claim it is.
        condition: under which it was measured.
        effect: the measurement, judged within its family.
        sign: which the claim gives it; 0 of a claim that there is none.
        unit: of the effect.
        table: where it comes from.
        matters: the smallest effect that would matter; 0 for none named.
        note: what else must be said.
    """
    verdict = judged(effect, sign, matters)
    return Claim(statement, source, condition, effect, unit, verdict, table, note)


def untestable(
    statement: str, source: Source, condition: str, *, table: str, note: str, n: int = 0
) -> Claim:
    """A claim that these runs cannot test, and why (the note)."""
    nothing = Contrast(math.nan, None, None, LEVEL, n)
    return Claim(statement, source, condition, nothing, "", "not testable here", table, note)


def bounded(one: Claim, bound: Bound) -> Claim:
    """A claim of an effect that is only a bound: the verdict that it allows, the interval so far.

    "unknown" allows none.
    """
    if not bound:
        return one
    allowed, ends = {
        "at least": ("shown", {"high": None}),
        "at most": ("opposite shown", {"low": None}),
    }.get(bound, (None, {"low": None, "high": None}))
    verdict = one.verdict if one.verdict in (allowed, "not testable here") else "undecided"
    return dataclasses.replace(one, effect=dataclasses.replace(one.effect, **ends), verdict=verdict)


def rises(
    growths: Mapping[str, Rise], *, source: Source, table: str, note: str = ""
) -> list[Claim]:
    """The claim that B_opt rises as the loss falls, under conditions that are one family.

    A best batch at the edge of those measured is "at most" or "at least" that batch. A rise from
    such an optimum is a bound too: one that is positive by both tests shows the rise, one that is
    not leaves it open; and where both ends lie at one edge nothing is known of it (derived here).

    Args:
        growths: of each condition, from the highest target to the lowest.
        source: whose claim it is.
        table: where the growths come from.
        note: what else must be said.
    """
    known = {when: rise for when, rise in growths.items() if rise.bound != "unknown"}
    effects = over_seeds({when: rise.doublings for when, rise in known.items()})
    claims = []
    for when, rise in growths.items():
        if when not in known:
            n = len(rise.doublings)
            why = f"{UNKNOWN_RISE}; {note}" if note else UNKNOWN_RISE
            claims.append(untestable(RISES, source, when, table=table, note=why, n=n))
            continue
        condition = f"{when}, {rise.bound}" if rise.bound else when
        effect = effects[when]
        one = claim(
            RISES, source, condition, effect, sign=1, unit="doublings", table=table, note=note
        )
        claims.append(bounded(one, rise.bound))
    return claims


def judged(effect: Contrast, sign: int, matters: float = 0.0) -> Verdict:
    """The verdict on a claim that an effect has a sign, or with sign 0 that none matters."""
    if effect.p is None or effect.low is None or effect.high is None:
        return "not testable here"
    if not sign:
        if effect.smallest_effect is None:
            return "not testable here"
        if effect.sign and min(abs(effect.low), abs(effect.high)) >= matters:
            return "opposite shown"
        far = abs(effect.estimate) + effect.smallest_effect
        return "shown" if far < matters else "undecided"
    if effect.sign:
        return "shown" if effect.sign == sign else "opposite shown"
    return "not shown" if -matters < effect.low and effect.high < matters else "undecided"


def markdown(claims: Sequence[Claim]) -> str:
    """Claims as a Markdown table: a row a statement, what was found by condition.

    Decided ones come first and with their numbers.
    """
    rows = ["| claim | source | verdict |", "|---|---|---|"]
    for statement, source in dict.fromkeys((one.statement, one.source) for one in claims):
        alike = [one for one in claims if (one.statement, one.source) == (statement, source)]
        cells = []
        for verdict in get_args(Verdict):
            some = [one for one in alike if one.verdict == verdict]
            decided = verdict in ("shown", "opposite shown", "not shown")
            texts = [f"{one.condition}{effect_text(one) if decided else ''}" for one in some]
            if some:
                cells.append(f"**{verdict}**: {'; '.join(dict.fromkeys(texts))}")
        rows.append(f"| {statement} | {source} | {'<br>'.join(cells)} |")
    return "\n".join(rows)


def summary(claims: Sequence[Claim]) -> tuple[str, str]:
    """How often each verdict, and the effect: with its interval, or the lowest and the highest."""
    verdicts = [one.verdict for one in claims]
    times = [(verdict, verdicts.count(verdict)) for verdict in get_args(Verdict)]
    counts = ", ".join(f"{verdict} {n}" for verdict, n in times if n)
    known = [one for one in claims if not math.isnan(one.effect.estimate)]
    ordered = sorted(known, key=lambda one: one.effect.estimate)
    ends = dict.fromkeys(effect_text(one).strip(" ()") for one in (ordered[:1] + ordered[-1:]))
    return counts, "<br>".join(ends)


def effect_text(one: Claim) -> str:
    """The effect with its interval and unit in brackets; nothing where there is none.

    What was computed without chance has no interval to tell.
    """
    effect = one.effect
    if math.isnan(effect.estimate):
        return f" ({one.note})" if one.note else ""
    if effect.low is None or effect.high is None or effect.low == effect.high:
        return f" ({_number(effect.estimate)} {one.unit})"
    ends = f"{_number(effect.low)} to {_number(effect.high)}"
    return f" ({_number(effect.estimate)}, {ends} {one.unit})"


def _number(value: float) -> str:
    digits = 4 if abs(value) < 0.1 else 3 if abs(value) < 1 else 2
    return f"{value:+.{digits}f}".replace("-", "−")
