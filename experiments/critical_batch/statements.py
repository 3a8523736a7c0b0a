"""What is claimed of critical batch sizes, of published steps and of our runs alike.

Exponents are judged by the scatter about their line. A claim that there is no effect asks whether
it is below what would matter: an exponent of N below 0.2 (ten times the model, 1.6 times the
batch), an exponent within 0.1 of the published one, a ratio within 1.5.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from bss.laws.critical.judged import law_over_none, misfit
from bss.laws.critical.values import CriticalBatch
from bss.points.claims import Claim
from bss.points.contrasts import LEVEL, Contrast, Effect, judge
from bss.points.effects import beyond
from experiments.hypotheses import Hypothesis, judged

SLOW = 0.2
NEAR = 0.1
FACTOR = 1.5
PUBLISHED = 0.47  # arXiv 2410.21676: 93.20·N^0.47, and with D = 20N 22.91·D^0.47, in millions

GROWS = "The critical batch grows with model and data together"
DATA = "The critical batch grows with data at a fixed model"
SIZE = f"At fixed data the critical batch grows slower than N^{SLOW:g}"
GROWS_WITH_SIZE = "At fixed data the critical batch grows with model size"
MORE_DATA = "The critical batch's exponent in data exceeds that in model size"
AGREES = f"The exponent of the critical batch is within {NEAR:g} of the published {PUBLISHED:g}"
HUMP = "S = a + b/B misses in a pattern: batches in the middle need more steps than it says"
LEVEL_BY_LAW = "S = a + b/B puts the critical batch above the one without a law"

BY_LAW, NO_LAW = "by S = a + b/B", "without a law"
WAYS = {BY_LAW: False, NO_LAW: True}
"""Whether the critical batch is interpolated, by what the way is called."""
EXPONENT, LOG_STEPS, LOG_RATIO = "in the exponent", "in log steps", "in the log ratio"


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
    effects = misfit(curves), law_over_none(curves)
    return judged(
        [
            Hypothesis(HUMP, "derived", where, effects[0], LOG_STEPS, table, hump, 1),
            Hypothesis(LEVEL_BY_LAW, "derived", where, effects[1], LOG_RATIO, table, level, 1),
        ]
    )


def within_factor(statement: str, where: str, effect: Effect, table: str, note: str) -> Hypothesis:
    """A claim that a log ratio is nearer to 0 than what would matter."""
    off, unit = beyond(effect, 0, math.log(FACTOR)), f"{LOG_RATIO}, beyond × {FACTOR:g}"
    return Hypothesis(statement, "paper", where, off, unit, table, note)


def of_exponent(
    statement: str, where: str, effect: Effect, table: str, notes: Sequence[str], betas: str = ""
) -> Hypothesis:
    """A claim about an exponent; one of no effect asks whether it is below what would matter."""
    note = joined(with_interval(effect), *notes)
    if statement == SIZE:
        slow, unit = beyond(effect, 0, SLOW), f"{EXPONENT}, beyond {SLOW:g}"
        return Hypothesis(statement, "paper", where, slow, unit, table, note)
    if statement == AGREES:
        near, unit = beyond(effect, PUBLISHED, NEAR), f"{EXPONENT}, beyond {NEAR:g}"
        note = joined(with_interval(effect) + side(effect, PUBLISHED), *notes, betas)
        return Hypothesis(statement, "paper", where, near, unit, table, note)
    source = "derived" if statement == GROWS_WITH_SIZE else "paper"
    return Hypothesis(statement, source, where, effect, EXPONENT, table, note, 1, SLOW)


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
