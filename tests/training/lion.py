"""An optimizer of a user's own: the sign of the momentum (Chen et al., 2302.06675)."""

from dataclasses import dataclass

import optax

from bss.training.optimizers import Optimizer


@dataclass(frozen=True)
class Lion(Optimizer):
    """Lion, with an interpolation of its own."""

    interpolation: float = 0.9

    def direction(self, settings, masks):
        """The sign of interpolated momentum."""
        del masks
        return optax.scale_by_lion(self.interpolation, 1.0 - settings.one_minus_beta1)
