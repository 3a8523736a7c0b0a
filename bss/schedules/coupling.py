"""Scaling of learning rate (LR), weight decay and betas with the batch size.

A rule is a function, registered here or named `package.module:ATTRIBUTE`. A rule of the LR maps
B/B_ref to a factor. A rule of weight decay maps B/B_ref and the factor of the LR to another factor.
Rules of beta1 are in `bss.schedules.momentum`.

The square-root rule is usual for Adam, the linear rule for SGD (arXiv 2505.23971 uses both so).
Betas with half-lives in tokens follow Marek et al. (arXiv 2507.07101): beta2' = beta2^(B'/B).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bss.errors import InputError, check, check_number, check_type
from bss.registry import Registry, attempt
from bss.schedules.momentum import beta1_by, share_of


class PowersToo(Registry[Callable[[float], float]]):
    """Rules by name; a number, e.g. "0.34", is the power of B/B_ref."""

    def __missing__(self, name: str) -> Callable[[float], float]:
        """Return the power of a number."""
        try:
            power = float(name)
        except ValueError:
            return super().__missing__(name)
        check(-4 < power < 4, self.kind, power, "a power between -4 and 4")
        return lambda ratio: ratio**power


LR_RULES = PowersToo(
    "coupling lr",
    {"none": lambda ratio: 1.0, "sqrt": math.sqrt, "linear": lambda ratio: ratio},
    Callable,
)
DECAY_RULES: Registry[Callable[[float, float], float]] = Registry(
    "coupling weight_decay_rule",
    {"none": lambda ratio, factor: 1.0, "per_token": lambda ratio, factor: ratio / factor},
    Callable,
)


@dataclass(frozen=True)
class Settings:
    """Settings of one optimizer step, as float64 numbers.

    Attributes:
        lr: learning rate.
        beta1: decay of the first moment, per step.
        beta2: decay of the second moment, per step.
        weight_decay: decoupled, so that the step shrinks a weight by lr · weight_decay.
    """

    lr: float
    beta1: float
    beta2: float
    weight_decay: float


@dataclass(frozen=True)
class Coupling:
    """The settings of a step as functions of its batch size B.

    Attributes:
        lr: rule for the factor on the scheduled LR. "none" is 1, "sqrt" (B/B_ref)^½, "linear"
            B/B_ref, a number such as "0.34" that power; or a custom rule.
        reference_batch: B_ref in sequences, the batch size at which scheduled LR and weight decay
            apply unchanged; required by every rule except "none".
        weight_decay: λ at the reference batch size; None means 0, and not set.
        weight_decay_rule: "none" keeps λ. "per_token" keeps the AdamW timescale B/(lr·λ) in tokens
            (to first order in lr·λ). Then λ_B is λ · (B/B_ref) / (factor of the LR) (derived here).
            Or a custom rule.
        beta1, beta2: per step, at every batch size; None means 0.9 and 0.95, and not set.
        beta1_half_life, beta2_half_life: in tokens; replace the betas by 2^(−batch tokens /
            half-life) (arXiv 2507.07101).
        beta1_rule: rule of beta1 by the number of steps. "none" keeps it; "0.2%" sets a half-life
            of that share of the steps. It needs `tokens`.
        tokens: tokens of the run, which determine its steps at a batch size; set by `resolve`.

    Raises:
        InputError: If a value is out of range.

    Examples:
        >>> Coupling("sqrt", reference_batch=64).settings(lr=1e-3, batch=256, seq_len=2048).lr
        0.002
    """

    lr: str = "none"
    reference_batch: int | None = None
    weight_decay: float | None = None
    weight_decay_rule: str = "none"
    beta1: float | None = None
    beta2: float | None = None
    beta1_half_life: float | None = None
    beta2_half_life: float | None = None
    beta1_rule: str = "none"
    tokens: int | None = None

    def __post_init__(self) -> None:
        for field in ("lr", "weight_decay_rule", "beta1_rule"):
            check_type(field, getattr(self, field), str, "the name of a rule")
        numbers = ("reference_batch", "weight_decay", "beta1", "beta2", "beta1_half_life")
        for field in (*numbers, "beta2_half_life"):
            if getattr(self, field) is not None:
                check_number(field, getattr(self, field))
        check_rules(self.lr, self.weight_decay_rule)
        if share_of(self.beta1_rule) and self.beta1_half_life is not None:
            raise InputError(
                f"beta1_half_life: given with the rule {self.beta1_rule}; leave one of them out"
            )
        for field in ("lr", "weight_decay_rule"):
            rule = getattr(self, field)
            if rule != "none" and self.reference_batch is None:
                raise InputError(
                    f"reference_batch: missing; {field} {rule!r} scales relative to it"
                )
        if self.reference_batch is not None:
            check(self.reference_batch >= 1, "reference_batch", self.reference_batch, "1 or more")
        decay = self.weight_decay or 0.0
        check(0 <= decay < math.inf, "weight_decay", decay, "0 or more")
        for name in ("beta1", "beta2"):
            beta = getattr(self, name) or 0.0
            tokens = getattr(self, f"{name}_half_life")
            check(0 <= beta < 1, name, beta, f"0 <= {name} < 1")
            if tokens is not None:
                check(0 < tokens < math.inf, f"{name}_half_life", tokens, "a positive count")

    @property
    def given(self) -> tuple[str, ...]:
        """The names among beta1, beta2 and weight_decay that were set, in this order."""
        names = ("beta1", "beta2", "weight_decay")
        values = vars(self)
        ruled = {"beta1": None if self.beta1_rule == "none" else self.beta1_rule}
        ways = {n: (values[n], values.get(f"{n}_half_life"), ruled.get(n)) for n in names}
        return tuple(n for n, ways in ways.items() if any(way is not None for way in ways))

    def settings(self, lr: float, batch: int, seq_len: int) -> Settings:
        """Return the settings of a step; `lr` is the scheduled LR, `batch` is in sequences.

        Examples:
            >>> coupling = Coupling(lr="sqrt", reference_batch=8, beta2_half_life=4096)
            >>> coupling.settings(1e-3, 32, 128)
            Settings(lr=0.002, beta1=0.9, beta2=0.5, weight_decay=0.0)
        """
        ratio = batch / (self.reference_batch or batch)
        factor = LR_RULES[self.lr](ratio)
        tokens = batch * seq_len
        return Settings(
            lr=lr * factor,
            beta1=self._beta1(tokens),
            beta2=_beta(self.beta2, 0.95, self.beta2_half_life, tokens),
            weight_decay=(self.weight_decay or 0.0)
            * DECAY_RULES[self.weight_decay_rule](ratio, factor),
        )

    def _beta1(self, batch_tokens: int) -> float:
        beta1 = _beta(self.beta1, 0.9, self.beta1_half_life, batch_tokens)
        if self.beta1_rule == "none":
            return beta1
        if self.tokens is None:
            raise InputError(
                f"tokens: missing; beta1_rule {self.beta1_rule!r} goes by the length of the run"
            )
        return beta1_by(self.beta1_rule, beta1, self.tokens / batch_tokens)


def check_rules(lr: str, weight_decay: str) -> None:
    """Raise InputError for rules that do not exist or do not return a factor."""
    for rules, name, ones in ((LR_RULES, lr, (1.0,)), (DECAY_RULES, weight_decay, (1.0, 1.0))):
        rule: Callable[..., float] = rules.load(name)
        factor = name in rules or attempt(rules.kind, name, lambda: rule(*ones))  # noqa: B023
        if not isinstance(factor, int | float) or not 0 <= factor < math.inf:
            raise InputError(f"{rules.kind}: {name} gives {factor!r} at 1; expected 0 or more")


def idle_rules(
    lr: str, weight_decay_rule: str, weight_decay: float, ratios: Sequence[float]
) -> tuple[str, ...]:
    """Return which of "lr_coupling" and "weight_decay_coupling" have no effect at these B/B_ref."""
    factors = [LR_RULES[lr](ratio) for ratio in ratios]
    decays = [DECAY_RULES[weight_decay_rule](*pair) for pair in zip(ratios, factors, strict=True)]
    idle = {
        "lr_coupling": set(factors) == {1},
        "weight_decay_coupling": not weight_decay or set(decays) == {1},
    }
    return tuple(name for name, changes_nothing in idle.items() if changes_nothing)


def half_life(beta: float, batch_tokens: int) -> float:
    """Return the half-life, in tokens, of an average with a beta per step of `batch_tokens`.

    Beta lies strictly between 0 and 1 (arXiv 2507.07101).

    Examples:
        >>> round(half_life(0.95, 1024))
        13838
    """
    if not 0 < beta < 1:
        raise InputError(f"beta: {beta} has no half-life; write 0 < beta < 1")
    return batch_tokens * math.log(0.5) / math.log(beta)


def _beta(beta: float | None, usual: float, half_life_tokens: float | None, tokens: int) -> float:
    per_step = usual if beta is None else beta
    return per_step if half_life_tokens is None else 2.0 ** (-tokens / half_life_tokens)
