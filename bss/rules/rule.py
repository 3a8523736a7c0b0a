"""Rules as values: what one says of a setting, or of a change, where it comes from and holds.

A `Rule` speaks of a setting; a `Scaling` goes from what is right at one batch to what is right at
another.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NoReturn

from bss.errors import InputError
from bss.rules.setting import Hyperparameters, Setting, check_positive


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
            _refuse(self.source, missing[0])
        return self.law(setting)

    def missing(self, setting: Setting) -> tuple[str, ...]:
        """What the setting lacks of what the rule needs."""
        return tuple(name for name in self.needs if getattr(setting, name) is None)

    def beyond(self, setting: Setting) -> float:
        """How many times the setting lies outside of what was fitted; 1 within it."""
        ends = ((getattr(setting, name), *ends) for name, ends in self.fitted.items())
        return max((max(low / value, value / high) for value, low, high in ends), default=1.0)

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


@dataclass(frozen=True)
class Change:
    """What changes from the reference.

    Attributes:
        batch_tokens: the new batch, in tokens.
        horizon: the new budget over that of the reference.
        noise_scale: the gradient noise scale, in tokens, for a rule that needs it.

    Raises:
        InputError: on construction, if one is not positive.
    """

    batch_tokens: float
    horizon: float = 1.0
    noise_scale: float | None = None

    def __post_init__(self):
        for name in ("batch_tokens", "horizon", "noise_scale"):
            check_positive(name, getattr(self, name))


@dataclass(frozen=True)
class Scaling:
    """How hyperparameters follow the batch; those that a rule does not speak of stay.

    Attributes:
        source: the paper and its equation.
        law: of the reference, which has a batch, and the change; the batch is set for it.
        needs: attributes of the change that it cannot do without.
    """

    source: str
    law: Callable[[Hyperparameters, Change], Hyperparameters]
    needs: tuple[str, ...] = ()

    def __call__(self, reference: Hyperparameters, change: Change) -> Hyperparameters:
        """The hyperparameters at the new batch.

        Raises:
            InputError: the reference has no batch, or the change lacks what the rule needs.
        """
        if reference.batch_tokens is None:
            _refuse(self.source, "batch_tokens of the reference")
        for name in (name for name in self.needs if getattr(change, name) is None):
            _refuse(self.source, name)
        return replace(self.law(reference, change), batch_tokens=change.batch_tokens)


def ratio(reference: Hyperparameters, change: Change) -> float:
    """The new batch over that of the reference."""
    assert reference.batch_tokens is not None  # a Scaling has refused it
    return change.batch_tokens / reference.batch_tokens


def _refuse(source: str, missing: str) -> NoReturn:
    raise InputError(f"{missing}: missing; the rule of {source} needs it; give it")
