"""A claim, what was measured of it, and the verdict: results that can be cited.

A verdict is a contrast's, after both tests of bss.contests.contrasts and Holm at 95%:

    shown            the effect that is claimed
    opposite shown   its opposite
    not shown        neither, and the interval leaves no room for an effect that matters
    undecided        neither, and it could be there
    not testable here
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from bss.contests.contest import NO_WORSE
from bss.contests.contrasts import LEVEL, Contrast, Effect, judge, over_seeds
from bss.errors import InputError
from bss.points.censored import Bound
from bss.points.crossings import Rise

Source = Literal["paper", "secondary", "derived"]
Verdict = Literal["shown", "opposite shown", "not shown", "undecided", "not testable here"]
UNKNOWN_RISE = (
    "the best batch is at an edge of those that reached the targets: its rise is not bounded"
)


@dataclass(frozen=True)
class Question:
    """What is claimed: that an effect has a sign, or that there is none that matters.

    Attributes:
        statement: what is claimed.
        source: "paper" its own text, "secondary" accounts of it, "derived" here.
        sign: which the claim gives the effect; 0 of a claim that there is none.
        unit: of the effect.
        matters: the smallest effect that would matter; 0 for none named.
    """

    statement: str
    source: Source
    sign: Literal[-1, 0, 1] = -1
    unit: str = "nats"
    matters: float = 0.0

    @classmethod
    def of_loss(
        cls, statement: str, source: Source = "derived", sign: Literal[-1, 1] = -1
    ) -> "Question":
        """That a final loss is below another's, or with sign 1 above."""
        return cls(statement, source, sign, matters=NO_WORSE)

    def verdict(self, effect: Contrast) -> Verdict:
        """That there is none is shown where the tests would have shown an effect that matters in
        80% of such tables, and the one that was found does not come near: with nothing named that
        matters it never is. The opposite is then shown by an effect whose whole interval matters.
        """
        if effect.p is None or effect.low is None or effect.high is None:
            return "not testable here"
        if not self.sign:
            if effect.smallest_effect is None:
                return "not testable here"
            if effect.sign and min(abs(effect.low), abs(effect.high)) >= self.matters:
                return "opposite shown"
            far = abs(effect.estimate) + effect.smallest_effect
            return "shown" if far < self.matters else "undecided"
        if effect.sign:
            return "shown" if effect.sign == self.sign else "opposite shown"
        inside = -self.matters < effect.low and effect.high < self.matters
        return "not shown" if inside else "undecided"

    def claim(
        self,
        condition: str,
        effect: Contrast,
        table: str,
        note: str = "",
        *,
        bound: Bound = "",
        runs: str = "",
    ) -> "Claim":
        """The claim of an effect that is judged within its family; arguments as of `Claim`.

        Of an effect that is only a bound the verdict is what the bound allows, and the interval is
        open on its side; "unknown" allows none.
        """
        made = Claim(self, condition, effect, self.verdict(effect), table, note, runs)
        if not bound:
            return made
        allowed, ends = {
            "at least": ("shown", {"high": None}),
            "at most": ("opposite shown", {"low": None}),
        }.get(bound, (None, {"low": None, "high": None}))
        verdict = made.verdict if made.verdict in (allowed, "not testable here") else "undecided"
        return dataclasses.replace(
            made, effect=dataclasses.replace(effect, **ends), verdict=verdict
        )

    def untestable(self, condition: str, table: str, note: str, n: int = 0) -> "Claim":
        """A claim that these runs cannot test, and why (the note)."""
        nothing = Contrast(math.nan, None, None, LEVEL, n)
        return Claim(self, condition, nothing, "not testable here", table, note)

    def asked(
        self, condition: str, effect: Effect, table: str, note: str = "", bound: Bound = ""
    ) -> "Asked":
        """A measurement that is to be judged with others of its family."""
        return Asked(self, condition, effect, table, note, bound)


@dataclass(frozen=True)
class Asked:
    """A question and a measurement that is not judged yet; one without errors is not testable.

    `chosen_of` is how many such measurements it is the surest of.
    """

    question: Question
    condition: str
    effect: Effect
    table: str
    note: str = ""
    bound: Bound = ""
    chosen_of: int = 1


@dataclass(frozen=True)
class Claim:
    """A question, and what was measured under one condition.

    Attributes:
        question: what is claimed.
        condition: under which it was measured, and of what.
        effect: the measurement, judged within its family; in JSON its fields stand beside the
            others, its ends under "interval".
        verdict: see the module.
        table: the committed table that it was computed from.
        note: what else must be said with it.
        runs: the ids of the runs that it is of; "" where the table does not tell them.
    """

    question: Question
    condition: str
    effect: Contrast
    verdict: Verdict
    table: str
    note: str = ""
    runs: str = ""

    @property
    def statement(self) -> str:
        """What is claimed."""
        return self.question.statement

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """The fields as JSON has them."""
        effect, question = plain.pop("effect"), plain.pop("question")
        interval = {key: effect.pop(key) for key in ("low", "high", "level")}
        estimate = effect.pop("estimate")
        first = {key: question.pop(key) for key in ("statement", "source")}
        first["condition"] = plain.pop("condition")
        known = None if math.isnan(estimate) else estimate
        question["unit"] = "" if known is None else question["unit"]
        return {**first, "estimate": known, "interval": interval, **effect, **question, **plain}

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields that `encoded` made, as the class has them."""
        parts = {}
        for name, kind in (("question", Question), ("effect", Contrast)):
            known = [field.name for field in dataclasses.fields(kind)]
            parts[name] = {key: entry.pop(key) for key in known if key in entry}
        return {**entry, **parts, "effect": {**parts["effect"], **entry.pop("interval")}}


def judged(family: Iterable[Asked]) -> list[Claim]:
    """The claims of one family, by both tests and Holm."""
    members = list(family)
    chosen_of = {i: one.chosen_of for i, one in enumerate(members)}
    effects = judge({i: one.effect for i, one in enumerate(members)}, chosen_of=chosen_of)
    return [
        one.question.claim(one.condition, effects[i], one.table, one.note, bound=one.bound)
        for i, one in enumerate(members)
    ]


def check_once(claims: Iterable[Claim]) -> None:
    """Refuses a question that is asked twice of the same runs, or twice under one condition.

    Raises:
        InputError: it is.
    """
    seen: dict[tuple[str, str], Claim] = {}
    for one in claims:
        keys = [f"{one.condition} of {one.table}", one.runs]
        for key in filter(None, keys):
            if other := seen.get((one.statement, key)):
                raise InputError(
                    f"{one.table}: {one.statement!r}, {one.condition}, is asked of the same runs "
                    f"in {other.table} ({other.condition}); leave one out"
                )
            seen[one.statement, key] = one


RISES = Question("B_opt rises as the loss falls", "secondary", 1, "doublings")


def rises(growths: Mapping[str, Rise], table: str, note: str = "") -> list[Claim]:
    """The claim that B_opt rises as the loss falls, under conditions that are one family.

    A best batch at the edge of those measured is "at most" or "at least" that batch. A rise from
    such an optimum is a bound too: one that is positive by both tests shows the rise, one that is
    not leaves it open; and where both ends lie at one edge nothing is known of it (derived here).

    Args:
        growths: of each condition, from the highest target to the lowest.
        table: where the growths come from.
        note: what else must be said.
    """
    known = {when: rise for when, rise in growths.items() if rise.bound != "unknown"}
    effects = over_seeds({when: rise.doublings for when, rise in known.items()})
    claims = []
    for when, rise in growths.items():
        if when in known:
            condition = f"{when}, {rise.bound}" if rise.bound else when
            claims.append(RISES.claim(condition, effects[when], table, note, bound=rise.bound))
        else:
            why = f"{UNKNOWN_RISE}; {note}" if note else UNKNOWN_RISE
            claims.append(RISES.untestable(when, table, why, len(rise.doublings)))
    return claims


def markdown(claims: Sequence[Claim]) -> str:
    """Claims as a Markdown table: a row a statement, what was found by condition.

    Decided ones come first and with their numbers.
    """
    rows = ["| claim | source | verdict |", "|---|---|---|"]
    for asked in dict.fromkeys((one.statement, one.question.source) for one in claims):
        alike = [one for one in claims if (one.statement, one.question.source) == asked]
        cells = []
        for verdict in get_args(Verdict):
            some = [one for one in alike if one.verdict == verdict]
            decided = verdict in ("shown", "opposite shown", "not shown")
            texts = [f"{one.condition}{effect_text(one) if decided else ''}" for one in some]
            if some:
                cells.append(f"**{verdict}**: {'; '.join(dict.fromkeys(texts))}")
        rows.append(f"| {asked[0]} | {asked[1]} | {'<br>'.join(cells)} |")
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
        return f" ({_number(effect.estimate)} {one.question.unit})"
    ends = f"{_number(effect.low)} to {_number(effect.high)}"
    return f" ({_number(effect.estimate)}, {ends} {one.question.unit})"


def _number(value: float) -> str:
    digits = 4 if abs(value) < 0.1 else 3 if abs(value) < 1 else 2
    return f"{value:+.{digits}f}".replace("-", "−")
