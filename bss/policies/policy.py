"""The interface of policies: basis, limits and choices of batch sizes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from bss.errors import InputError, check_number, check_type
from bss.laws import BranchFit, CurveFit, EsFit, LossFit
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import WarmupStableDecay

Fit = TypeVar("Fit", EsFit, CurveFit, LossFit)


@dataclass(frozen=True)
class Choices:
    """The batch sizes that a policy may choose, in sequences.

    Attributes:
        low, high: The smallest and the largest batch size; `high` may be infinite.
        multiple_of: All multiples of it between the two may be chosen, if `listed` is empty.
        listed: The only batch sizes that may be chosen, ascending.
        stages: Maximum number of constant stages.
    """

    low: int
    high: float
    multiple_of: int
    listed: tuple[int, ...]
    stages: int

    def nearest(self, batch: float) -> int:
        """Return the choice nearest to a batch size: by ratio if listed, else by difference."""
        inside = min(max(batch, self.low), self.high)
        if self.listed:
            return min(self.listed, key=lambda choice: abs(math.log(choice / inside)))
        return round(inside / self.multiple_of) * self.multiple_of

    def ladder(self) -> tuple[int, ...]:
        """Return all listed batch sizes, or about four per doubling; ascending.

        Raises:
            InputError: If the largest batch size is unknown.
        """
        if self.listed:
            return self.listed
        if math.isinf(self.high):
            raise InputError("max_batch: missing, and no batch was measured; give the largest")
        first = self.low // self.multiple_of
        last = int(self.high) // self.multiple_of
        units = np.geomspace(first, last, 2 + int(4 * math.log2(last / first)))
        return tuple(sorted({round(unit) * self.multiple_of for unit in units}))

    def follow(self, ideal: Callable[[int], float], tokens: int) -> BatchSchedule:
        """Return a schedule in stages of these choices that follows a function of tokens."""
        return BatchSchedule.follow(
            lambda count: min(max(ideal(count), self.low), self.high),
            tokens,
            self.stages,
            multiple_of=self.multiple_of,
            allowed=self.listed or None,
        )


def through(
    log_tokens: np.ndarray, log_batch: np.ndarray, power: float = 0.0
) -> Callable[[float], float]:
    """Return batch size over tokens: a power law between points, with `power` beyond them."""

    def at(count: float) -> float:
        x = math.log(max(count, 1))
        beyond = power * (x - np.clip(x, log_tokens[0], log_tokens[-1]))
        return math.exp(np.interp(x, log_tokens, log_batch) + beyond)

    return at


@dataclass(frozen=True)
class Limits:
    """Limits of a schedule as a user sets them.

    Attributes:
        stages: Maximum number of constant stages.
        multiple_of: Batch sizes are multiples of it, if `allowed` is empty.
        allowed: The only batch sizes to choose from, in sequences.
        min_batch, max_batch: Default: the smallest and the largest batch size allowed or measured.

    Raises:
        InputError: If a limit is below 1, or they leave no batch size.

    Examples:
        >>> Limits(stages=3, multiple_of=8, max_batch=64).stages
        3
    """

    stages: int = 4
    multiple_of: int = 1
    allowed: tuple[int, ...] = ()
    min_batch: float | None = None
    max_batch: float | None = None

    def __post_init__(self) -> None:
        for name in ("stages", "multiple_of"):
            check_type(name, getattr(self, name), Integral, "a whole number")
        check_type("allowed", self.allowed, (tuple, list), "a list of batch sizes")
        for name in ("min_batch", "max_batch"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name))

    def within(self, measured: Sequence[float]) -> Choices:
        """Return the choices within these limits and the measured batch sizes.

        Raises:
            InputError: If no batch size is left.
        """
        known = [batch for batch in self.allowed or measured if batch > 0]
        low = min(known, default=1) if self.min_batch is None else self.min_batch
        high = max(known, default=math.inf) if self.max_batch is None else self.max_batch
        unit = self.multiple_of
        if unit < 1 or not 0 < low <= high:
            raise InputError(
                f"batch: {low:g} to {high:g} in multiples of {unit}; write a multiple of 1 or "
                "more and bounds above 0, the smaller first"
            )
        if self.allowed:
            listed = tuple(sorted({batch for batch in self.allowed if low <= batch <= high}))
            if not listed:
                raise InputError(
                    f"allowed: none of {', '.join(map(str, self.allowed))} lies within batches "
                    f"{low:g} to {high:g}; widen the bounds"
                )
            return Choices(listed[0], listed[-1], 1, listed, self.stages)
        first = max(math.ceil(low / unit - 1e-9), 1) * unit
        last = math.floor(high / unit + 1e-9) * unit if math.isfinite(high) else high
        if last < first:
            raise InputError(
                f"multiple_of: no multiple of {unit} lies within batches {low:g} to {high:g}; "
                "lower it, or give min_batch or max_batch to go beyond them"
            )
        return Choices(first, last, unit, (), self.stages)


@dataclass(frozen=True, eq=False)
class Basis:
    """The inputs of a policy; a missing one raises an error that names it.

    Attributes:
        seq_len: Tokens per sequence.
        fit: A fit of E(S), of loss curves, of final losses, or of branches.
        rate: LR of the run as a function of tokens.
    """

    seq_len: int
    fit: EsFit | CurveFit | LossFit | BranchFit | None = None
    rate: WarmupStableDecay | None = None

    @property
    def measured(self) -> tuple[float, ...]:
        """The measured batch sizes, or their smallest and largest; empty if unknown."""
        return () if self.fit is None else self.fit.batches

    def fitted(self, kind: type[Fit]) -> Fit:
        """Return the fit if it is of this kind, else raise InputError."""
        if isinstance(self.fit, kind):
            return self.fit
        maker = {EsFit: "es", CurveFit: "curve", LossFit: "loss"}[kind]
        raise InputError(
            f"fit: the policy reads a fit of `bss fit {maker}`; give one, or another policy"
        )


@runtime_checkable
class Policy(Protocol):
    """A rule that makes a batch schedule; its settings are the fields of a frozen dataclass."""

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """Return the schedule for a budget.

        Args:
            basis: Fit and LR schedule.
            tokens: Token budget.
            limits: Limits of the schedule.

        Raises:
            InputError: If the basis lacks an input, or a setting is out of range.
        """
        ...
