"""A rule as a value: what it says of a setting, where that comes from, and where it holds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from bss.errors import InputError
from bss.rules.setting import Hyperparameters, Setting


@dataclass(frozen=True)
class Rule:
    """What a paper would train a setting with.

    Attributes:
        source: the paper and its equation.
        law: the equation.
        batch: what its batch is: the "best" for the loss at the budget, the "critical" one, beyond
            which larger batches no longer save steps in proportion, or None where it tells of none
            but what goes with the setting's.
        fitted: the range of what it was fitted on, by attribute of the setting; empty if not told.
        needs: attributes of the setting that it cannot do without.
    """

    source: str
    law: Callable[[Setting], Hyperparameters]
    batch: Literal["best", "critical"] | None = "best"
    fitted: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    def __call__(self, setting: Setting) -> Hyperparameters:
        """What it says, in its range or not.

        Raises:
            InputError: the setting lacks what it needs.
        """
        if missing := self.missing(setting):
            raise InputError(f"{missing[0]}: missing; the rule of {self.source} needs it; give it")
        return self.law(setting)

    def missing(self, setting: Setting) -> tuple[str, ...]:
        """What the setting lacks of what the rule needs."""
        return tuple(name for name in self.needs if getattr(setting, name) is None)

    def outside(self, setting: Setting) -> tuple[str, ...]:
        """A text for every attribute of the setting that lies outside of what was fitted."""
        return tuple(
            f"{name} {getattr(setting, name):.3g} is outside {low:.3g} to {high:.3g}"
            for name, (low, high) in self.fitted.items()
            if not low <= getattr(setting, name) <= high
        )


@dataclass(frozen=True)
class Answer:
    """What one rule says of one setting.

    Attributes:
        name, source, batch: the rule's.
        hyperparameters: all None where something is missing.
        in_range: whether the setting lies within what was fitted; None if that is not told.
        outside: where it does not.
        missing: attributes of the setting that the rule needs.
    """

    name: str
    source: str
    batch: str | None
    hyperparameters: Hyperparameters
    in_range: bool | None
    outside: tuple[str, ...]
    missing: tuple[str, ...]


def answer(name: str, rule: Rule, setting: Setting) -> Answer:
    """What a rule of this name says of a setting, or what it lacks to say it."""
    if missing := rule.missing(setting):
        hyperparameters, outside, in_range = Hyperparameters(), (), None
    else:
        hyperparameters, outside = rule(setting), rule.outside(setting)
        in_range = not outside if rule.fitted else None
    return Answer(name, rule.source, rule.batch, hyperparameters, in_range, outside, missing)
