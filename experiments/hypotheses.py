"""What is claimed before it is judged: hypotheses of one family, and the claims they become."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Literal, ParamSpec

from bss.points.claims import Claim, Source, claim
from bss.points.contrasts import Effect, judge
from bss.points.standings import NO_WORSE

P = ParamSpec("P")
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


def one_family(asked: Callable[P, Iterable[Hypothesis]]) -> Callable[P, list[Claim]]:
    """A function whose hypotheses are one family: it gives their claims."""

    @wraps(asked)
    def claims(*args: P.args, **known: P.kwargs) -> list[Claim]:
        return judged(asked(*args, **known))

    return claims
