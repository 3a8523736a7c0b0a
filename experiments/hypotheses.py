"""What is claimed before it is judged: hypotheses of one family, and the claims they become."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from bss.points.claims import Claim, Source, claim
from bss.points.contrasts import Effect, judge
from bss.points.standings import NO_WORSE

lower = partial(claim, sign=-1, unit="nats", matters=NO_WORSE)
"""A claim that a final loss is below another's, of a contrast that is judged already."""


@dataclass(frozen=True)
class Hypothesis:
    """A claim whose effect is measured and not judged yet; the fields are those of `claim`.

    Attributes:
        effect: the measurement; one without errors is not testable.
        sign: that the claim gives it.
        matters: the smallest effect that would matter; 0 for none named.
    """

    statement: str
    source: Source
    condition: str
    effect: Effect
    unit: str
    table: str
    note: str = ""
    sign: Literal[-1, 1] = -1
    matters: float = 0.0


def judged(family: Iterable[Hypothesis]) -> list[Claim]:
    """The claims of one family, by both tests and Holm."""
    members = list(family)
    effects = judge({i: one.effect for i, one in enumerate(members)})
    return [claim(**{**vars(one), "effect": effects[i]}) for i, one in enumerate(members)]
