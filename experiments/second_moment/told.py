"""Claims of this study as they are told: differences of test losses between its runs."""

from typing import Literal

from bss.points.claims import Claim, Source, claim
from bss.points.contrasts import Contrast
from bss.points.standings import NO_WORSE

LARGER = "At its own rate the rule with the larger beta2 ends lower"


def told(
    statement: str,
    condition: str,
    effect: Contrast,
    part: str,
    note: str,
    *,
    sign: Literal[-1, 1],
    matters: float = NO_WORSE,
    source: Source = "derived",
) -> Claim:
    """A claim in nats, from the contenders of a part."""
    table = f"results/second_moment/{part}/contenders.csv"
    known = {"unit": "nats", "table": table, "matters": matters, "note": note}
    return claim(statement, source, condition, effect, sign=sign, **known)


def ended_lower(statement: str, condition: str, effect: Contrast, part: str, note: str) -> Claim:
    """A claim that a loss is lower than another."""
    return told(statement, condition, effect, part, note, sign=-1)
