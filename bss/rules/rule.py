"""Rules as values: a setting, the hyperparameters of a rule, and how they follow the batch size."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from bss.errors import InputError, check


def check_positive(name: str, value: float | None) -> None:
    """Refuse a value that is neither None nor a positive finite number."""
    check(value is None or 0 < value < math.inf, name, value, "a positive number")


@dataclass(frozen=True)
class Setting:
    """A planned training run; an unknown quantity is None.

    Attributes:
        params: N, non-embedding parameters; `non_embedding` converts a total.
        tokens: D, tokens trained on.
        seq_len: tokens per sequence.
        flops: FLOPs of the whole training; without it 6·N·D, which leaves out attention.
        d_model: width.
        loss: expected final loss, in nats per token.
        noise_scale: gradient noise scale, in tokens.
        batch_tokens: tokens per step, for a rule that needs a batch size.
        lr: peak learning rate of the hidden matrices, for a rule that needs one.

    Raises:
        InputError: If a value is not positive, or the budget is smaller than one sequence.
    """

    params: float
    tokens: float
    seq_len: int
    flops: float | None = None
    d_model: int | None = None
    loss: float | None = None
    noise_scale: float | None = None
    batch_tokens: float | None = None
    lr: float | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            check_positive(one.name, getattr(self, one.name))
        least = f"a budget of one sequence, {self.seq_len:,} tokens, or more"
        check(self.tokens >= self.seq_len, "tokens", self.tokens, least)

    @property
    def tokens_per_param(self) -> float:
        """D/N, with N non-embedding."""
        return self.tokens / self.params

    @property
    def compute(self) -> float:
        """C, the FLOPs of the whole training: `flops`, or 6·N·D (arXiv 2001.08361, 2.1)."""
        return 6.0 * self.params * self.tokens if self.flops is None else self.flops


@dataclass(frozen=True)
class Hyperparameters:
    """Settings of a training step; None if a rule does not set them.

    Attributes:
        batch_tokens: tokens per step, not rounded to whole sequences.
        lr: peak learning rate.
        beta1, beta2: decay of Adam's moments, per step.
        epsilon: Adam's epsilon.
        weight_decay: decoupled, so that a step shrinks a weight by lr · weight_decay.

    Raises:
        InputError: If a beta is not in [0, 1).
    """

    batch_tokens: float | None = None
    lr: float | None = None
    beta1: float | None = None
    beta2: float | None = None
    epsilon: float | None = None
    weight_decay: float | None = None

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2"):
            beta = getattr(self, name) or 0.0
            check(0 <= beta < 1, name, beta, f"0 <= {name} < 1")

    def times(self, **factors: float) -> "Hyperparameters":
        """Return a copy in which the named values that are not None are multiplied."""
        values = {name: getattr(self, name) for name in factors}
        scaled = {name: x * factors[name] for name, x in values.items() if x is not None}
        return replace(self, **scaled)


@dataclass(frozen=True)
class Rule:
    """The hyperparameters that a source recommends for a setting.

    Attributes:
        source: the paper and its equation.
        law: the equation.
        batch: meaning of its batch size. "best": for the loss at the budget. "critical": larger
            ones no longer save steps in proportion. None if the rule sets no batch size.
        fitted: ranges of the rule's data, by attribute of the setting; empty if unknown.
        needs: attributes of the setting that the rule requires.
    """

    source: str
    law: Callable[[Setting], Hyperparameters]
    batch: Literal["best", "critical"] | None = "best"
    fitted: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    def __call__(self, setting: Setting) -> Hyperparameters:
        """Return its hyperparameters, inside or outside its range.

        Raises:
            InputError: If the setting lacks an attribute that the rule needs.
        """
        _check_known(self.source, setting, self.needs)
        return self.law(setting)

    def missing(self, setting: Setting) -> tuple[str, ...]:
        """Return the attributes that the rule needs and the setting lacks."""
        return tuple(name for name in self.needs if getattr(setting, name) is None)

    def outside(self, setting: Setting) -> tuple[str, ...]:
        """Return one text for each attribute of the setting outside the fitted range."""
        return tuple(
            f"{name} {getattr(setting, name):.3g} is outside {low:.3g} to {high:.3g}"
            for name, (low, high) in self.fitted.items()
            if not low <= getattr(setting, name) <= high
        )


@dataclass(frozen=True)
class Answer:
    """The hyperparameters of one rule for one setting.

    Attributes:
        name, source, batch: Name, source and kind of batch size of the rule.
        hyperparameters: all None if the setting lacks an attribute.
        in_range: whether the setting lies within the fitted ranges; None if these are unknown.
        outside: one text for each attribute outside its range.
        missing: attributes that the setting lacks.
    """

    name: str
    source: str
    batch: str | None
    hyperparameters: Hyperparameters
    in_range: bool | None
    outside: tuple[str, ...]
    missing: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return a flat entry for JSON, with the hyperparameters."""
        entry = asdict(self)
        head = {name: entry.pop(name) for name in ("name", "source")}
        return {**head, **entry.pop("hyperparameters"), **entry}


def answer(name: str, rule: Rule, setting: Setting) -> Answer:
    """Return the answer of a rule for a setting."""
    if missing := rule.missing(setting):
        hyperparameters = Hyperparameters()
        outside = ()
        in_range = None
    else:
        hyperparameters = rule(setting)
        outside = rule.outside(setting)
        in_range = not outside if rule.fitted else None
    return Answer(name, rule.source, rule.batch, hyperparameters, in_range, outside, missing)


@dataclass(frozen=True)
class Change:
    """A change from the reference.

    Attributes:
        batch_tokens: the new batch size, in tokens.
        horizon: the new token budget divided by the reference's.
        noise_scale: gradient noise scale, in tokens, for a rule that needs it.

    Raises:
        InputError: If a value is not positive.
    """

    batch_tokens: float
    horizon: float = 1.0
    noise_scale: float | None = None

    def __post_init__(self) -> None:
        for name in ("batch_tokens", "horizon", "noise_scale"):
            check_positive(name, getattr(self, name))


@dataclass(frozen=True)
class Scaling:
    """A rule that rescales hyperparameters to another batch size; it keeps all others.

    Attributes:
        source: the paper and its equation.
        law: from (reference, change) to the new hyperparameters; it need not set the batch size.
        needs: attributes of the change that the rule requires.
    """

    source: str
    law: Callable[[Hyperparameters, Change], Hyperparameters]
    needs: tuple[str, ...] = ()

    def __call__(self, reference: Hyperparameters, change: Change) -> Hyperparameters:
        """Return the hyperparameters at the new batch size.

        Raises:
            InputError: If the reference has no batch size, or the change lacks an attribute that
                the rule needs.
        """
        _check_known(self.source, reference, ("batch_tokens",), " of the reference")
        _check_known(self.source, change, self.needs)
        return replace(self.law(reference, change), batch_tokens=change.batch_tokens)


def ratio(reference: Hyperparameters, change: Change) -> float:
    """Return κ, the new batch size divided by the reference's."""
    assert reference.batch_tokens is not None  # Scaling.__call__ refuses None
    return change.batch_tokens / reference.batch_tokens


def non_embedding(total: float, vocab_size: int, d_model: int, *, tied: bool = False) -> float:
    """Return the parameters of a model without its embeddings.

    Args:
        total: all parameters.
        vocab_size: tokens of the vocabulary.
        d_model: width.
        tied: whether input and output embeddings share one matrix.

    Raises:
        InputError: If the embeddings are larger than the whole, or have no size.

    Examples:
        >>> non_embedding(110_101_632, 32_768, 768)
        59769984
    """
    for name, value in (("vocab", vocab_size), ("d_model", d_model)):
        check_positive(name, value)
    rest = total - (1 if tied else 2) * vocab_size * d_model
    if rest <= 0:
        raise InputError(
            f"total params: {total:,} is less than the embeddings of {vocab_size:,} tokens at "
            f"width {d_model:,}; give the whole model's parameters"
        )
    return rest


def _check_known(
    source: str, given: Setting | Hyperparameters | Change, needs: tuple[str, ...], of: str = ""
) -> None:
    """Raise InputError if an attribute that a rule needs is None."""
    for name in needs:
        if getattr(given, name) is None:
            raise InputError(f"{name}{of}: missing; the rule of {source} needs it; give it")
