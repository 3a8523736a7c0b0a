"""A scaling rule as a value: from what is right at one batch to what is right at another."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from bss.errors import InputError
from bss.rules.setting import Hyperparameters, check_positive


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
        missing = [name for name in self.needs if getattr(change, name) is None]
        if reference.batch_tokens is None:
            missing.insert(0, "batch_tokens of the reference")
        if missing:
            raise InputError(f"{missing[0]}: missing; the rule of {self.source} needs it; give it")
        return replace(self.law(reference, change), batch_tokens=change.batch_tokens)


def ratio(reference: Hyperparameters, change: Change) -> float:
    """The new batch over that of the reference."""
    assert reference.batch_tokens is not None  # a Scaling has refused it
    return change.batch_tokens / reference.batch_tokens
