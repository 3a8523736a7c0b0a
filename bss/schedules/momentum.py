"""beta1 by the number of steps of a run, e.g. "1%": a half-life of that share of the steps.

A rule is a function of (configured beta1, tokens per step, number of steps of the run at this
size). It is registered here or named `package.module:ATTRIBUTE`. Its attribute `told`, if any, is
printed with its name. For half-lives in tokens see `bss.schedules.coupling`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from bss.errors import InputError, check
from bss.registry import Registry, attempt
from bss.units import parse_tokens

Rule = Callable[[float, int, float], float]


@dataclass(frozen=True)
class Share:
    """A half-life of a share of the run's steps; beta1 is at most the configured one.

    Derived here: the half-life of a beta is ln 2/−ln beta steps.

    Examples:
        >>> Share(0.01)(0.9, 1024, 300), Share(0.01)(0.9, 1024, 3000)
        (0.7937005259840998, 0.9)
    """

    share: float

    def __call__(self, beta1: float, batch_tokens: int, steps: float) -> float:
        """Return beta1 for steps of this size.

        Raises:
            InputError: If the half-life is shorter than a step.
        """
        half_life = self.share * steps
        given = f"{100 * self.share:g}% of {steps:,.0f} steps, {half_life:.3g} of one,"
        check(half_life >= 1, "coupling beta1", given, f"{100 / steps:.2g}% or more")
        return min(beta1, 2 ** (-1 / half_life))

    @property
    def told(self) -> str:
        """Short description of the rule."""
        return f"a half-life of {100 * self.share:g}% of the run's steps, beta1 as set at most"


class Rules(Registry[Rule]):
    """Rules by name; a percentage, e.g. "0.2%", is a share of the run's steps."""

    def __missing__(self, name: str) -> Rule:
        """Return the rule of a percentage."""
        if "%" not in name:
            return super().__missing__(name)
        share = parse_tokens(name, field=self.kind, total=10**12) / 10**12
        check(0 < share < 1, self.kind, name, "a percentage between 0 and 100")
        return Share(share)


BETA1_RULES = Rules("coupling beta1", {"none": lambda beta1, batch_tokens, steps: beta1}, Callable)


def beta1_by(name: str, beta1: float, batch_tokens: int, steps: float) -> float:
    """Return beta1 of a step by a rule.

    Raises:
        InputError: If the rule does not exist, or returns no value in [0, 1).
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
    """Return a rule with its description; "" for none."""
    about = getattr(BETA1_RULES[name], "told", "")
    return "" if name == "none" else f"beta1 by {name}" + (f": {about}" if about else "")
