"""What a rule is asked about, what it answers, and the conversions between units."""

import math
from dataclasses import dataclass, fields, replace

from bss.errors import InputError, check


@dataclass(frozen=True)
class Setting:
    """A training run, as the rules ask for it; what is not known is None.

    Attributes:
        params: N, non-embedding; see `non_embedding` for a total.
        tokens: D, the budget.
        seq_len: tokens per sequence.
        flops: of the whole training; without it 6·N·D, which leaves attention out.
        d_model: width.
        loss: expected at the end, in nats per token.
        noise_scale: the gradient noise scale, in tokens.
        batch_tokens: tokens per step, for a rule of what goes with a batch.
        lr: peak rate of the hidden matrices, for a rule of what goes with a rate.

    Raises:
        InputError: on construction, if one is not positive, or the budget is less than a sequence.
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

    def __post_init__(self):
        for field in fields(self):
            check_positive(field.name, getattr(self, field.name))
        least = f"a budget of one sequence, {self.seq_len:,} tokens, or more"
        check(self.tokens >= self.seq_len, "tokens", self.tokens, least)

    @property
    def tokens_per_param(self) -> float:
        """D/N, with N non-embedding."""
        return self.tokens / self.params

    @property
    def steps(self) -> float | None:
        """Steps of the budget at the batch; None where that is not known."""
        return None if self.batch_tokens is None else self.tokens / self.batch_tokens

    @property
    def compute(self) -> float:
        """C, the FLOPs of the whole training: those given, or 6·N·D (arXiv 2001.08361, 2.1)."""
        return 6.0 * self.params * self.tokens if self.flops is None else self.flops


@dataclass(frozen=True)
class Hyperparameters:
    """What a step is done with; None for what a rule does not speak of.

    Attributes:
        batch_tokens: tokens per step, not rounded to whole sequences.
        lr: peak learning rate.
        beta1, beta2: decay of Adam's moments, per step.
        epsilon: Adam's.
        weight_decay: decoupled, so that a step shrinks a weight by lr · weight_decay.

    Raises:
        InputError: on construction, if a beta is not in [0, 1).
    """

    batch_tokens: float | None = None
    lr: float | None = None
    beta1: float | None = None
    beta2: float | None = None
    epsilon: float | None = None
    weight_decay: float | None = None

    def __post_init__(self):
        for name in ("beta1", "beta2"):
            beta = getattr(self, name) or 0.0
            check(0 <= beta < 1, name, beta, f"0 <= {name} < 1")

    def times(self, **factors: float) -> "Hyperparameters":
        """The same, with those of these names that are told multiplied."""
        values = {name: getattr(self, name) for name in factors}
        scaled = {name: x * factors[name] for name, x in values.items() if x is not None}
        return replace(self, **scaled)


def check_positive(name: str, value: float | None) -> None:
    """Refuses a value that is told and not a positive number."""
    check(value is None or 0 < value < math.inf, name, value, "a positive number")


def non_embedding(total: float, vocab_size: int, d_model: int, *, tied: bool = False) -> float:
    """The parameters of a model without its embeddings, in and out; `tied` where they are one.

    Raises:
        InputError: the embeddings are larger than the whole, or have no size.

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
