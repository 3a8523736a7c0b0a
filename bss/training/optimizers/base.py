"""What every optimizer is: its settings at the reference batch, its chain, what it evaluates.

The chain is built inside the step from traced settings, so that no setting is compiled in.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import optax

from bss.errors import InputError
from bss.registry import Chosen, Registry


class StepSettings(NamedTuple):
    """What is traced in one step: float32 scalars, and one share per weight average, [K].

    The betas come as 1 - beta: near 1, float32 loses beta.
    """

    lr: Any
    one_minus_beta1: Any
    one_minus_beta2: Any
    weight_decay: Any
    average_shares: Any


class Masks(NamedTuple):
    """Trees as the parameters: bools of what weight decay applies to and what are matrices.

    A matrix maps its last axis but one to its last; axes before these are a stack of matrices.
    Numbers, by which the rate of each is multiplied, not its weight decay; None if none is.
    """

    decay: Any
    matrices: Any
    rates: Any = None


@dataclass(frozen=True)
class Optimizer(Chosen):
    """An optimizer and its settings at the reference batch; `name` tells which in a dict.

    One of a user's own is a frozen dataclass made of this, with a `direction`, or a
    `descent` where that does not say it.

    Attributes:
        lr: peak learning rate.
        beta1: first-moment decay per step (momentum for SGD); unused where its half-life is set.
        beta1_half_life: half-life of the first moment in tokens; 0 keeps `beta1` per step.
        beta2: second-moment decay per step; unused where `beta2_half_life` is set.
        beta2_half_life: half-life of the second moment in tokens; 0 keeps `beta2` per step.
        eps: Adam's epsilon.
        weight_decay: decoupled; norms are not decayed.
        clip: global norm at which gradients are clipped; 0 clips nothing.
        second_moment: whether the class keeps one, so that beta2 matters.
        one_beta1: whether it needs one beta1 throughout.
        own_rates: whether the rates of parameters may differ by a parametrization, as Adam's.
        traced: the settings in which runs of one program may differ: they reach it by StepSettings.
    """

    key: ClassVar[str] = "name"
    second_moment: ClassVar[bool] = True
    own_rates: ClassVar[bool] = False
    one_beta1: ClassVar[bool] = False
    traced: ClassVar[tuple[str, ...]] = (
        *("lr", "beta1", "beta1_half_life", "beta2", "beta2_half_life", "weight_decay"),
    )

    lr: float = 4e-3
    beta1: float = 0.9
    beta1_half_life: int = 0
    beta2: float = 0.95
    beta2_half_life: int = 0
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip: float = 1.0

    def __post_init__(self) -> None:
        for name, low, high in (("beta1", 0, 1), ("beta2", 0, 1), ("clip", 0, math.inf)):
            self._check(name, low <= getattr(self, name) < high, f"{low} <= {name} < {high}")
        for name in ("lr", "eps"):
            self._check(name, 0 < getattr(self, name) < math.inf, "a positive number")

    def _check(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise InputError(f"optimizer.{name} is {getattr(self, name)}; expected {expected}")

    @property
    def unused(self) -> tuple[str, ...]:
        """See `Chosen`.

        The half-life is none of them where there is no second moment: committed runs are named
        with it.
        """
        idle = ("beta2",) if self.beta2_half_life or not self.second_moment else ()
        return idle + ("beta1",) * bool(self.beta1_half_life)

    @classmethod
    def choices(cls) -> Registry[Any]:
        """The registered optimizers, which are made of this class."""
        from bss.training.optimizers import OPTIMIZERS

        return OPTIMIZERS

    def direction(self, settings: StepSettings, masks: Masks) -> optax.GradientTransformation:
        """From clipped gradients to the update before weight decay and the learning rate."""
        raise NotImplementedError(f"{type(self).__name__} has no direction")

    def descent(
        self, settings: StepSettings, masks: Masks
    ) -> tuple[optax.GradientTransformation, ...]:
        """From clipped gradients to the update: direction, decoupled weight decay, rate."""
        return (
            self.direction(settings, masks),
            optax.add_decayed_weights(settings.weight_decay, mask=masks.decay),
            optax.scale_by_learning_rate(settings.lr),
        )

    def chain(self, settings: StepSettings, masks: Masks) -> optax.GradientTransformation:
        """The optax chain of a step: clipping, then the descent.

        Args:
            settings: traced scalars of this step.
            masks: of the parameters.
        """
        clip = optax.clip_by_global_norm(self.clip) if self.clip else optax.identity()
        if masks.rates is None:
            return optax.chain(clip, *self.descent(settings, masks))
        # Before weight decay, which is as strong at every width (as MuAdamW's of Yang et al.).
        own_rates = optax.stateless(lambda updates, _: jax.tree.map(_times, updates, masks.rates))
        direction, *descent = self.descent(settings, masks)
        return optax.chain(clip, direction, own_rates, *descent)

    def evaluation_params(self, params: optax.Params, state: Any) -> optax.Params:
        """The parameters to evaluate, from those trained and the chain's state."""
        return params


def _times(update: Any, rate: float) -> Any:
    return update * rate
