"""beta1 by the steps of a run: a part of them, or what was measured here, with its range.

A rule is a function of beta1 as it is set, of the tokens of a step, and of how many steps the run
takes at them; registered here or a user's own as `package.module:ATTRIBUTE`. What it has as `told`
is said beside its name. beta1 by tokens is its half-life, of `bss.schedules.coupling`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files

from bss.errors import InputError, check
from bss.registry import Registry, attempt
from bss.units import parse_tokens

Rule = Callable[[float, int, float], float]


@dataclass(frozen=True)
class Share:
    """A half-life of so large a part of the run's steps, and at most beta1 as it is set.

    Derived here: the half-life of a beta is ln 2/−ln beta steps.

    Examples:
        >>> Share(0.01)(0.9, 1024, 300), Share(0.01)(0.9, 1024, 3000)
        (0.7937005259840998, 0.9)
    """

    share: float

    def __call__(self, beta1: float, batch_tokens: int, steps: float) -> float:
        """beta1 of the steps of such a batch.

        Raises:
            InputError: it is less than a step.
        """
        half_life = self.share * steps
        given = f"{100 * self.share:g}% of {steps:,.0f} steps, {half_life:.3g} of one,"
        check(half_life >= 1, "coupling beta1", given, f"{100 / steps:.2g}% or more")
        return min(beta1, 2 ** (-1 / half_life))

    @property
    def told(self) -> str:
        """What it does."""
        return f"a half-life of {100 * self.share:g}% of the run's steps, beta1 as set at most"


@dataclass(frozen=True)
class Gain:
    """What the law's beta1 was worth beside .9, each at its rate, after a decay.

    Attributes:
        less: nats, below 0 where the loss was lower.
        low, high: 95% interval, after Holm.
        verdict: "shown", "undecided", ...
        batch_tokens, tokens: of the runs; 0 of a batch that changed.
        beta1: that was trained nearest to the law's.
    """

    less: float
    low: float
    high: float
    verdict: str
    batch_tokens: int = 0
    tokens: int = 0
    beta1: float = 0.0

    @property
    def steps(self) -> float:
        """Steps of the runs."""
        return self.tokens / self.batch_tokens

    def __str__(self) -> str:
        return f"{self.less:+.3f} nats, {self.low:.3f} to {self.high:.3f}, {self.verdict}"


@dataclass(frozen=True)
class Law:
    """1 - beta1 = scale · steps^power, as `python -m experiments.momentum.betas` writes it.

    Attributes:
        source: the runs.
        params: of their one model.
        scale, power: the law's.
        power_low, power_high: 95% interval of the power over seeds.
        gains: in runs of one batch.
        inside: of beta1 that followed the batch, 4 → 32 at 70% of the tokens, beside .9 kept.
    """

    source: str
    params: int
    scale: float
    power: float
    power_low: float
    power_high: float
    gains: tuple[Gain, ...]
    inside: Gain

    def of(self, steps: float) -> float:
        """beta1 of a run of so many steps, in the range or not."""
        return 1 - self.scale * steps**self.power

    def range(self, name: str) -> tuple[float, float]:
        """The least and the largest of an attribute of the gains."""
        values = [getattr(gain, name) for gain in self.gains]
        return min(values), max(values)

    def covers(self, steps: float) -> bool:
        """Whether runs of so many steps lie between those measured."""
        low, high = self.range("steps")
        return low <= steps <= high

    def __call__(self, beta1: float, batch_tokens: int, steps: float) -> float:
        """The law within the steps that were measured, and beta1 as it is set at most.

        Raises:
            InputError: beyond them.
        """
        if not self.covers(steps):
            low, high = self.range("steps")
            raise InputError(
                f"coupling beta1: measured in runs of {low:,.0f} to {high:,.0f} steps, asked for "
                f"{steps:,.0f} of {batch_tokens:,} tokens; give --beta1 or a half-life"
            )
        return min(beta1, self.of(steps))

    @property
    def told(self) -> str:
        """Its range, and how sure it is."""
        low, high = self.range("steps")
        moves = self.power_low > 0 or self.power_high < 0
        falls = f"that it moves with the steps is {'' if moves else 'not '}shown"
        where = f"{self.params:,} parameters and {low:,.0f} to {high:,.0f} steps"
        return f"measured with one batch a run, {where} only ({self.source}); {falls}"


class Rules(Registry[Rule]):
    """Rules by name; a percentage, as "0.2%", is the part of the run's steps."""

    def __missing__(self, name: str) -> Rule:
        """The share that a percentage says."""
        if "%" not in name:
            return super().__missing__(name)
        share = parse_tokens(name, field=self.kind, total=10**12) / 10**12
        check(0 < share < 1, self.kind, name, "a percentage between 0 and 100")
        return Share(share)


def _law() -> Law:
    # Without bss.values, which loads NumPy: `bss rules` needs none.
    entry = json.loads((files("bss.schedules") / "momentum.json").read_text())
    gains = tuple(Gain(**gain) for gain in entry.pop("gains"))
    inside = Gain(**entry.pop("inside"))
    return Law(**entry, gains=gains, inside=inside)


LAW = _law()
BETA1_RULES = Rules(
    "coupling beta1",
    {"none": lambda beta1, batch_tokens, steps: beta1, "measured": LAW},
    Callable,
    ("beta1", "batch_tokens", "steps"),
)


def beta1_by(name: str, beta1: float, batch_tokens: int, steps: float) -> float:
    """beta1 of a step by the rule of this name.

    Raises:
        InputError: there is no such rule, it has no answer there, or none in [0, 1).
    """
    rule = BETA1_RULES[name]
    value = attempt(BETA1_RULES.kind, name, lambda: rule(beta1, batch_tokens, steps))
    if not isinstance(value, int | float) or not 0 <= value < 1:
        raise InputError(
            f"{BETA1_RULES.kind}: {name} gives {value!r} at a batch of {batch_tokens:,} tokens; "
            "expected 0 <= beta1 < 1"
        )
    return value


def told(name: str) -> str:
    """A rule and what is said of it; empty for none."""
    about = getattr(BETA1_RULES[name], "told", "")
    return "" if name == "none" else f"beta1 by {name}" + (f": {about}" if about else "")
