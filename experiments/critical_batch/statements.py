"""What is claimed of critical batch sizes, of published steps and of our runs alike.

Exponents are judged by the scatter about their line. A claim that there is no effect asks whether
it is below what would matter: an exponent of N below 0.2 (ten times the model, 1.6 times the
batch), an exponent within 0.1 of the published one, a ratio within 1.5.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from bss.contests.claims import Asked, Claim, Question, Source, judged
from bss.contests.contrasts import LEVEL, Contrast, Effect, judge
from bss.contests.effects import beyond
from bss.laws.critical.judged import law_over_none, misfit
from bss.laws.critical.values import CriticalBatch

SLOW = 0.2
NEAR = 0.1
FACTOR = 1.5
PUBLISHED = 0.47  # arXiv 2410.21676: 93.20·N^0.47, and with D = 20N 22.91·D^0.47, in millions

BY_LAW, NO_LAW = "by S = a + b/B", "without a law"
WAYS = {BY_LAW: False, NO_LAW: True}
"""Whether the critical batch is interpolated, by what the way is called."""
EXPONENT, LOG_STEPS, LOG_RATIO = "in the exponent", "in log steps", "in the log ratio"
BEYOND = f"{LOG_RATIO}, beyond × {FACTOR:g}"
TO_SLOW, TO_NEAR = f"{EXPONENT}, beyond {SLOW:g}", f"{EXPONENT}, beyond {NEAR:g}"


def _grows(statement: str, source: Source = "paper") -> Question:
    return Question(statement, source, 1, EXPONENT, SLOW)


GROWS = _grows("The critical batch grows with model and data together")
DATA = _grows("The critical batch grows with data at a fixed model")
GROWS_WITH_SIZE = _grows("At fixed data the critical batch grows with model size", "derived")
MORE_DATA = _grows("The critical batch's exponent in data exceeds that in model size")
SIZE = Question(
    f"At fixed data the critical batch grows slower than N^{SLOW:g}", "paper", unit=TO_SLOW
)
AGREES = Question(
    f"The exponent of the critical batch is within {NEAR:g} of the published {PUBLISHED:g}",
    "paper",
    unit=TO_NEAR,
)
HUMP = Question(
    "S = a + b/B misses in a pattern: batches in the middle need more steps than it says",
    "derived",
    1,
    LOG_STEPS,
)
LEVEL_BY_LAW = Question(
    "S = a + b/B puts the critical batch above the one without a law", "derived", 1, LOG_RATIO
)


def of_steps(
    curves: Sequence[CriticalBatch], where: str, table: str, hump: str, level: str
) -> list[Claim]:
    """Whether the law of the steps misses in a pattern, and moves the critical batch.

    Args:
        curves: of one family.
        where: they were measured.
        table: they are from.
        hump: note on the pattern.
        level: and on the critical batch.
    """
    misses = HUMP.asked(where, misfit(curves), table, hump)
    return judged([misses, LEVEL_BY_LAW.asked(where, law_over_none(curves), table, level)])


def within_factor(effect: Effect) -> Effect:
    """How much farther a log ratio is from 0 than what would matter."""
    return beyond(effect, 0, math.log(FACTOR))


def of_exponent(
    question: Question,
    where: str,
    effect: Effect,
    table: str,
    notes: Sequence[str],
    betas: str = "",
) -> Asked:
    """A claim about an exponent; one of no effect asks whether it is below what would matter."""
    note = joined(with_interval(effect), *notes)
    if question == SIZE:
        effect = beyond(effect, 0, SLOW)
    if question == AGREES:
        note = joined(with_interval(effect) + side(effect, PUBLISHED), *notes, betas)
        effect = beyond(effect, PUBLISHED, NEAR)
    return question.asked(where, effect, table, note)


def alone(effect: Effect) -> Contrast:
    """An effect by its own scatter, before Holm."""
    return judge({0: replace(effect, pooled=effect.own)})[0]


def with_interval(effect: Effect, what: str = "exponent") -> str:
    """An effect with the 95% interval of its own scatter, before Holm."""
    if effect.own is None:
        return f"{what} {effect.estimate:.3f}, {effect.n} points, no interval"
    own = alone(effect)
    inside = f"{own.low:.3f} to {own.high:.3f}"
    text = f"{what} {effect.estimate:.3f} ({LEVEL:.0%} before Holm: {inside}; {effect.n} points)"
    return text.replace("-", "−")


def side(effect: Effect, value: float) -> str:
    """On which side of an effect's own interval, before Holm, a value lies."""
    own = alone(effect)
    if own.low is None or own.high is None:
        return ""
    return f"; {value:g} is {'inside' if own.low <= value <= own.high else 'outside'}"


def joined(*notes: str) -> str:
    """Notes as one."""
    return "; ".join(note for note in notes if note)
