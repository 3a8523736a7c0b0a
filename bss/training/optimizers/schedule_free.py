"""Schedule-free AdamW (Defazio et al., arXiv 2405.15682)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import optax
import optax.contrib

from bss.errors import InputError
from bss.training.optimizers.adamw import scale_by_moments
from bss.training.optimizers.base import Masks, Optimizer, StepSettings


@dataclass(frozen=True)
class ScheduleFree(Optimizer):
    """AdamW without momentum inside an averaging of which `beta1` is the interpolation.

    Evaluated at the average, x.
    """

    one_beta1: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta1 == 0:
            raise InputError("optimizer.beta1 is 0; schedule_free divides by it, so raise it")
        if self.beta1_half_life:
            raise InputError(
                f"optimizer.beta1_half_life is {self.beta1_half_life}; schedule_free averages with "
                "one beta1 throughout, so leave it out"
            )

    def direction(self, settings: StepSettings, masks: Masks) -> optax.GradientTransformation:
        """Adam's without a first moment; see `Optimizer`."""
        return scale_by_moments(1.0, settings.one_minus_beta2, self.eps)

    def descent(
        self, settings: StepSettings, masks: Masks
    ) -> tuple[optax.GradientTransformation, ...]:
        """AdamW's inside the averaging; see `Optimizer`."""
        inner = optax.chain(*super().descent(settings, masks))
        beta1 = 1.0 - settings.one_minus_beta1
        return (optax.contrib.schedule_free(inner, settings.lr, b1=beta1),)

    def evaluation_params(self, params: optax.Params, state: Any) -> optax.Params:
        """The average x; see `Optimizer`."""
        return optax.contrib.schedule_free_eval_params(state[-1], params)
