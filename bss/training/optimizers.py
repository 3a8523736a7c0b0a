"""Optimizers: the base class, AdamW, SGD, Muon and schedule-free AdamW.

A custom optimizer is a frozen dataclass that inherits from `Optimizer`, named
`package.module:ATTRIBUTE`. Its optax chain is built inside the train step from traced settings, so
that no setting is compiled in.

Adam follows Kingma & Ba (1412.6980) with decoupled weight decay (Loshchilov & Hutter, 1711.05101)
and one change, derived here: the moments are divided by the weight they have accumulated,
1 - prod(beta), instead of 1 - beta**count. With constant betas the two are equal; when a batch
change moves beta2, only the accumulated weight is right.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
import optax.contrib

from bss.errors import InputError
from bss.registry import Registered, Registry
from bss.values import read_fields


class StepSettings(NamedTuple):
    """Traced settings of one step: float32 scalars, and the update weight of each average [K].

    The betas are passed as 1 - beta, because float32 cannot resolve beta near 1.
    """

    lr: Any
    one_minus_beta1: Any
    one_minus_beta2: Any
    weight_decay: Any
    ema_rates: Any


class Masks(NamedTuple):
    """Trees of the structure of the parameters.

    Attributes:
        decay: bool, True if weight decay applies.
        matrices: bool, True for a matrix from its last axis but one to its last, or a stack of
            such matrices.
        rates: float, factors on the LR, which do not scale weight decay; None if all are 1.
    """

    decay: Any
    matrices: Any
    rates: Any = None


@dataclass(frozen=True)
class Optimizer(Registered):
    """An optimizer and its settings at the reference batch size; `name` selects it in a dict.

    A custom optimizer defines `direction`, or `descent` if its update has another form.

    Attributes:
        lr: peak learning rate.
        beta1: first-moment decay per step (momentum for SGD); unused if its half-life is set.
        beta1_half_life: half-life of the first moment in tokens; 0 keeps `beta1` per step.
        beta2: second-moment decay per step; unused if `beta2_half_life` is set.
        beta2_half_life: half-life of the second moment in tokens; 0 keeps `beta2` per step.
        eps: Adam's epsilon.
        weight_decay: decoupled; norms are not decayed.
        clip: global norm to which gradients are clipped; 0 disables clipping.
        second_moment: class attribute, True if the class has a second moment, so that beta2
            matters.
        one_beta1: class attribute, True if beta1 must be constant.
        own_rates: class attribute, True if the class supports `Masks.rates`.
        dynamic_fields: class attribute, settings in which runs of one program may differ, because
            they reach it as `StepSettings`.
    """

    key: ClassVar[str] = "name"
    second_moment: ClassVar[bool] = True
    own_rates: ClassVar[bool] = False
    one_beta1: ClassVar[bool] = False
    dynamic_fields: ClassVar[tuple[str, ...]] = (
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
        read_fields(self, "optimizer.")
        for name, low, high in (("beta1", 0, 1), ("beta2", 0, 1), ("clip", 0, math.inf)):
            self._check(name, low <= getattr(self, name) < high, f"{low} <= {name} < {high}")
        for name in ("lr", "eps"):
            self._check(name, 0 < getattr(self, name) < math.inf, "a positive number")

    def _check(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise InputError(f"optimizer.{name} is {getattr(self, name)}; expected {expected}")

    @property
    def unused(self) -> tuple[str, ...]:
        """See `Registered`.

        `beta2_half_life` is never unused, not even without a second moment: the ids of committed
        runs depend on it.
        """
        idle = ("beta2",) if self.beta2_half_life or not self.second_moment else ()
        return idle + ("beta1",) * bool(self.beta1_half_life)

    @classmethod
    def choices(cls) -> Registry[Any]:
        """Return the registered optimizers."""
        return OPTIMIZERS

    def direction(self, settings: StepSettings, masks: Masks) -> optax.GradientTransformation:
        """Return the transformation of clipped gradients before weight decay and learning rate."""
        raise NotImplementedError(f"{type(self).__name__} has no direction")

    def descent(
        self, settings: StepSettings, masks: Masks
    ) -> tuple[optax.GradientTransformation, ...]:
        """Return the transformations from clipped gradients to the update."""
        return (
            self.direction(settings, masks),
            optax.add_decayed_weights(settings.weight_decay, mask=masks.decay),
            optax.scale_by_learning_rate(settings.lr),
        )

    def chain(self, settings: StepSettings, masks: Masks) -> optax.GradientTransformation:
        """Return the optax chain of a step: clipping, then `descent`."""
        clip = optax.clip_by_global_norm(self.clip) if self.clip else optax.identity()
        if masks.rates is None:
            return optax.chain(clip, *self.descent(settings, masks))
        # Before weight decay, which is equally strong at every width (as MuAdamW of Yang et al.).
        own_rates = optax.stateless(
            lambda updates, _: jax.tree.map(lambda update, r: update * r, updates, masks.rates)
        )
        direction, *descent = self.descent(settings, masks)
        return optax.chain(clip, direction, own_rates, *descent)

    def init(self, params: optax.Params, masks: Masks) -> Any:
        """Return the initial state of the chain."""
        return self.chain(StepSettings(0.0, 1 - self.beta1, 0.1, 0.0, ()), masks).init(params)

    def evaluation_params(self, params: optax.Params, state: Any) -> optax.Params:
        """Return the parameters to evaluate, given the trained ones and the chain's state."""
        return params


class MomentsState(NamedTuple):
    """Adam's moments and the weight that each has accumulated."""

    mu: optax.Updates
    nu: optax.Updates
    mu_weight: jax.Array
    nu_weight: jax.Array


def scale_by_moments(
    one_minus_beta1: Any, one_minus_beta2: Any, eps: float
) -> optax.GradientTransformation:
    """Return Adam's direction, unbiased also if the betas change between steps.

    Equals `optax.scale_by_adam` for constant betas (derived here; tested).
    """

    def init(params: optax.Params) -> MomentsState:
        def zeros() -> optax.Updates:
            return jax.tree.map(jnp.zeros_like, params)

        return MomentsState(zeros(), zeros(), jnp.zeros(()), jnp.zeros(()))

    def update(
        updates: optax.Updates, state: MomentsState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, MomentsState]:
        mu = jax.tree.map(lambda m, g: m + one_minus_beta1 * (g - m), state.mu, updates)
        nu = jax.tree.map(lambda v, g: v + one_minus_beta2 * (g * g - v), state.nu, updates)
        mu_weight = state.mu_weight + one_minus_beta1 * (1 - state.mu_weight)
        nu_weight = state.nu_weight + one_minus_beta2 * (1 - state.nu_weight)
        direction = jax.tree.map(
            lambda m, v: (m / mu_weight) / (jnp.sqrt(v / nu_weight) + eps), mu, nu
        )
        return direction, MomentsState(mu, nu, mu_weight, nu_weight)

    return optax.GradientTransformation(init, update)


@dataclass(frozen=True)
class AdamW(Optimizer):
    """Adam with decoupled weight decay.

    Its settings are those of `Optimizer`: the peak LR, decays per step or half-lives in tokens.

    Raises:
        InputError: If a setting is out of its range.

    Source: Loshchilov and Hutter (arXiv 1711.05101).

    Examples:
        >>> AdamW(lr=1e-3, beta2_half_life=10_000_000).unused  # beta2 per step has no effect
        ('beta2',)
    """

    own_rates: ClassVar[bool] = True

    def direction(self, settings: StepSettings, masks: Masks) -> optax.GradientTransformation:
        """Return the first moment over the root of the second; see `Optimizer`."""
        return scale_by_moments(settings.one_minus_beta1, settings.one_minus_beta2, self.eps)


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent with heavy-ball momentum `beta1`; beta2 and eps are unused."""

    second_moment: ClassVar[bool] = False

    @property
    def unused(self) -> tuple[str, ...]:
        """See `Optimizer`; eps is unused too."""
        return (*super().unused, "eps")

    def direction(self, settings: StepSettings, masks: Masks) -> optax.GradientTransformation:
        """Return the trace of the gradients; see `Optimizer`."""
        return optax.trace(decay=1.0 - settings.one_minus_beta1)


@dataclass(frozen=True)
class Muon(Optimizer):
    """Muon at `lr` with momentum `beta1` for hidden matrices; Adam for embeddings, heads, norms.

    Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024, as in
    `optax.contrib.muon`: Nesterov momentum, five Newton-Schulz iterations, updates multiplied by
    sqrt(max(1, fan_out / fan_in)). It is composed here from optax's parts, so that Adam's moments
    stay right when the batch size moves beta2, and both groups follow one schedule.

    Attributes:
        adam_lr: peak learning rate of Adam's group; it follows the schedule of `lr`.
    """

    # Not `lr`, because the other group's factor adam_lr / lr is compiled in.
    dynamic_fields: ClassVar[tuple[str, ...]] = Optimizer.dynamic_fields[1:]

    lr: float = 0.02
    beta1: float = 0.95
    adam_lr: float = 4e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("adam_lr", 0 < self.adam_lr < math.inf, "a positive number")

    def direction(self, settings: StepSettings, masks: Masks) -> optax.GradientTransformation:
        """Return orthogonalised momentum for matrices and stacks of them, Adam for the rest."""
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
        """Return the descent of `Optimizer`, with `adam_lr` for parameters that are no matrices."""
        rest = jax.tree.map(lambda is_matrix: not is_matrix, masks.matrices)
        own_rate = optax.masked(optax.scale(self.adam_lr / self.lr), rest)
        return (*super().descent(settings, masks), own_rate)


_LAST_TWO = optax.contrib.MuonDimensionNumbers(reduction_axis=-2, output_axis=-1)


def _scaled_by_shape(update: Any, _: Any) -> jax.Array:
    fan_in, fan_out = update.shape[-2:]
    return update * math.sqrt(max(1, fan_out / fan_in))


@dataclass(frozen=True)
class ScheduleFree(Optimizer):
    """Schedule-free AdamW (Defazio et al., 2405.15682); `beta1` is the interpolation.

    It is evaluated at the average, x.
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
        """Return Adam's direction without a first moment; see `Optimizer`."""
        return scale_by_moments(1.0, settings.one_minus_beta2, self.eps)

    def descent(
        self, settings: StepSettings, masks: Masks
    ) -> tuple[optax.GradientTransformation, ...]:
        """Return AdamW's descent inside the averaging; see `Optimizer`."""
        inner = optax.chain(*super().descent(settings, masks))
        beta1 = 1.0 - settings.one_minus_beta1
        return (optax.contrib.schedule_free(inner, settings.lr, b1=beta1),)

    def evaluation_params(self, params: optax.Params, state: Any) -> optax.Params:
        """Return the average x; see `Optimizer`."""
        return optax.contrib.schedule_free_eval_params(state[-1], params)


OPTIMIZERS: Registry[type[Optimizer]] = Registry(
    "optimizer.name",
    {"adamw": AdamW, "sgd": SGD, "schedule_free": ScheduleFree, "muon": Muon},
    of=type[Optimizer],
)
