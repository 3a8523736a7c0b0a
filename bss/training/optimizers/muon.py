"""Muon: momentum made orthogonal, for the matrices between hidden axes; Adam for the rest.

Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024, as in
`optax.contrib.muon`: Nesterov momentum, five Newton-Schulz iterations, updates times
sqrt(max(1, fan_out / fan_in)). Composed here from optax's parts, so that Adam's moments stay right
when the batch moves beta2, and each group has a rate of its own under one schedule.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import optax
import optax.contrib

from bss.training.optimizers.adamw import scale_by_moments
from bss.training.optimizers.base import Masks, Optimizer, StepSettings


@dataclass(frozen=True)
class Muon(Optimizer):
    """Muon at `lr` with momentum `beta1`; Adam for embeddings, heads and norms.

    Attributes:
        adam_lr: peak learning rate of the rest; it follows the schedule of `lr`.
    """

    lr: float = 0.02
    beta1: float = 0.95
    adam_lr: float = 4e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("adam_lr", 0 < self.adam_lr < math.inf, "a positive number")

    def direction(self, settings: StepSettings, masks: Masks) -> optax.GradientTransformation:
        """Orthogonal momentum of each matrix, also in a stack; Adam's of the rest."""
        muon = optax.contrib.scale_by_muon(
            beta=1.0 - settings.one_minus_beta1,
            eps=self.eps,
            weight_dimension_numbers=lambda updates: jax.tree.map(lambda _: _LAST_TWO, updates),
        )
        groups: dict[Any, optax.GradientTransformation] = {
            True: optax.chain(muon, optax.stateless_with_tree_map(_scaled_by_shape)),
            False: scale_by_moments(settings.one_minus_beta1, settings.one_minus_beta2, self.eps),
        }
        return optax.partition(groups, masks.matrices)

    def descent(
        self, settings: StepSettings, masks: Masks
    ) -> tuple[optax.GradientTransformation, ...]:
        """That of `Optimizer` at `lr`; what is no matrix goes by `adam_lr` in its place."""
        rest = jax.tree.map(lambda is_matrix: not is_matrix, masks.matrices)
        own_rate = optax.masked(optax.scale(self.adam_lr / self.lr), rest)
        return (*super().descent(settings, masks), own_rate)


_LAST_TWO = optax.contrib.MuonDimensionNumbers(reduction_axis=-2, output_axis=-1)


def _scaled_by_shape(update: Any, _: Any) -> jax.Array:
    fan_in, fan_out = update.shape[-2:]
    return update * math.sqrt(max(1, fan_out / fan_in))
