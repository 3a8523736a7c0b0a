"""One run's batch before it is trained: what rules say, what a fit says, and what others cost.

Where the fit was tested the batch is its own, as the interval of the batches as good, or the bound
that its runs leave. Elsewhere it is the middle of what the rules of a best batch say whose range
holds the setting, else lies within a factor of ten, and of the fit asked as far beyond what it was
tested for; the interval holds what is as good as any of them. Farther out nobody has measured, and
there is no batch (derived here).
"""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from bss.advice.fit_advice import FAR, FitAdvice
from bss.cells import estimate, number
from bss.laws.base import Estimate
from bss.rules import RULES, Answer, Rule, Setting, answers
from bss.units import format_tokens

NOBODY = "nobody has measured this"
OVERTRAINED = 2000.0
UNLIKE = "tokens per parameter, unlike all sources, which have 1,280 at most"
WIDER = 0.25
"""Power of the distance by which an interval widens: rules' powers of D differ by .19, and other
published optima lie as far again (derived here)."""
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
        spread: the least and the largest best batch of the rules in their range, else of those not
            far from it.
        batch: the advised one and the batches as good; an end is None where nothing bounds it, the
            value where the fit's runs leave a bound alone, all where nobody has measured.
        by: "fit", "rules" or "nobody": what the batch is by.
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

    @property
    def first_line(self) -> str:
        """What to do, what it costs to be off by two, and how sure that is."""
        value, seq_len = self.batch.value, self.setting.seq_len
        if value is None and self.by == "nobody":
            return f"{NOBODY}: no batch is advised; measure one"
        if value is None:
            return f"B_opt is {estimate(self.batch)} tokens by your runs, which tell no best batch"
        costs = {cost.factor: cost.loss for cost in self.cost_of}
        half, twice = costs[0.5], costs[2.0]
        if half is None or twice is None:
            cost = "what half or twice of it costs is not known"
        else:
            cost = f"half of it costs {half:.4f} nats, twice {twice:.4f}"
        ends = " to ".join(number(end) for end in (self.batch.low, self.batch.high))
        sure = f"as good, or the best by the fit's error: {ends}"
        if self.by == "rules":
            sure = f"{self.said or 'no rule says one'}; as good as any of it: {ends}"
        batch = f"{number(value)} tokens a step, {round(value / seq_len):,} × {seq_len}"
        ratio = self.setting.tokens_per_param
        unlike = f"; but {ratio:,.0f} {UNLIKE}" if ratio > OVERTRAINED else ""
        return f"take {batch}; {cost}; {sure}{unlike}"

    @property
    def said(self) -> str:
        """The spread of the rules, which is no interval; empty where none speaks."""
        if self.spread is None:
            return ""
        low, high = (number(end) for end in self.spread)
        return f"rules say {low}" if low == high else f"rules say between {low} and {high}"


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
    voices, within = _voices(said, setting)
    spread = (min(voices), max(voices)) if voices else None
    notes = list(fit.notes)
    if fit.best.value is not None:
        batch, by = _with_its_error(fit), "fit"
    elif fit.best.low or fit.best.high:
        batch, by, notes = fit.best, "fit", [fit.best.note, *notes]
    else:
        notes = [fit.best.note, *notes]
        if fit.extrapolated is not None:
            notes.insert(1, f"asked beyond that the fit says {fit.extrapolated:,.0f} tokens")
            voices = {**voices, fit.extrapolated: fit.distance}
        if not within:
            notes.append("no rule of a best batch has this setting in its range")
        batch, by = _middle(voices, setting.seq_len), "rules" if voices else "nobody"
    if setting.tokens_per_param > OVERTRAINED:
        notes.insert(0, f"{setting.tokens_per_param:,.0f} {UNLIKE}")
    notes += [f"{at.name}: {'; '.join(at.outside)}" for at in said if at.outside]
    costs = tuple(_cost(factor, batch, setting, fit) for factor in FACTORS) if batch.value else ()
    own = () if fit.measured else (_own_runs(batch, setting),)
    return Advice(setting, said, spread, batch, by, fit, costs, (*own, *fit.runs), tuple(notes))


def _voices(said: Iterable[Answer], setting: Setting) -> tuple[dict[float, float], bool]:
    """Best batches of rules in their range, by their distance; else of those near it, and False."""
    best = [(at.hyperparameters.batch_tokens, at) for at in said if at.batch == "best"]
    known = [(size, at) for size, at in best if size is not None]
    inside = {size: 1.0 for size, at in known if at.in_range}
    apart = {size: _beyond(RULES[at.name], setting) for size, at in known}
    return inside or {size: x for size, x in apart.items() if x <= FAR}, bool(inside)


def _beyond(rule: Rule, setting: Setting) -> float:
    """Return how many times the setting lies outside the fitted range; 1 inside."""
    ends = ((getattr(setting, name), *ends) for name, ends in rule.fitted.items())
    return max((max(low / value, value / high) for value, low, high in ends), default=1.0)


def _with_its_error(fit: FitAdvice) -> Estimate:
    """The batches as good, and those that may be the best by the fit's own error."""
    best = fit.best
    low = None if fit.low is None else min(fit.low, best.low or fit.low)
    high = None if fit.high is None else max(fit.high, best.high or fit.high)
    return Estimate(best.value, low, high, best.level)


def _middle(voices: dict[float, float], least: float) -> Estimate:
    """The median in logarithms, and what is as good as the least or the largest voice.

    A voice from outside of its range is WIDER with its distance. No batch is below `least`, one
    sequence.
    """
    if not voices:
        return Estimate(None, note=NOBODY)
    middle = sorted(voices)[(len(voices) - 1) // 2 : len(voices) // 2 + 1]
    half = {size: math.sqrt(WIDTH) * far**WIDER for size, far in voices.items()}
    lowest, highest = (min(x / half[x] for x in voices), max(x * half[x] for x in voices))
    ends = (statistics.geometric_mean(middle), lowest, highest)
    value, low, high = (max(end, least) for end in ends)
    return Estimate(value, low, high)


def _cost(factor: float, batch: Estimate, setting: Setting, fit: FitAdvice) -> Cost:
    assert batch.value is not None  # asked only with one
    size = factor * batch.value
    return Cost(factor, size, fit.lost(size), max(1, round(setting.tokens / size)))


def _own_runs(batch: Estimate, setting: Setting) -> str:
    """The runs that would tell the best batch of the setting itself."""
    value, sizes = batch.value, ["a factor of 2 apart"]
    if value is not None:
        ends = batch.low or value / 2, value, batch.high or 2 * value
        sizes = [f"{size:,.0f}" for size in ends]
    where = f"{format_tokens(int(setting.params))} and {format_tokens(int(setting.tokens))} tokens"
    runs = f"batches {', '.join(sizes)} at {where}, each at two rates or more"
    return f"{runs}: nothing was measured there"
