"""AdamW: Adam's direction with decoupled weight decay (Loshchilov & Hutter, 1711.05101)."""

from dataclasses import dataclass

import optax

from bss.training.optimizers.base import Masks, Optimizer, StepSettings
from bss.training.optimizers.moments import scale_by_moments


@dataclass(frozen=True)
class AdamW(Optimizer):
    """Adam, unbiased also when a batch change moves beta2."""

    def direction(self, settings: StepSettings, masks: Masks) -> optax.GradientTransformation:
        """Moments over the root of second moments; see `Optimizer`."""
        return scale_by_moments(settings.one_minus_beta1, settings.one_minus_beta2, self.eps)
