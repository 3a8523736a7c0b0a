"""Stochastic gradient descent with heavy-ball momentum."""

from dataclasses import dataclass
from typing import ClassVar

import optax

from bss.training.optimizers.base import Masks, Optimizer, StepSettings


@dataclass(frozen=True)
class SGD(Optimizer):
    """Gradients summed with momentum `beta1`; beta2 and eps are unused."""

    second_moment: ClassVar[bool] = False

    @property
    def unused(self) -> tuple[str, ...]:
        """See `Optimizer`; nothing is divided by a root, so eps is unused too."""
        return (*super().unused, "eps")

    def direction(self, settings: StepSettings, masks: Masks) -> optax.GradientTransformation:
        """The trace of the gradients; see `Optimizer`."""
        return optax.trace(decay=1.0 - settings.one_minus_beta1)
