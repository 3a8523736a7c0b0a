"""What is measured of held-out sequences, by name; a user's own is `package.module:ATTRIBUTE`.

A metric is a function of an `Evaluated` model, its parameters and sequences (int32 [B, T+1]) to
sums over the T targets of each sequence: [B], or [B, K] where it tells K equal parts of a sequence
apart. Means are per target, over all sequences of a held-out set; their standard errors are over
its sequences.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import jax
import jax.numpy as jnp

from bss.errors import InputError
from bss.models.family import Gather, ModelFamily, Params, as_it_is
from bss.registry import Registry

F = TypeVar("F")
T = TypeVar("T")


@dataclass(frozen=True)
class Evaluated:
    """A model as metrics are given it; devices may split its parameters, so use them through it.

    Attributes:
        family: its config.
        attention: the kernel's name.
        gather: makes parameters whole.
        bytes_per_token: of the held-out text; None where tokens are no text.
    """

    family: ModelFamily
    attention: str = "reference"
    gather: Gather = as_it_is
    bytes_per_token: float | None = None

    def losses(self, params: Params, sequences_BxT1: jax.Array) -> jax.Array:
        """Cross-entropy of each target in nats, [B, T]; InputError where it is not known."""
        losses = self.family.target_losses_by(self.attention, self.gather)
        return self._known(losses, "target_losses_by")(params, sequences_BxT1)[1]

    def logits(self, params: Params, sequences_BxT1: jax.Array) -> jax.Array:
        """Of the targets, [B, T, vocab_size]; InputError where the family has none."""
        logits = self.family.logits_by(self.attention, self.gather)
        return self._known(logits, "logits_by")(params, sequences_BxT1)

    def _known(self, function: F | None, name: str) -> F:
        if function is None:
            raise InputError(f"the model has no {name}; give {type(self.family).__name__} one")
        return function


Metric = Callable[[Evaluated, Params, jax.Array], jax.Array]


def loss(model: Evaluated, params: Params, sequences_BxT1: jax.Array) -> jax.Array:
    """Cross-entropy in nats, which every held-out set is measured by."""
    return model.losses(params, sequences_BxT1).sum(-1)


def bits_per_byte(model: Evaluated, params: Params, sequences_BxT1: jax.Array) -> jax.Array:
    """Cross-entropy in bits per byte of text, which tokenizers can be compared by."""
    if model.bytes_per_token is None:
        raise InputError("tokens of this data are no text; leave bits_per_byte out")
    return per_byte(loss(model, params, sequences_BxT1), model.bytes_per_token)


def per_byte(nats: T, bytes_per_token: float) -> T:
    """Nats per token as bits per byte of text."""
    return nats / math.log(2) / bytes_per_token  # type: ignore[operator]


def accuracy(model: Evaluated, params: Params, sequences_BxT1: jax.Array) -> jax.Array:
    """The share of targets that are the most probable token."""
    predicted_BxT = jnp.argmax(model.logits(params, sequences_BxT1), axis=-1)
    return jnp.sum(predicted_BxT == sequences_BxT1[:, 1:], axis=-1, dtype=jnp.float32)


def loss_by_position(model: Evaluated, params: Params, sequences_BxT1: jax.Array) -> jax.Array:
    """The loss in each of the equal parts of a sequence: eight, or as many as divide it below."""
    losses_BxT = model.losses(params, sequences_BxT1)
    parts = max(k for k in range(1, 9) if losses_BxT.shape[1] % k == 0)
    return losses_BxT.reshape(len(losses_BxT), parts, -1).sum(-1)


METRICS: Registry[Metric] = Registry(
    "evaluation.metrics",
    {
        "loss": loss,
        "bits_per_byte": bits_per_byte,
        "accuracy": accuracy,
        "loss_by_position": loss_by_position,
    },
    of=Callable,
)


def by_column_name(names: tuple[str, ...]) -> Mapping[str, Metric]:
    """Metrics by what columns call them: a user's own by its attribute.

    Raises:
        InputError: one is unknown, is no function, or is called like another.
    """
    metrics: dict[str, Metric] = {}
    for name in names:
        short = name.rpartition(":")[2]
        if short == "loss" or short in metrics:
            raise InputError(
                f"evaluation.metrics: {name} is called {short} as another is (the loss is always "
                "measured); rename it, or name it once"
            )
        metrics[short] = METRICS[name]
    return metrics


def check(name: str, metric: Metric, model: Evaluated, seq_len: int) -> None:
    """Refuses a metric that fails on a model, or returns what is no sums of each sequence."""
    params = jax.eval_shape(lambda: model.family.init(0))
    sequences = jax.ShapeDtypeStruct((2, seq_len + 1), jnp.int32)
    try:
        sums = jax.eval_shape(lambda *given: metric(model, *given), params, sequences)
    except Exception as error:  # a user's function may fail in any way
        first = str(error).partition("\n")[0]
        what = first if isinstance(error, InputError) else f"{type(error).__name__}: {first}"
        raise InputError(f"evaluation.metrics: {name} cannot be measured: {what}") from None
    shape = getattr(sums, "shape", type(sums).__name__)
    if shape != (2,) and shape not in [(2, k) for k in range(1, seq_len + 1) if seq_len % k == 0]:
        raise InputError(
            f"evaluation.metrics: {name} returns {shape} of 2 sequences of {seq_len} targets; "
            f"expected sums [2], or [2, K] where K divides {seq_len}"
        )
