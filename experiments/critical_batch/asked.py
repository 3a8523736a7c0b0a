"""What is asked of critical batch sizes, of published steps and of our runs alike.

Exponents are judged by the scatter about their line. A claim that there is no effect asks whether
it is below what would matter: an exponent of N below 0.2 (ten times the model, 1.6 times the
batch), an exponent within 0.1 of the published one, a ratio within 1.5.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bss.points.claims import Claim, Source, claim
from bss.points.contrasts import LEVEL, Measured, judge

SLOW = 0.2
NEAR = 0.1
FACTOR = 1.5
PUBLISHED = 0.47  # arXiv 2410.21676: 93.20·N^0.47, and with D = 20N 22.91·D^0.47, in millions

GROWS = "The critical batch grows with model and data together"
DATA = "The critical batch grows with data at a fixed model"
SIZE = f"At fixed data the critical batch grows slower than N^{SLOW:g}"
GROWS_WITH_SIZE = "At fixed data the critical batch grows with model size"
MORE_DATA = "The critical batch's exponent in data exceeds that in model size"
BEST_DATA = "The best batch grows with data at a fixed model"
BEST_SIZE = f"At fixed data the best batch grows slower than N^{SLOW:g}"
BEST_FOLLOWS = "The best batch follows data rather than model size"
AGREES = f"The exponent of the critical batch is within {NEAR:g} of the published {PUBLISHED:g}"
HUMP = "S = a + b/B misses in a pattern: batches in the middle need more steps than it says"
LEVEL_BY_LAW = "S = a + b/B puts the critical batch above the one without a law"

BY_LAW, NO_LAW = "by S = a + b/B", "without a law"
EXPONENT, LOG_STEPS, LOG_RATIO = "in the exponent", "in log steps", "in the log ratio"


@dataclass(frozen=True)
class Asked:
    """A claim before it is judged within its family; the fields are those of a claim.

    Attributes:
        effect: the measurement; one without errors is not testable.
        matters: the smallest effect that would matter; 0 for none named.
    """

    statement: str
    source: Source
    condition: str
    effect: Measured
    sign: Literal[-1, 1]
    unit: str
    note: str = ""
    matters: float = 0.0


def judged(family: Sequence[Asked], table: str) -> list[Claim]:
    """The claims of one family, by both tests and Holm."""
    found = judge(dict(enumerate(one.effect for one in family)))
    return [
        claim(
            one.statement,
            one.source,
            one.condition,
            found[i],
            sign=one.sign,
            unit=one.unit,
            table=table,
            matters=one.matters,
            note=one.note,
        )
        for i, one in enumerate(family)
    ]


def told(effect: Measured, what: str = "exponent") -> str:
    """An effect with the 95% interval of its own scatter, before Holm."""
    if effect.own is None:
        return f"{what} {effect.estimate:.3f}, {effect.n} points, no interval"
    alone = judge({0: replace(effect, pooled=effect.own)})[0]
    inside = f"{alone.low:.3f} to {alone.high:.3f}"
    text = f"{what} {effect.estimate:.3f} ({LEVEL:.0%} before Holm: {inside}; {effect.n} points)"
    return text.replace("-", "−")


def outside(effect: Measured, value: float) -> str:
    """On which side of an effect's own interval, before Holm, a value lies."""
    alone = judge({0: replace(effect, pooled=effect.own)})[0]
    if alone.low is None or alone.high is None:
        return ""
    side = "inside" if alone.low <= value <= alone.high else "outside"
    return f"; {value:g} is {side}"


def joined(*notes: str) -> str:
    """Notes as one."""
    return "; ".join(note for note in notes if note)
