"""What every policy is called with, and what it gives back."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import pandas as pd

from bss.errors import InputError, check
from bss.laws import CurveFit, EsFit, TableFit
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import Rate

Fit = TypeVar("Fit", EsFit, CurveFit, TableFit)


@dataclass(frozen=True)
class Choices:
    """The batches that a policy may choose, all in sequences.

    Attributes:
        low, high: the smallest and the largest, which is infinite for none.
        multiple_of: all multiples of it between the two ...
        listed: ... unless these are all there are, ascending.
        stages: how many constant stages at most.
    """

    low: int
    high: float
    multiple_of: int
    listed: tuple[int, ...]
    stages: int

    def nearest(self, batch: float) -> int:
        """The choice nearest to a batch in ratio, or in difference where multiples are free."""
        inside = min(max(batch, self.low), self.high)
        if self.listed:
            return min(self.listed, key=lambda choice: abs(math.log(choice / inside)))
        return round(inside / self.multiple_of) * self.multiple_of

    def ladder(self) -> tuple[int, ...]:
        """All that are listed, or about four choices to the doubling; ascending.

        Raises:
            InputError: there is no largest batch.
        """
        if self.listed:
            return self.listed
        if math.isinf(self.high):
            raise InputError("max_batch: missing, and no batch was measured; give the largest")
        first, last = self.low // self.multiple_of, int(self.high) // self.multiple_of
        units = np.geomspace(first, last, 2 + int(4 * math.log2(last / first)))
        return tuple(sorted({round(unit) * self.multiple_of for unit in units}))

    def follow(self, ideal: Callable[[int], float], tokens: int) -> BatchSchedule:
        """Follows a batch that is a function of tokens consumed, in stages of these choices."""
        return BatchSchedule.follow(
            lambda count: min(max(ideal(count), self.low), self.high),
            tokens,
            self.stages,
            multiple_of=self.multiple_of,
            allowed=self.listed or None,
        )

    def check_switch(self) -> None:
        """Raises InputError where only one stage may be taken, for a policy that switches once."""
        check(self.stages >= 2, "stages", self.stages, "2 or more, as a late switch has 2")


def through(
    log_tokens: np.ndarray, log_batch: np.ndarray, power: float = 0.0
) -> Callable[[float], float]:
    """A batch over tokens consumed: a power law between points, and beyond them of this power."""

    def at(count: float) -> float:
        x = math.log(max(count, 1))
        beyond = power * (x - np.clip(x, log_tokens[0], log_tokens[-1]))
        return math.exp(np.interp(x, log_tokens, log_batch) + beyond)

    return at


@dataclass(frozen=True)
class Limits:
    """What a schedule may be made of, as a user says it.

    Attributes:
        stages: how many constant stages at most.
        multiple_of: batches are multiples of it ...
        allowed: ... unless the batches to choose from are given, in sequences.
        min_batch, max_batch: by default the smallest and the largest batch allowed or measured.
    """

    stages: int = 4
    multiple_of: int = 1
    allowed: tuple[int, ...] = ()
    min_batch: float | None = None
    max_batch: float | None = None

    def within(self, measured: Sequence[float]) -> Choices:
        """The choices these limits leave, where so many batches were measured (none: unbounded).

        Raises:
            InputError: they leave none.
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
    """What a policy may read; each says what it lacks.

    Attributes:
        seq_len: tokens per sequence.
        fit: a fitted law E(S), law of loss curves, or law of final losses.
        points: table of points.
        rate: the learning rate of the run, a function of tokens.
    """

    seq_len: int
    fit: EsFit | CurveFit | TableFit | None = None
    points: pd.DataFrame | None = None
    rate: Rate | None = None

    @property
    def measured(self) -> tuple[float, ...]:
        """The batches measured, or the smallest and the largest of them; empty where unknown."""
        if self.fit is not None:
            return self.fit.batches
        return () if self.points is None else tuple(self.points["batch"].unique())

    def fitted(self, kind: type[Fit]) -> Fit:
        """The fit, where it is one of this kind; raises InputError where it is not."""
        if isinstance(self.fit, kind):
            return self.fit
        maker = {EsFit: "es", CurveFit: "curve", TableFit: "table"}[kind]
        raise InputError(
            f"fit: the policy reads a fit of `bss fit {maker}`; give one, or another policy"
        )


@runtime_checkable
class Policy(Protocol):
    """A rule that makes a batch schedule; its settings are the fields of a frozen dataclass.

    One that chooses the rate too has a `search`, called alike, which gives both.
    """

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """The schedule for a budget.

        Args:
            basis: what is known: a fit, points, the rate.
            tokens: budget of the run.
            limits: what the schedule may be made of.

        Raises:
            InputError: the basis lacks what the policy reads, or a setting is out of range.
        """
        ...


def schedule_and_rate(
    policy: Policy, basis: Basis, tokens: int, limits: Limits
) -> tuple[BatchSchedule, Rate | None]:
    """The schedule of a policy, and its rate: that of the basis, unless the policy chooses one."""
    if search := getattr(policy, "search", None):
        return search(basis, tokens, limits)
    return policy(basis, tokens, limits), basis.rate
