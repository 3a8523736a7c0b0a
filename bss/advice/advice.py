"""One run's batch before it is trained: what rules say, what a fit says, and what others cost.

Where the fit was tested the batch is its own, as the interval of the batches as good. Elsewhere it
is the middle of what the rules of a best batch say whose range holds the setting, and of the fit
asked beyond what it was tested for; the interval holds what is as good as any of them (derived
here).
"""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from bss.advice.fit_advice import FitAdvice
from bss.laws.fitting.estimate import Estimate
from bss.rules import RULES, Answer, Setting, answers
from bss.units import format_tokens

FACTORS = (0.5, 1.0, 2.0, 4.0)
WIDTH = 2.9
"""Of the batches within .003 nats of the best, the largest over the smallest: the median over the
17 (N, D) of the published table (derived here)."""


@dataclass(frozen=True)
class Cost:
    """What a multiple of the advised batch costs at equal tokens.

    Attributes:
        factor, batch_tokens: how many times the advised batch, and that in tokens.
        loss: nats above the best batch; None where it is not known.
        steps: of the whole budget.
    """

    factor: float
    batch_tokens: float
    loss: float | None
    steps: int


@dataclass(frozen=True)
class Advice:
    """An answer to one setting; batches in tokens.

    Attributes:
        setting: what was asked.
        rules: what each says.
        spread: the least and the largest best batch of the rules in their range, else of all.
        batch: the advised one and the batches as good; an end is None where nothing bounds it.
        by: "fit" or "rules": what the batch is by.
        fit: what the fit says.
        cost_of: half, one, two and four times the batch.
        narrow: which runs would narrow it.
        notes: where rules and fit are asked beyond their range, and what must be said.
    """

    setting: Setting
    rules: tuple[Answer, ...]
    spread: tuple[float, float] | None
    batch: Estimate
    by: str
    fit: FitAdvice
    cost_of: tuple[Cost, ...]
    narrow: tuple[str, ...]
    notes: tuple[str, ...]


def advise(setting: Setting, fit: FitAdvice, rules: Iterable[str] = RULES) -> Advice:
    """The best batch of a setting by a fit, or where it tells none by the rules.

    Args:
        setting: what is asked.
        fit: what a fit says of it.
        rules: by their names, registered or `package.module:ATTRIBUTE`.

    Raises:
        InputError: no rule has such a name.
    """
    said = tuple(answers(setting, rules))
    voices, within = _voices(said)
    spread = (min(voices), max(voices)) if voices else None
    notes = list(fit.notes)
    if fit.best.value is not None:
        batch, by = _with_its_error(fit), "fit"
    else:
        by, notes = "rules", [fit.best.note, *notes]
        if fit.extrapolated is not None:
            notes.insert(1, f"asked beyond that the fit says {fit.extrapolated:,.0f} tokens")
            voices = [*voices, fit.extrapolated]
        if not within:
            notes.append("no rule of a best batch has this setting in its range")
        batch = _middle(voices, setting.seq_len)
    notes += [f"{at.name}: {'; '.join(at.outside)}" for at in said if at.outside]
    costs = tuple(_cost(factor, batch, setting, fit) for factor in FACTORS) if batch.value else ()
    own = () if fit.measured or batch.value is None else (_own_runs(batch, setting),)
    return Advice(setting, said, spread, batch, by, fit, costs, (*own, *fit.runs), tuple(notes))


def _voices(said: Iterable[Answer]) -> tuple[list[float], bool]:
    """Best batches of the rules in their range; of all, and False, where there is none."""
    best = [(at.hyperparameters.batch_tokens, at.in_range) for at in said if at.batch == "best"]
    known = [(size, within) for size, within in best if size is not None]
    inside = [size for size, within in known if within]
    return inside or [size for size, _ in known], bool(inside)


def _with_its_error(fit: FitAdvice) -> Estimate:
    """The batches as good, and those that may be the best by the fit's own error."""
    best = fit.best
    low = None if fit.low is None else min(fit.low, best.low or fit.low)
    high = None if fit.high is None else max(fit.high, best.high or fit.high)
    return Estimate(best.value, low, high, best.level)


def _middle(voices: list[float], least: float) -> Estimate:
    """The median in logarithms, and what is as good as the least or the largest voice.

    No batch is below `least`, one sequence.
    """
    if not voices:
        return Estimate(None, note="no rule says a best batch here")
    middle = sorted(voices)[(len(voices) - 1) // 2 : len(voices) // 2 + 1]
    half = math.sqrt(WIDTH)
    ends = (statistics.geometric_mean(middle), min(voices) / half, max(voices) * half)
    value, low, high = (max(end, least) for end in ends)
    return Estimate(value, low, high)


def _cost(factor: float, batch: Estimate, setting: Setting, fit: FitAdvice) -> Cost:
    assert batch.value is not None  # asked only with one
    size = factor * batch.value
    return Cost(factor, size, fit.lost(size), max(1, round(setting.tokens / size)))


def _own_runs(batch: Estimate, setting: Setting) -> str:
    """The runs that would tell the best batch of the setting itself."""
    value = batch.value or 0.0
    sizes = [f"{size:,.0f}" for size in (batch.low or value / 2, value, batch.high or 2 * value)]
    where = f"{format_tokens(int(setting.params))} and {format_tokens(int(setting.tokens))} tokens"
    runs = f"batches {', '.join(sizes)} at {where}, each at two rates or more"
    return f"{runs}: nothing was measured there"
